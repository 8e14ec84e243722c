"""Which blocks of a file to ask for, and when; what to make of those that come. Pure.

The receiver drives. A timer is armed for each block before it is asked for, so that nothing can get lost
without being missed; what comes twice, late or unasked is dropped and causes nothing. A block is asked for
again only when its timer ran out, or when a server said that it will not come.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import ChangedError, NotFoundError, UnavailableError
from vedette.link.block_pace import BlockPace
from vedette.wire.blocks import (
    MAX_WINDOW,
    STATUS_BAD_REQUEST,
    STATUS_BUSY,
    STATUS_CHANGED,
    STATUS_DATA,
    STATUS_NOT_FOUND,
    BlockRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.wire.blocks import Block

MAX_ASKS = 8  # of one block
# What a busy server may ask for: less would be a flood, more would be forgotten.
MIN_BUSY_NS, MAX_BUSY_NS = 100_000_000, 30_000_000_000
_REMEMBERED_REQUESTS = 4 * MAX_WINDOW
_FIRST_RTO_NS = 1_000_000_000  # RFC 6298
_SLOW_BYTES_PER_S = 100_000  # a link that brings less will be asked twice at the beginning
_SERVERS_CURE = "check what the block servers say: vedette-fleet serve-blocks"


@dataclass
class BlockFigures:
    """Counts of blocks: asked for, asked for again, and what came that was of no use."""

    asked: int = 0
    asked_again: int = 0
    asked_again_bytes: int = 0
    duplicates: int = 0
    unasked: int = 0
    damaged: int = 0
    busy: int = 0


@dataclass
class _Asked:
    """A block that has not come; `overdue` when it is to be asked for again."""

    request: int
    due_ns: int
    asks: int
    overdue: bool = False


class BlockWindow:
    """Brings in bytes [start, end) of one file; `up_to` when the file may well end before `end`.

    `draw` gives a random number in [0, 1). At most `buffer_bytes` of blocks are under way or wait for one
    before them. Of a file that nothing came of yet, `absences` answers must say that it is not there.
    """

    def __init__(
        self,
        path: str,
        *,
        xfer: str,
        block_bytes: int,
        start: int,
        end: int,
        draw: Callable[[], float],
        figures: BlockFigures,
        up_to: bool = False,
        absences: int = 1,
        buffer_bytes: int = 2 << 20,
    ) -> None:
        self._path = path
        self._xfer = xfer
        self._block_bytes = block_bytes
        self._start = start
        self._end = end
        self._draw = draw
        self._figures = figures
        self._up_to = up_to
        self._absences = absences
        self._most = max(1, min(MAX_WINDOW, buffer_bytes // block_bytes))
        first_rto_ns = _FIRST_RTO_NS + round(2 * block_bytes / _SLOW_BYTES_PER_S * 1e9)
        self._pace = BlockPace(first_rto_ns=first_rto_ns, max_window=self._most)
        self._total_bytes: int | None = None
        self._tag = 0
        self._first = start // block_bytes  # the first that was not given out yet
        self._next = self._first  # the first that was never asked for
        # While the size is not known, only the first block certainly exists.
        self._last = self._first + 1 if up_to else -(-end // block_bytes)
        self._asked: dict[int, _Asked] = {}
        self._waiting: dict[int, memoryview] = {}
        self._sent: OrderedDict[int, int] = OrderedDict()  # request -> when
        self._request = 0
        self._absent = 0
        self._said_absent = False
        self._paused_until_ns = 0

    @property
    def complete(self) -> bool:
        """Whether all was given out."""
        return self._first >= self._last and (self._total_bytes is not None or not self._up_to)

    @property
    def paused_until_ns(self) -> int:
        """Nothing is asked for before; servers said that they are busy."""
        return self._paused_until_ns

    @property
    def block_bytes(self) -> int:
        """How large a block is."""
        return self._block_bytes

    def request(self, now_ns: int) -> BlockRequest | None:
        """What to ask for now; the timers of its blocks run already.

        Raises:
            UnavailableError: A block did not come, however often it was asked for.
            NotFoundError: The last word on a block was that the file is not there.
        """
        self._look_at_timers(now_ns)
        if now_ns < self._paused_until_ns:
            return None
        blocks = self._wanted()
        if not blocks:
            return None
        self._request += 1
        for block in blocks:
            self._arm(block, now_ns)
        self._sent[self._request] = now_ns
        while len(self._sent) > _REMEMBERED_REQUESTS:
            self._sent.popitem(last=False)
        return BlockRequest(
            xfer=self._xfer,
            request=self._request,
            path=self._path,
            block_bytes=self._block_bytes,
            blocks=tuple(blocks),
            of_bytes=self._total_bytes or 0,
            of_tag=self._tag,
        )

    def next_due_ns(self) -> int | None:
        """When `request` should be called again if nothing comes until then; None when all is complete."""
        due_ns = min((asked.due_ns for asked in self._asked.values() if not asked.overdue), default=None)
        if self._overdue() or self._fresh():
            # What is held back by the pause, rather than by the window, waits for its end.
            held_ns = self._paused_until_ns
            return held_ns if due_ns is None or self._room() > 0 else due_ns
        return due_ns

    def forget_flight(self, now_ns: int) -> None:
        """The connection is another one: what is under way will not come, and nobody is to blame."""
        for asked in self._asked.values():
            if not asked.overdue:
                asked.overdue, asked.due_ns = True, now_ns
                asked.asks -= 1

    def take(self, block: Block, arrived_ns: int) -> bool:
        """Make something of an answer; true when it was a block that is new.

        Raises:
            NotFoundError: The file is not there.
            ChangedError: It is not the file that earlier blocks were of.
            UnavailableError: It is shorter than `end`, or the server does not understand us.
        """
        if block.xfer != self._xfer or block.request not in self._sent:
            self._figures.unasked += 1
            return False
        if block.status != STATUS_DATA:
            self._refused(block, arrived_ns)
            return False
        self._learn(block)
        return self._keep(block, arrived_ns)

    def pop(self) -> memoryview | None:
        """The next piece in order, cut to [start, end); None while it has not come."""
        data = self._waiting.pop(self._first, None)
        if data is None:
            return None
        begin = self._first * self._block_bytes
        self._first += 1
        return data[max(0, self._start - begin) : max(0, self._end - begin)]

    def _look_at_timers(self, now_ns: int) -> None:
        late = [asked for asked in self._asked.values() if not asked.overdue and asked.due_ns <= now_ns]
        for asked in late:
            asked.overdue = True
        if late:
            self._pace.timed_out(now_ns)

    def _wanted(self) -> list[int]:
        """Overdue blocks first, the first one first; then new ones, as many as may be under way."""
        room = self._room()
        if room <= 0:
            return []
        again = self._overdue()[:room]
        for number in again:
            if self._asked[number].asks >= MAX_ASKS:
                raise self._exhausted(number)
        return [*again, *self._fresh()[: room - len(again)]]

    def _room(self) -> int:
        under_way = sum(not asked.overdue for asked in self._asked.values())
        return min(self._pace.window, self._most) - under_way

    def _overdue(self) -> list[int]:
        return sorted(number for number, asked in self._asked.items() if asked.overdue)

    def _fresh(self) -> range:
        """Blocks never asked for that there would be a place for, while those before them are missing."""
        return range(self._next, min(self._last, self._first + self._most))

    def _arm(self, number: int, now_ns: int) -> None:
        rto_ns = self._pace.rto_ns
        due_ns = now_ns + rto_ns + round(self._draw() * rto_ns / 4)
        asked = self._asked.get(number)
        self._figures.asked += 1
        if asked is None:
            self._asked[number] = _Asked(self._request, due_ns, 1)
            self._next = max(self._next, number + 1)
            return
        self._figures.asked_again += 1
        self._figures.asked_again_bytes += self._length(number)
        asked.request, asked.due_ns, asked.overdue = self._request, due_ns, False
        asked.asks += 1

    def _length(self, number: int) -> int:
        """How many bytes a block has, as far as that is known."""
        if self._total_bytes is None:
            return self._block_bytes
        return max(0, min(self._block_bytes, self._total_bytes - number * self._block_bytes))

    def _refused(self, block: Block, arrived_ns: int) -> None:
        if block.status == STATUS_CHANGED:
            raise self._changed()
        if block.status == STATUS_BAD_REQUEST:
            raise UnavailableError(
                f"{self._path} over MQTT: the block server does not understand this agent",
                cure="bring the block servers and this agent to versions that fit",
            )
        if block.status not in {STATUS_BUSY, STATUS_NOT_FOUND}:
            self._figures.damaged += 1
            return
        refused = [
            asked for asked in self._asked.values() if asked.request == block.request and not asked.overdue
        ]
        if not refused:
            self._figures.duplicates += 1
            return
        for asked in refused:
            asked.overdue, asked.due_ns = True, arrived_ns
        if block.status == STATUS_BUSY:
            self._pause(refused, block.offset, arrived_ns)
        else:
            self._note_absence()

    def _pause(self, refused: list[_Asked], retry_after_ms: int, arrived_ns: int) -> None:
        self._figures.busy += 1
        for asked in refused:
            asked.asks -= 1
        self._pace.shrink(arrived_ns)
        pause_ns = min(max(MIN_BUSY_NS, retry_after_ms * 1_000_000), MAX_BUSY_NS)
        # No device comes back at the same moment as another one.
        until_ns = arrived_ns + round(pause_ns * (1 + self._draw()))
        self._paused_until_ns = max(self._paused_until_ns, until_ns)

    def _note_absence(self) -> None:
        """One server of several may not have the file yet, so what has begun is asked for again."""
        self._absent += 1
        self._said_absent = True
        if self._total_bytes is None and self._absent >= self._absences:
            raise self._not_found()

    def _learn(self, block: Block) -> None:
        """Hold the file's size and tag against what earlier blocks told."""
        if self._total_bytes is None:
            self._total_bytes, self._tag = block.total_bytes, block.tag
            if self._up_to:
                self._last = -(-min(self._end, block.total_bytes) // self._block_bytes)
        elif (block.total_bytes, block.tag) != (self._total_bytes, self._tag):
            raise self._changed()
        if not self._up_to and block.total_bytes < self._end:
            raise UnavailableError(
                f"{self._path} over MQTT: ends at byte {block.total_bytes} of {self._end} there",
                cure="publish it again; what is served must be what was signed",
            )

    def _keep(self, block: Block, arrived_ns: int) -> bool:
        number, rest = divmod(block.offset, self._block_bytes)
        if rest or len(block.data) != self._length(number):
            self._figures.damaged += 1
            return False
        if number < self._first or number in self._waiting:
            self._figures.duplicates += 1
            return False
        under_way = sum(not asked.overdue for asked in self._asked.values())
        if self._asked.pop(number, None) is None:
            self._figures.unasked += 1
            return False
        self._said_absent = False
        # A block names the request that it answers, so also one that came too late is a measurement.
        self._pace.measured(arrived_ns - self._sent[block.request], under_way)
        if number < self._last:
            self._waiting[number] = block.data
        return True

    def _exhausted(self, number: int) -> UnavailableError:
        if self._said_absent:
            return self._not_found()
        return UnavailableError(
            f"{self._path} over MQTT: block {number} was asked for {MAX_ASKS} times and did not come whole",
            cure=f"{_SERVERS_CURE}, and whether the broker lets packets of {self._block_bytes} bytes pass",
        )

    def _not_found(self) -> NotFoundError:
        return NotFoundError(
            f"{self._path} over MQTT: the block servers do not have it",
            cure="check that everything was published, and that all of them serve the same repository",
        )

    def _changed(self) -> ChangedError:
        return ChangedError(
            f"{self._path} over MQTT: the file changed while it was fetched",
            cure="it is fetched from the beginning; all block servers must serve the same repository",
        )
