"""What asking may cost: calls a minute and a day, bytes and money a day, and audits apart. Pure.

A day is a day of the wall clock, but a clock that jumps must not make money: within one start of the box at
least as much time has to pass, by the monotonic clock, before a new day begins, also when this process is
started again. A day that lies in the future, because a clock was wrong, ends when a whole day has passed.
Nothing that was spent ever comes back by a restart, since whoever owns this writes the state down first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vedette.config.escalation import BudgetConfig
    from vedette.escalate.port import Usage

DAY_S = 86_400
MINUTE_S = 60.0
# A new day that the wall clock claims is believed after so much monotonic time of the same start.
LEAST_DAY_S = 20 * 3600
# What a day's limit may spend at once, as a share of it: a bad morning must leave something for the evening.
BURST_S = 3600.0
MILLION = 1_000_000


class Spent(msgspec.Struct, kw_only=True):
    """What was spent on one day of UTC; this is what is kept on the disk.

    `began_s` is when the day began, CLOCK_MONOTONIC of the start of the box that is named `boot`.
    """

    day: int = 0
    boot: str = ""
    began_s: float = 0.0
    calls: int = 0
    audits: int = 0
    bytes: int = 0
    money: float = 0.0


class Budgets:
    """Counts and answers; one thread owns it. Times are CLOCK_MONOTONIC seconds and UTC seconds.

    `audits_per_day` is a limit of its own, so that a day of much doubt does not end what measures the doubt.
    """

    def __init__(
        self,
        limits: BudgetConfig,
        audits_per_day: int,
        spent: Spent,
        *,
        now_s: float,
        utc_s: float,
        boot: str = "",
    ) -> None:
        self._limits = limits
        self._audits_per_day = audits_per_day
        self.spent = spent
        self._boot = boot
        same_boot = bool(boot) and spent.boot == boot
        # A day may have begun before this start of the box: nobody knows when.
        self._day_began_s = spent.began_s if same_boot else -math.inf
        self._began_s = spent.began_s if same_boot else now_s
        self._minute: list[float] = []
        self._tokens = self._capacity() / 2
        self._refilled_s = now_s
        self._turn_day(now_s, utc_s)

    def tick(self, now_s: float, utc_s: float) -> None:
        """Let time pass."""
        self._turn_day(now_s, utc_s)
        passed_s = max(0.0, now_s - self._refilled_s)
        self._refilled_s = now_s
        self._tokens = min(self._capacity(), self._tokens + passed_s * self.rate_per_s)
        self._minute = [asked_s for asked_s in self._minute if now_s - asked_s < MINUTE_S]

    @property
    def rate_per_s(self) -> float:
        """How fast calls may be made in the long run; infinite without limits on calls."""
        limits = self._limits
        rates = [math.inf]
        if limits.per_minute is not None:
            rates.append(limits.per_minute / MINUTE_S)
        if limits.per_day is not None:
            rates.append(limits.per_day / DAY_S)
        return min(rates)

    @property
    def calls_minute(self) -> int:
        """Calls of the last minute."""
        return len(self._minute)

    def tokens(self) -> int:
        """Calls that may be made now."""
        limits, spent = self._limits, self.spent
        left = [self._tokens]
        if limits.per_minute is not None:
            left.append(limits.per_minute - len(self._minute))
        if limits.per_day is not None:
            left.append(limits.per_day - spent.calls)
        if limits.bytes_per_day is not None and spent.bytes >= limits.bytes_per_day:
            left.append(0)
        if limits.money_per_day is not None and spent.money >= limits.money_per_day:
            left.append(0)
        return int(max(0, min(*left, MILLION)))

    def fill(self) -> float:
        """How full the bucket is, 0 to 1."""
        capacity = self._capacity()
        return 1.0 if math.isinf(capacity) else min(1.0, self._tokens / capacity)

    def audit_tokens(self) -> int:
        """Audits that may be made now; bytes and money are everybody's."""
        limits, spent = self._limits, self.spent
        over_bytes = limits.bytes_per_day is not None and spent.bytes >= limits.bytes_per_day
        over_money = limits.money_per_day is not None and spent.money >= limits.money_per_day
        return 0 if over_bytes or over_money else max(0, self._audits_per_day - spent.audits)

    def take(self, now_s: float, *, audit: bool) -> bool:
        """Spend one call, or say that there is none."""
        if audit:
            if self.audit_tokens() < 1:
                return False
            self.spent.audits += 1
            return True
        if self.tokens() < 1:
            return False
        self._tokens -= 1
        self._minute.append(now_s)
        self.spent.calls += 1
        return True

    def cost(self, sent_bytes: int, usage: Usage) -> None:
        """What a call has cost, answered or not; each retry costs again."""
        limits = self._limits
        self.spent.bytes += sent_bytes
        self.spent.money += (
            limits.price_call
            + usage.prompt_tokens * limits.price_prompt / MILLION
            + usage.completion_tokens * limits.price_completion / MILLION
        )

    def _capacity(self) -> float:
        """What may be saved up: a minute's calls, or an hour's of a day's, at least one."""
        limits = self._limits
        found = [math.inf]
        if limits.per_minute is not None:
            found.append(float(limits.per_minute))
        if limits.per_day is not None:
            found.append(max(1.0, limits.per_day * BURST_S / DAY_S))
        return min(found)

    def _turn_day(self, now_s: float, utc_s: float) -> None:
        day = int(utc_s // DAY_S)
        passed_s = now_s - self._day_began_s
        ahead = day < self.spent.day and now_s - self._began_s >= DAY_S
        if not ahead and (day <= self.spent.day or passed_s < LEAST_DAY_S):
            return  # the same day, or a clock that went back: what was spent stays spent
        self.spent = Spent(day=day, boot=self._boot, began_s=now_s)
        self._day_began_s = self._began_s = now_s
