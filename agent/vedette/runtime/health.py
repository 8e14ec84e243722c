"""What live frames say of a model: since a moment, over a sliding window, and beside another model.

The results thread feeds them, the supervisor notes deaths, the update's thread reads: each has its own lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.runtime.agreement import CONSTANT_AFTER, Variety, agree, digest_of, work_ms
from vedette.telemetry.sketch import Sketch
from vedette.update.ports import WindowStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.runtime.agreement import Digest
    from vedette.wire.messages import Result

SPANS = 10
# Answers after which a worker has allocated what it needs; what comes on top is growth.
SETTLED_FRAMES = 50
# Answers of one side that wait for the other side's; what is older has no partner.
MAX_WAITING_BYTES = 1 << 20


class _Tally:
    """Counts and latencies of answers; not safe for two threads."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.frames = 0
        self.failed = 0
        self.work = Sketch()
        self.variety = Variety()
        self.deaths = 0
        self.last_death = ""

    def add(self, result: Result, waited_ns: int = 0) -> None:
        self.frames += 1
        if result.failed:
            self.failed += 1
            return
        taken_ms = work_ms(result)
        if taken_ms is not None:
            self.work.record(max(0.0, taken_ms - waited_ns / 1e6))
        self.variety.add(result)

    def died(self, text: str) -> None:
        self.deaths += 1
        self.last_death = text


class ModelHealth:
    """One bundle since it was asked for. Answers count once `sha256` says whose they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tally = _Tally(clock.monotonic_ns())
        self._began = False
        self._given_up = False
        self.sha256: str | None = None
        # A scene that stands still gives equal answers from any model; only who was seen to vary is judged.
        self.scene_varied = False
        self._memory_bytes: Callable[[], int] = lambda: 0
        self._settled_bytes = 0

    def begin(self, *, scene_varied: bool = False, memory_bytes: Callable[[], int] | None = None) -> None:
        """The window begins: the model has been given its cameras.

        `memory_bytes` says what its worker has to itself now, 0 when nobody knows.
        """
        with self._lock:
            self._memory_bytes = memory_bytes or (lambda: 0)
            self._settled_bytes = 0
            self._began, self._tally.began_ns = True, self._clock.monotonic_ns()
            self.scene_varied = scene_varied

    def add(self, result: Result) -> None:
        """Take an accounted result in; other models' are passed over."""
        if result.model.sha256 == self.sha256:
            with self._lock:
                self._tally.add(result)

    def died(self, text: str) -> None:
        """Its worker ended unasked."""
        with self._lock:
            self._tally.died(text)

    def give_up(self) -> None:
        """Nobody tries it any more."""
        with self._lock:
            self._given_up = True

    @property
    def given_up(self) -> bool:
        """Nobody tries it any more."""
        return self._given_up

    @property
    def answered(self) -> int:
        """Frames with a good answer."""
        return self._tally.frames - self._tally.failed

    def stats(self) -> WindowStats:
        """The figures now."""
        with self._lock:
            return self._stats()

    def _stats(self) -> WindowStats:
        tally = self._tally
        return WindowStats(
            elapsed_s=(self._clock.monotonic_ns() - tally.began_ns) / 1e9 if self._began else 0.0,
            frames=tally.frames,
            failed=tally.failed,
            p95_ms=tally.work.quantile(0.95),
            worker_deaths=tally.deaths,
            last_death=tally.last_death,
            constant_answers=self.scene_varied and tally.variety.constant,
            varied=tally.variety.varied,
            given_up=self._given_up,
            grown_bytes=self._grown_bytes(),
        )

    def _grown_bytes(self) -> int:
        """What its worker holds beyond what it did when it had settled."""
        if self._tally.frames < SETTLED_FRAMES:
            return 0
        now_bytes = self._memory_bytes()
        if not self._settled_bytes:
            self._settled_bytes = now_bytes
        return max(0, now_bytes - self._settled_bytes)


class ShadowHealth(ModelHealth):
    """A candidate beside the model that serves, on the same frames."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._live: _Waiting = _Waiting()
        self._shadow: _Waiting = _Waiting()
        self._live_variety = Variety()
        self._shadowed = 0
        self._disagreed = 0

    def add(self, result: Result) -> None:
        """Take an answer of the serving model in; its failures have nothing to compare."""
        if result.failed:
            return
        with self._lock:
            self._live_variety.add(result)
            said = digest_of(result)
            other = self._shadow.pop(result)
            if other is None:
                self._live.put(result, said)
            else:
                self._compare(said, other)

    def add_shadow(self, result: Result, waited_ns: int) -> None:
        """Take what the candidate said in; `waited_ns` of its time it had no CPU."""
        if result.model.sha256 != self.sha256:
            return
        with self._lock:
            self._tally.add(result, waited_ns)
            if result.failed:
                return
            said = digest_of(result)
            other = self._live.pop(result)
            if other is None:
                self._shadow.put(result, said)
            else:
                self._compare(other, said)

    def _compare(self, live: Digest, shadow: Digest) -> None:
        self._shadowed += 1
        self._disagreed += not agree(live, shadow)

    def _stats(self) -> WindowStats:
        said = self._tally.variety
        silent = said.answers == 0 and self.answered >= CONSTANT_AFTER <= self._live_variety.answers
        return replace(
            super()._stats(),
            shadowed=self._shadowed,
            disagreed=self._disagreed,
            constant_answers=self._live_variety.varied and (said.constant or silent),
        )


class _Waiting:
    """Answers that wait for their partner, by camera and sequence number, oldest out first."""

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[str, int], Digest] = OrderedDict()
        self._bytes = 0

    def put(self, result: Result, said: Digest) -> None:
        self._digests[result.camera, result.seq] = said
        self._bytes += said.size_bytes
        while self._bytes > MAX_WAITING_BYTES:
            _, oldest = self._digests.popitem(last=False)
            self._bytes -= oldest.size_bytes

    def pop(self, result: Result) -> Digest | None:
        said = self._digests.pop((result.camera, result.seq), None)
        if said is not None:
            self._bytes -= said.size_bytes
        return said


class SlidingHealth:
    """The serving model over the last `window_s`, in SPANS parts that are forgotten one by one."""

    def __init__(self, clock: Clock, window_s: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._span_ns = round(window_s * 1e9 / SPANS)
        self._spans: deque[_Tally] = deque([_Tally(clock.monotonic_ns())], maxlen=SPANS + 1)
        self.sha256: str | None = None

    def add(self, result: Result) -> None:
        """Take an accounted result in; other models' are passed over."""
        if result.model.sha256 == self.sha256:
            with self._lock:
                self._now().add(result)

    def died(self, text: str) -> None:
        """Its worker ended unasked."""
        with self._lock:
            self._now().died(text)

    def _now(self) -> _Tally:
        """The open span; spans that are too old go."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._spans[-1].began_ns >= self._span_ns:
            self._spans.append(_Tally(now_ns))
        while now_ns - self._spans[0].began_ns >= (SPANS + 1) * self._span_ns:
            self._spans.popleft()
        return self._spans[-1]

    @property
    def varied(self) -> bool:
        """Whether its answers differed within some part of the window."""
        with self._lock:
            return any(span.variety.varied for span in self._spans)

    def stats(self) -> WindowStats:
        """The figures of the window before now."""
        with self._lock:
            self._now()
            spans = list(self._spans)
            return WindowStats(
                elapsed_s=(self._clock.monotonic_ns() - spans[0].began_ns) / 1e9,
                frames=sum(span.frames for span in spans),
                failed=sum(span.failed for span in spans),
                p95_ms=Sketch.merged(span.work for span in spans).quantile(0.95),
                worker_deaths=sum(span.deaths for span in spans),
                last_death=next((s.last_death for s in reversed(spans) if s.last_death), ""),
                varied=any(span.variety.varied for span in spans),
            )
