"""The budget that a crash does not refill: spent on paper before it is spent, by any thread.

What is on the disk is always at least what was spent: each write sets some calls aside in advance, and none
is made beyond them. So a killed process loses what was set aside, and never gives anything back. At most one
write a second; whoever needs more calls than were set aside waits for the next.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.errors import BadInputError, InternalError, StorageError
from vedette.escalate.budgets import DAY_S, Budgets, Spent
from vedette.escalate.messages import Spend
from vedette.fsops import Point
from vedette.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.port import Usage

WRITE_EVERY_S = 1.0
MOST_AHEAD, AHEAD_SHARE = 256, 0.01
RECORD_BYTES = 4096
# What a call is thought to cost before one was made.
FIRST_BYTES, FIRST_PROMPT, FIRST_COMPLETION = 100_000, 1000, 50
_FOLLOWS = 0.1


class Grant(NamedTuple):
    """What the gate may spend until the next setting."""

    tokens: int
    audit_tokens: int
    rate_per_s: float
    fill: float


def boot_name() -> str:
    """The kernel's name for this start of the box; empty where it tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Purse:
    """Owns the budgets; any thread may spend. `folder` None keeps nothing."""

    def __init__(
        self,
        config: EscalationConfig,
        folder: Path | None,
        clock: Clock,
        utc_s: Callable[[], float],
        *,
        boot: str,
    ) -> None:
        self._config = config
        self._clock = clock
        self._utc_s = utc_s
        self._lock = threading.Lock()
        self._journal = (
            None
            if folder is None
            else Journal(folder, "spent", Spent, point=Point.SPENT, capacity_bytes=RECORD_BYTES)
        )
        self.fault = ""
        self.lost = ""  # why the record was lost, if it was
        now_s = clock.monotonic_ns() / 1e9
        spent = self._read(now_s, boot)
        self._budgets = Budgets(
            config.budget, config.audit.per_day, spent, now_s=now_s, utc_s=utc_s(), boot=boot
        )
        self._written: Spent | None = None
        self._written_s = float("-inf")
        self._bytes_each = float(FIRST_BYTES)
        price = config.budget
        self._money_each = (
            price.price_call
            + (FIRST_PROMPT * price.price_prompt + FIRST_COMPLETION * price.price_completion) / 1e6
        )

    @property
    def spent(self) -> Spent:
        """A copy of what was spent today."""
        with self._lock:
            return msgspec.structs.replace(self._budgets.spent)

    def tick(self) -> None:
        """Let time pass, and write down what is due."""
        with self._lock:
            now_s = self._passed()
            if self._written is None or self._differs(self._written) or self.fault:
                self._write(now_s)

    def take(self, *, audit: bool) -> bool:
        """Spend one call, or say that there is none just now."""
        with self._lock:
            now_s = self._passed()
            if not self._set_aside(now_s, audit=audit):
                return False
            return self._budgets.take(now_s, audit=audit)

    def exhausted(self, *, audit: bool) -> bool:
        """Whether nothing is left; where something is and `take` refuses, it is to be asked again soon."""
        with self._lock:
            self._passed()
            left = self._budgets.audit_tokens() if audit else self._budgets.tokens()
            return left < 1 or bool(self.fault)

    def cost(self, sent_bytes: int, usage: Usage) -> None:
        """What a call has cost."""
        with self._lock:
            spent = self._budgets.spent
            before_bytes, before_money = spent.bytes, spent.money
            self._budgets.cost(sent_bytes, usage)
            spent = self._budgets.spent
            self._bytes_each += _FOLLOWS * (spent.bytes - before_bytes - self._bytes_each)
            self._money_each += _FOLLOWS * (spent.money - before_money - self._money_each)

    def grant(self, waiting: int, waiting_audits: int) -> Grant:
        """What may still be granted, with so many cases on their way already."""
        with self._lock:
            self._passed()
            if self.fault:
                return Grant(0, 0, self._budgets.rate_per_s, 0.0)
            return Grant(
                max(0, self._budgets.tokens() - waiting),
                max(0, self._budgets.audit_tokens() - waiting_audits),
                min(self._budgets.rate_per_s, 1e9),
                self._budgets.fill(),
            )

    def spend(self) -> Spend:
        """For the figures."""
        limits, spent = self._config.budget, self.spent
        return Spend(
            calls_minute=self._budgets.calls_minute,
            calls_day=spent.calls,
            calls_day_limit=limits.per_day,
            bytes_day=spent.bytes,
            bytes_day_limit=limits.bytes_per_day,
            money_day=round(spent.money, 6),
            money_day_limit=limits.money_per_day,
        )

    def close(self) -> None:
        """Write down what was really spent: nothing more is set aside."""
        with self._lock:
            self._passed()
            if self._journal is None:
                return
            try:
                self._journal.write(self._budgets.spent)
            except (StorageError, InternalError) as error:
                self.fault = str(error)

    def _passed(self) -> float:
        now_s = self._clock.monotonic_ns() / 1e9
        self._budgets.tick(now_s, self._utc_s())
        return now_s

    def _set_aside(self, now_s: float, *, audit: bool) -> bool:
        """Whether the disk knows of one more call, now or after a write that is due."""
        if self._journal is None or self._covers(audit=audit):
            return True
        if now_s - self._written_s >= WRITE_EVERY_S:
            self._write(now_s)
        return self._covers(audit=audit)

    def _covers(self, *, audit: bool) -> bool:
        written, spent = self._written, self._budgets.spent
        if written is None or written.day != spent.day:
            return False
        return spent.audits < written.audits if audit else spent.calls < written.calls

    def _differs(self, written: Spent) -> bool:
        spent = self._budgets.spent
        return written.day != spent.day or spent.bytes > written.bytes or spent.money > written.money

    def _write(self, now_s: float) -> None:
        if self._journal is None or now_s - self._written_s < WRITE_EVERY_S:
            return
        spent, limits = self._budgets.spent, self._config.budget
        calls = _ahead(limits.per_day)
        audits = _ahead(self._config.audit.per_day)
        ahead = Spent(
            day=spent.day,
            boot=spent.boot,
            began_s=spent.began_s,
            calls=spent.calls + calls,
            audits=spent.audits + audits,
            bytes=spent.bytes + round(min(calls, 8) * self._bytes_each),
            money=spent.money + min(calls, 8) * self._money_each,
        )
        self._written_s = now_s
        try:
            self._journal.write(ahead)
        except (StorageError, InternalError) as error:
            self.fault = f"what is spent cannot be written down, so nothing is: {error}"
            self._written = None
            return
        self.fault = ""
        self._written = ahead

    def _read(self, now_s: float, boot: str) -> Spent:
        """What the disk knows; where its record is lost, today's budget counts as spent."""
        if self._journal is None:
            return Spent()
        try:
            return self._journal.read() or Spent()
        except BadInputError as error:
            self.lost = str(error)
        limits = self._config.budget
        spent = Spent(
            day=int(self._utc_s() // DAY_S),
            boot=boot,
            began_s=now_s,
            calls=limits.per_day or 0,
            audits=self._config.audit.per_day,
            bytes=limits.bytes_per_day or 0,
            money=limits.money_per_day or 0.0,
        )
        try:
            self._journal.reset(spent)
        except (StorageError, InternalError) as error:
            self.fault = str(error)
        return spent


def _ahead(limit: int | None) -> int:
    return MOST_AHEAD if limit is None else max(1, min(MOST_AHEAD, int(limit * AHEAD_SHARE)))
