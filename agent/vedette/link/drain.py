"""What goes to the broker next, and when. Pure.

The birth goes first and alone. Then the current state, the newest of each topic only; then replies to
commands; then events that are never dropped, oldest first; then the rest from both ends, the newest and the
oldest in turn, so that live figures are not hours late behind a backlog (casebook 45). What lies on the disk
goes at a limited rate, after a pause drawn anew in each connection.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.link.port import Keep
from vedette.link.rate import TokenBucket
from vedette.link.refusals import Refusals
from vedette.link.suspects import Flight, Suspects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

STATE_EVERY_S = 0.5
BIRTH_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.05
MAX_EXCLUDED = 256
# Of what the broker allows on its way at once, so much is left for state and replies.
_SPARE_WINDOW = 4


class DrainLimits(msgspec.Struct, frozen=True):
    """How fast what waits may go: messages a second, at once, and on their way; all times in seconds.

    `settle_s` is the most that a backlog waits after connecting; refusals of the broker pause a class of
    entries for a time drawn from zero to a ceiling that doubles from `refusal_min_s` to `refusal_max_s`.
    """

    rate_per_s: float = 50.0
    burst: int = 20
    settle_s: float = 5.0
    window: int = 16
    refusal_min_s: float = 1.0
    refusal_max_s: float = 300.0


class Source(str, Enum):
    """Where a message comes from."""

    STATE = "state"
    REPLY = "reply"
    ENTRY = "entry"


class Item(NamedTuple):
    """One message: a state by its topic, a reply or an entry by its number."""

    source: Source
    topic: str = ""
    number: int = 0
    keep: Keep = Keep.ALWAYS


class Pick(NamedTuple):
    """What to send; an entry without a number is the oldest, or `newest`, of its class."""

    item: Item
    newest: bool = False


class Verdict(str, Enum):
    """What becomes of a message that the broker answered."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GIVEN_UP = "given_up"


class _State:
    def __init__(self) -> None:
        self.wanted = False
        self.due_ns = 0
        self.on_its_way = False


class Drain:
    """The order; one thread. Times are monotonic nanoseconds."""

    def __init__(self, birth: str, limits: DrainLimits, uniform: Callable[[float, float], float]) -> None:
        self._birth = birth
        self._limits = limits
        self._uniform = uniform
        self._bucket = TokenBucket(rate_per_s=limits.rate_per_s, burst=limits.burst)
        self._connected = False
        self._proven = False
        self._proven_by_ns = 0
        self._window = limits.window
        self._blocked_until_ns = 0
        self._states: dict[str, _State] = {birth: _State()}
        self._replies: list[int] = []
        self._flights: dict[int, tuple[Item, int]] = {}
        self._suspects = Suspects()
        self._finished: dict[int, None] = {}
        self.retried: Item | None = None  # it was set aside once, and has a second chance
        self._empty: set[Keep] = set()
        self._newest = True
        self._refusals = {
            keep: Refusals(min_s=limits.refusal_min_s, max_s=limits.refusal_max_s, uniform=uniform)
            for keep in Keep
        }

    @property
    def excluded(self) -> Collection[int]:
        """Entries that are on their way, or were acknowledged and are not removed yet."""
        flying = {item.number for item, _ in self._flights.values() if item.source is Source.ENTRY}
        return flying | self._finished.keys()

    @property
    def finished(self) -> list[int]:
        """Entries that were acknowledged, to be removed from the disk."""
        return list(self._finished)

    def removed(self, numbers: Collection[int]) -> None:
        """They are off the disk."""
        for number in numbers:
            self._finished.pop(number, None)

    def connected(self, now_ns: int, receive_maximum: int) -> None:
        """A connection is up; all state is said anew."""
        self._connected, self._proven = True, False
        self._proven_by_ns = now_ns + round(BIRTH_WITHIN_S * 1e9)
        self._window = max(1, min(self._limits.window, receive_maximum - _SPARE_WINDOW))
        self._blocked_until_ns = 0
        self._empty.clear()
        self._newest = True
        self._bucket.empty(now_ns + round(self._uniform(0.0, self._limits.settle_s) * 1e9))
        for state in self._states.values():
            state.wanted, state.due_ns, state.on_its_way = True, now_ns, False

    def lost(self, kind: str, now_ns: int) -> Item | None:
        """The connection ended; the message that is proven to end it, which is sent no more."""
        flights, self._flights = self._flights, {}
        self._connected = False
        self._empty.clear()
        again = [item.number for item, _ in flights.values() if item.source is Source.REPLY]
        self._replies[:0] = again
        culprit = None
        if self._proven:
            suspects = [Flight(item, sent_ns) for item, sent_ns in flights.values()]
            found = self._suspects.ended(kind, suspects, now_ns)
            culprit = found if isinstance(found, Item) else None
        if culprit is not None:
            self.forget(culprit)
        return culprit

    def want(self, topic: str, now_ns: int) -> None:
        """A state is to be said; what is not said yet is said once, with its newest content."""
        state = self._states.setdefault(topic, _State())
        state.due_ns = max(state.due_ns, now_ns) if not state.wanted else state.due_ns
        state.wanted = True

    @property
    def proven(self) -> bool:
        """Whether this connection carried the birth, or was given the time for it."""
        return self._connected and self._proven

    def retry(self, item: Item) -> None:
        """Send an entry that had been set aside once more, alone; a failure gives it up at once."""
        self.retried = item
        self._suspects.accuse(item)

    def reply(self, number: int) -> None:
        """A reply waits."""
        self._replies.append(number)

    def kept(self) -> None:
        """Something came into the outbox."""
        self._empty.clear()

    def forget(self, item: Item) -> None:
        """It is not to be sent any more."""
        self._suspects.clear(item)
        if item == self.retried:
            self.retried = None
        if item.source is Source.STATE:
            self._states.pop(item.topic, None)
        elif item.source is Source.REPLY and item.number in self._replies:
            self._replies.remove(item.number)

    def pick(self, now_ns: int) -> Pick | None:
        """What to send now; whoever asks says what became of it by `sent`, `nothing` or `blocked`."""
        if not self._connected or now_ns < self._blocked_until_ns:
            return None
        if not self._proven and now_ns < self._proven_by_ns:
            return self._pick_state(now_ns, only=self._birth)
        self._proven = True
        suspect = self._suspects.first
        if isinstance(suspect, Item):
            return None if self._flights else Pick(suspect)
        return self._pick_state(now_ns) or self._pick_reply() or self._pick_entry(now_ns)

    def nothing(self, pick: Pick) -> None:
        """What was picked is not there."""
        item = pick.item
        if item.source is Source.ENTRY and not item.number:
            self._empty.add(item.keep)
        else:
            self.forget(item)

    def blocked(self, now_ns: int) -> None:
        """The connection takes nothing at the moment."""
        self._blocked_until_ns = now_ns + round(LOOK_AGAIN_S * 1e9)

    def sent(self, item: Item, token: int, now_ns: int) -> None:
        """It is on its way; an entry has its number now."""
        self._flights[token] = (item, now_ns)
        if item.source is Source.STATE and item.topic in self._states:
            state = self._states[item.topic]
            state.wanted, state.on_its_way = False, True
            state.due_ns = now_ns + round(STATE_EVERY_S * 1e9)
        elif item.source is Source.REPLY and item.number in self._replies:
            self._replies.remove(item.number)
        elif item.source is Source.ENTRY:
            self._bucket.take(now_ns)

    def acknowledged(self, token: int, now_ns: int, *, refused: bool) -> tuple[Item, Verdict] | None:
        """The broker answered; None for a token of an earlier connection."""
        flight = self._flights.pop(token, None)
        if flight is None:
            return None
        item = flight[0]
        self._suspects.clear(item)
        self._blocked_until_ns = 0
        if item.source is Source.ENTRY:
            return item, self._judge(item, now_ns, refused=refused)
        if item.source is Source.STATE:
            self._proven = self._proven or item.topic == self._birth
            if item.topic in self._states:
                self._states[item.topic].on_its_way = False
        return item, Verdict.GIVEN_UP if refused else Verdict.DELIVERED

    def wait_s(self, now_ns: int) -> float:
        """Seconds until `pick` may say something else without anything happening; infinite when never."""
        if not self._connected:
            return math.inf
        if now_ns < self._blocked_until_ns:
            return (self._blocked_until_ns - now_ns) / 1e9
        if self._proven and self._suspects.first is not None:
            return math.inf if self._flights else 0.0
        waits = [
            (state.due_ns - now_ns) / 1e9
            for topic, state in self._states.items()
            if state.wanted and not state.on_its_way and (self._proven or topic == self._birth)
        ]
        if not self._proven:
            waits.append((self._proven_by_ns - now_ns) / 1e9)
        elif self._room_for_entries():
            waits += [
                max(self._bucket.wait_s(now_ns), refusals.left_s(now_ns))
                for keep, refusals in self._refusals.items()
                if keep not in self._empty
            ]
        return max(0.0, min(waits, default=math.inf))

    def _judge(self, item: Item, now_ns: int, *, refused: bool) -> Verdict:
        retried, refusals = item == self.retried, self._refusals[item.keep]
        if retried:
            self.retried = None
        if not refused:
            refusals.accepted(item.number)
            self._finished[item.number] = None
            return Verdict.DELIVERED
        self._empty.discard(item.keep)
        if retried:  # the others are not held up for it
            return Verdict.GIVEN_UP
        return Verdict.GIVEN_UP if refusals.refused(item.number, now_ns) else Verdict.AGAIN

    def _pick_state(self, now_ns: int, only: str = "") -> Pick | None:
        for topic, state in self._states.items():
            due = state.wanted and not state.on_its_way and state.due_ns <= now_ns
            if due and only in {"", topic}:
                return Pick(Item(Source.STATE, topic))
        return None

    def _pick_reply(self) -> Pick | None:
        return Pick(Item(Source.REPLY, number=self._replies[0])) if self._replies else None

    def _pick_entry(self, now_ns: int) -> Pick | None:
        if not self._room_for_entries() or self._bucket.wait_s(now_ns) > 0:
            return None
        for keep in (Keep.ALWAYS, Keep.NEWEST):
            if keep not in self._empty and self._refusals[keep].left_s(now_ns) <= 0:
                newest = keep is Keep.NEWEST and self._newest
                self._newest = self._newest if keep is Keep.ALWAYS else not self._newest
                return Pick(Item(Source.ENTRY, keep=keep), newest)
        return None

    def _room_for_entries(self) -> bool:
        flying = sum(item.source is Source.ENTRY for item, _ in self._flights.values())
        return flying < self._window and flying + len(self._finished) < MAX_EXCLUDED
