"""The results thread: takes answers from the workers, accounts for every frame, writes the sink.

It alone decides what became of a frame, from the sequence numbers it sees: a gap is frames that a newer one
superseded. When a worker dies, what it had sent is still in the socket and is read first; only then is the
frame that it had in hand declared lost.

Outcomes of the HTTP door's frames go back to the door, and not into the sink. What becomes of an escalation
is a line of its own, written when it is known; see `escalation_lines`.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET

from vedette.api.door_messages import DOOR
from vedette.engine.messages import Answered, Dropped, FromWorkerResults, Unasked
from vedette.errors import BadInputError
from vedette.frame.channel import Channel, PeerGoneError
from vedette.gate.reuse_rules import Use
from vedette.runtime.sinks import UndeliveredError
from vedette.telemetry.summary import ModelCounts
from vedette.wire.causes import DropCause, FailCause
from vedette.wire.messages import Failure, ModelRef, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.clock import Clock
    from vedette.frame.lifeline import HeldFrame
    from vedette.runtime.door_sink import DoorSink
    from vedette.runtime.escalation_ledger import Ending
    from vedette.runtime.escalation_lines import EscalationLines
    from vedette.runtime.health import ShadowHealth
    from vedette.runtime.plan import EscalationPlan
    from vedette.runtime.sinks import Sink
    from vedette.telemetry.ledger import Ledger
    from vedette.telemetry.meter import Meter
    from vedette.telemetry.window import WindowRecorder

POLL_S = 0.25
BATCH = 64
MAX_COMMANDS = 1024
# Models that the summary counts; a device sees a handful between two restarts.
MAX_MODELS = 64


class Watcher(Protocol):
    """Gets every result that was accounted for, on the results thread.

    An outlet also gets the lines that say what became of an escalation.
    """

    def add(self, result: Result, /) -> None:
        """Take it in, quickly."""
        ...


@dataclass
class ReuseCounts:
    """Answers of a camera that were given again, checks of them, and those that found another answer."""

    again: int = 0
    checks: int = 0
    wrong: int = 0

    def add(self, message: Answered) -> None:
        """One more."""
        self.again += message.use is Use.AGAIN
        self.checks += message.use is Use.CHECK
        self.wrong += message.wrong


@dataclass
class Seat:
    """What a dead worker had taken of one camera's ring."""

    camera: str
    taken: int


@dataclass
class Retired:
    """A worker that is gone: which frames it may have held, and why it went."""

    channel: Channel[FromWorkerResults]
    seats: list[Seat]
    cause: FailCause
    detail: str
    model: ModelRef
    task: str
    held: HeldFrame
    accounted: Callable[[], None] = field(default=lambda: None)


class ResultsThread(threading.Thread):
    """Owns the ledger, the meter and the sink while it runs."""

    def __init__(
        self,
        *,
        sink: Sink,
        ledger: Ledger,
        meter: Meter,
        clock: Clock,
        notify: Callable[[], None],
        door: DoorSink | None = None,
        window: WindowRecorder | None = None,
        escalations: EscalationLines | None = None,
    ) -> None:
        super().__init__(name="results", daemon=True)
        self.sink_error: UndeliveredError | None = None
        self.undelivered = 0
        self.crash: BaseException | None = None
        self._sink = sink
        self._ledger = ledger
        self._meter = meter
        self._clock = clock
        self._notify = notify
        self._door = door
        self._door_fd = -1
        self._window = window
        self._escalations = escalations
        self.last_answer_ns: dict[str, int] = {}
        self._accounted: dict[str, int] = {}
        # Health of models, which changes hands with them; and where lines go beside the sink, which does not.
        self.watchers: tuple[Watcher, ...] = ()
        self.outlets: tuple[Watcher, ...] = ()
        self.shadow: ShadowHealth | None = None
        self.models: dict[ModelRef, ModelCounts] = {}
        self.reuse: dict[str, ReuseCounts] = {}
        self._channels: dict[int, Channel[FromWorkerResults]] = {}
        self._poll = select.poll()
        self._commands: queue.Queue[Callable[[], None]] = queue.Queue(MAX_COMMANDS)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._finished = False
        self._turned_ns = clock.monotonic_ns()
        self._writing = False

    # Called from the supervisor ---------------------------------------------------------------------------

    def add_worker(self, channel: Channel[FromWorkerResults]) -> None:
        """Begin to read a worker's results."""
        self._command(lambda: self._add(channel))

    def retire_worker(self, retired: Retired) -> None:
        """Read what a dead worker left, then account for what it held; `accounted` is called afterwards."""
        self._command(lambda: self._retire(retired))

    def skip_to(self, camera: str, seq: int, cause: DropCause) -> None:
        """Account for all frames up to `seq` that had no outcome as dropped for `cause`."""
        self._command(lambda: self._drop(camera, seq, cause))

    def read_out(self, channel: Channel[FromWorkerResults], then: Callable[[], None]) -> None:
        """Account for everything a worker has sent so far; `then` is called on the results thread."""
        self._command(lambda: self._read_out(channel, then))

    def connect_door(self, channel: Channel[None], since_seq: int) -> None:
        """Send the door's outcomes over this channel from now on; see DoorSink.connect."""
        self._command(lambda: self._connect_door(channel, since_seq))

    def escalations_asked(self, *, on: bool) -> None:
        """Whether there is a process that asks the large model; without one, what is open ends."""
        self._command(lambda: self._asking(on=on))

    def escalations_by(self, plan: EscalationPlan) -> None:
        """Hold and judge by another plan from now on."""
        self._command(lambda: None if self._escalations is None else self._escalations.use(plan))

    def escalations_ended(self, lines: tuple[Result, ...]) -> None:
        """The asking process says how these ended."""
        self._command(lambda: self._concluded(lines))

    def age_ns(self, now_ns: int) -> int | None:
        """How long ago this thread looked up; None while it waits for whoever reads the results."""
        return None if self._writing else now_ns - self._turned_ns

    def accounted(self, camera: str) -> int:
        """Highest sequence number of the camera that has an outcome."""
        return self._accounted.get(camera, 0)

    def finish(self, timeout_s: float) -> bool:
        """Carry out what was asked so far, then end; False when the thread did not end in time."""
        self._command(self._end)
        self.join(timeout_s)
        if self.is_alive():
            return False
        os.close(self._wake)
        return True

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.put(command, timeout=5.0)
        os.eventfd_write(self._wake, 1)

    # The thread -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read and account until told to finish; an error here is our bug and ends the daemon."""
        try:
            while not self._finished:
                self._turned_ns = self._clock.monotonic_ns()
                for fd, _ in self._poll.poll(self._pause_s() * 1000):
                    if fd == self._wake:
                        self._obey()
                    elif fd in self._channels:
                        self._drain(self._channels[fd], BATCH)
                if self._door is not None:
                    self._serve_door(self._door)
                if self._escalations is not None:
                    self._endings(self._escalations.due())
        except BaseException as error:  # noqa: BLE001 - reported by the supervisor, which ends the process
            self.crash = error
        finally:
            self._close()
            self._notify()

    def _close(self) -> None:
        self._sink.close()
        if self._door is not None:
            self._door.close()
        for channel in self._channels.values():
            channel.close()

    def _obey(self) -> None:
        os.eventfd_read(self._wake)
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _serve_door(self, door: DoorSink) -> None:
        """What it did not take before, and what it may show; wake up when it takes more."""
        door.flush()
        door.show()
        if door.blocked_fd != self._door_fd:
            if self._door_fd >= 0:
                self._poll.unregister(self._door_fd)
            self._door_fd = door.blocked_fd
            if self._door_fd >= 0:
                self._poll.register(self._door_fd, select.POLLOUT)

    def _connect_door(self, channel: Channel[None], since_seq: int) -> None:
        if self._door is None:
            channel.close()
        else:
            self._door.connect(channel, since_seq)

    def _pause_s(self) -> float:
        return POLL_S if self._escalations is None else self._escalations.wait_s(POLL_S)

    def _asking(self, *, on: bool) -> None:
        if self._escalations is not None:
            self._drain_all()
            self._endings(self._escalations.asking(on=on))

    def _concluded(self, lines: tuple[Result, ...]) -> None:
        """A frame's own answer was sent before the frame was handed over, so it is here to be read first."""
        if self._escalations is not None:
            self._drain_all()
            self._endings(self._escalations.concluded(lines))

    def _endings(self, endings: Sequence[Ending]) -> None:
        """Write what became of escalations."""
        if not endings:
            return
        written = self._write([ending.line for ending in endings])
        for index, ending in enumerate(endings):
            self._show(ending.line)
            self._time(ending.line)
            if ending.settles:
                self._settle(ending.line.camera, delivered=index < written)

    def _show(self, result: Result, *, tensor: bool = False) -> None:
        """A line that was written, to those who look beside the sink."""
        for outlet in () if tensor else self.outlets:
            outlet.add(result)
        if self._door is not None:
            self._door.add(result)

    def _time(self, line: Result) -> None:
        outcome = line.escalation
        if self._window is not None and outcome is not None and outcome.outcome in {"answered", "agreed"}:
            took_ms = outcome.took_ms or 0.0
            self._window.record_stage(line.camera, line.model, "escalation", took_ms)

    def _settle(self, camera: str, *, delivered: bool) -> None:
        if delivered:
            self._ledger.ok(camera)
        else:
            self._ledger.failed(camera, FailCause.UNDELIVERED)

    def _drain_all(self) -> None:
        for channel in list(self._channels.values()):
            self._drain(channel, None)

    def _add(self, channel: Channel[FromWorkerResults]) -> None:
        self._channels[channel.fileno()] = channel
        self._poll.register(channel.fileno(), select.POLLIN)

    def _end(self) -> None:
        self._drain_all()
        if self._escalations is not None:
            self._endings(self._escalations.asking(on=False))
        self._finished = True

    def _read_out(self, channel: Channel[FromWorkerResults], then: Callable[[], None]) -> None:
        self._drain(channel, None)
        then()
        self._notify()

    def _retire(self, retired: Retired) -> None:
        self._drain(retired.channel, None)
        self._forget(retired.channel)
        now_ns = self._clock.monotonic_ns()
        for seat in retired.seats:
            if seat.taken > self.accounted(seat.camera):
                known = retired.held.seq == seat.taken  # else it died between taking and noting it
                result = Result(
                    1,
                    seat.camera,
                    seat.taken,
                    retired.held.captured_ns if known else now_ns,
                    retired.model,
                    retired.task,
                    (retired.held.file if known else "") or UNSET,
                    failed=Failure(retired.cause.value, retired.detail),
                )
                self._account([Answered(result, now_ns)])
        retired.channel.close()
        retired.accounted()
        self._notify()

    def _forget(self, channel: Channel[FromWorkerResults]) -> None:
        fd = channel.fileno()
        if self._channels.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _drain(self, channel: Channel[FromWorkerResults], most: int | None) -> None:
        """Read up to `most` messages (None: all there are) and account for them in one go."""
        batch: list[FromWorkerResults] = []
        gone = False
        while most is None or len(batch) < most:
            try:
                received = channel.receive()
            except PeerGoneError:
                gone = True
                break
            except BadInputError:
                continue
            if received is None:
                break
            batch.append(received[0])
            if most is None and len(batch) >= BATCH:
                self._account(batch)
                batch = []
        self._account(batch)
        if gone:
            self._forget(channel)

    def _account(self, batch: list[FromWorkerResults]) -> None:
        if not batch:
            return
        answers = [message for message in batch if isinstance(message, Answered) and not message.shadow]
        delivered = iter(self._deliver(answers))
        delivered_ns = self._clock.monotonic_ns()
        for message in batch:
            if isinstance(message, Answered):
                if not message.shadow:
                    deliver_ns = delivered_ns - message.answered_ns
                    self._account_answer(message, deliver_ns, delivered=next(delivered))
                elif self.shadow is not None:
                    self.shadow.add_shadow(message.result, message.waited_ns)
            elif isinstance(message, Unasked):
                if self._escalations is not None:
                    self._endings(self._escalations.unasked(message))
            elif isinstance(message, Dropped):
                self._drop(message.camera, message.seq - 1, DropCause.SUPERSEDED)
                self._drop(message.camera, message.seq, message.cause)

    def _deliver(self, answers: list[Answered]) -> list[bool]:
        """Hand each result to whoever waits for it; whether it reached them."""
        door = self._door
        if door is None and self._escalations is None:
            written = self._write([answer.result for answer in answers])
            return [True] * written + [False] * (len(answers) - written)
        asked = {
            answer.result.seq: answer.told or door.deliver(answer.result)
            for answer in answers
            if door is not None and answer.result.camera == DOOR
        }
        held = [self._holds(answer) for answer in answers]
        lines = [
            answer.result
            for answer, waits in zip(answers, held, strict=True)
            if answer.result.camera != DOOR and not waits
        ]
        written = self._write(lines)
        reached = iter([True] * written + [False] * (len(lines) - written))
        return [
            waits or (asked[a.result.seq] if a.result.camera == DOOR else next(reached))
            for a, waits in zip(answers, held, strict=True)
        ]

    def _holds(self, answer: Answered) -> bool:
        return self._escalations is not None and self._escalations.holds(answer)

    def _write(self, results: list[Result]) -> int:
        """Write the results; how many of them, from the first on, reached the sink."""
        if not results:
            return 0
        delivered = 0
        if self.sink_error is None:
            self._writing = True
            try:
                self._sink.write(results)
                delivered = len(results)
            except UndeliveredError as error:
                self.sink_error, delivered = error, error.delivered
                self._notify()
            finally:
                self._turned_ns, self._writing = self._clock.monotonic_ns(), False
        self.undelivered += len(results) - delivered
        return delivered

    def _account_answer(self, message: Answered, deliver_ns: int, *, delivered: bool) -> None:
        result = message.result
        self._drop(result.camera, result.seq - 1, DropCause.SUPERSEDED)
        self._accounted[result.camera] = result.seq
        held = self._holds(message)
        self._note_reuse(message)
        again = message.use is Use.AGAIN
        if (
            not message.tensor and not again
        ):  # neither what somebody made up nor a repetition measures a model
            for watcher in self.watchers:
                watcher.add(result)
        if not held:
            self._show(result, tensor=message.tensor)
        self._count(result)
        if isinstance(result.failed, Failure):
            self._ledger.failed(result.camera, FailCause(result.failed.cause))
            return
        self.last_answer_ns[result.camera] = self._clock.monotonic_ns()
        if not held:  # a held one is settled once its line is written
            self._settle(result.camera, delivered=delivered)
        if self._escalations is not None:
            self._endings(self._escalations.answered(message))
        if not delivered or again:
            return
        if result.latency_ms:
            self._meter.record(result.camera, result.latency_ms, deliver_ns / 1e6)
            if self._window is not None:
                self._window.record(result.camera, result.model, result.latency_ms, deliver_ns / 1e6)

    def _note_reuse(self, message: Answered) -> None:
        if message.use is not Use.ANEW:
            self.reuse.setdefault(message.result.camera, ReuseCounts()).add(message)

    def _count(self, result: Result) -> None:
        counts = self.models.get(result.model)
        if counts is None:
            if len(self.models) >= MAX_MODELS:
                return
            counts = self.models[result.model] = ModelCounts(result.model)
        counts.failed += bool(result.failed)
        counts.ok += not result.failed

    def _drop(self, camera: str, seq: int, cause: DropCause) -> None:
        """All frames up to `seq` that had no outcome were dropped for `cause`."""
        first_seq = self.accounted(camera) + 1
        if seq < first_seq:
            return
        self._ledger.dropped(camera, cause, seq - first_seq + 1)
        self._accounted[camera] = seq
        if self._door is not None and camera == DOOR:
            self._door.dropped(first_seq, seq, cause)
