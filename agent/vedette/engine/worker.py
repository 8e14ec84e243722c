"""The engine worker process: one model generation, serving frames from shared memory.

Started by `worker_start`. It never touches the network, and never holds a frame that it cannot account for:
what it takes ends in exactly one message.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from vedette.clock import SystemClock
from vedette.engine.attachment import Attachment
from vedette.engine.messages import (
    Answered,
    Answers,
    AnswerTo,
    Attach,
    CasesTo,
    Detach,
    Detached,
    Dropped,
    Fatal,
    FromWorkerResults,
    Progress,
    SetGate,
    ToWorker,
    Unasked,
    WorkerSpec,
)
from vedette.engine.model import load_model
from vedette.engine.priority import cpu_wait_ns
from vedette.engine.scheduler import Candidate, Scheduler
from vedette.engine.worker_gate import WorkerGate, close_all, words_of
from vedette.errors import FrameError, OutOfMemoryError, VedetteError
from vedette.frame.channel import MAX_MESSAGE_BYTES, Channel, PeerGoneError
from vedette.frame.lifeline import Pulse, tie_to_parent
from vedette.frame.linger import Linger
from vedette.frame.reader import RingReader
from vedette.frame.shadow_reader import ShadowReader
from vedette.gate.reuse_rules import Use
from vedette.wire.bundle import Task
from vedette.wire.causes import DropCause, FailCause
from vedette.wire.messages import Escalation, Failure, LatencyMs, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.engine.model import Model
    from vedette.engine.priority import CpuPriority
    from vedette.frame.reader import Lease
    from vedette.gate.setting import Verdict

IDLE_BEAT_S = 0.5
# How often a shadow looks for frames.
SHADOW_LOOK_S = 0.008
CONTROL_EVERY_NS = 5_000_000
SEND_WAIT_S = 0.2
# A run that fails this often in a row is a sick context: a fresh process is the cure.
FAILURES_BEFORE_EXIT = 10
EXIT_SICK = 75


class Worker:
    """The serving loop around one model."""

    def __init__(
        self,
        model: Model,
        control: Channel[ToWorker],
        results: Channel[None],
        pulse: Pulse,
        priority: CpuPriority | None = None,
    ) -> None:
        self._model = model
        self._control = control
        self._results = results
        self._pulse = pulse
        self._priority = priority
        self._gate = WorkerGate(model, SystemClock())
        self._cameras: dict[str, Attachment] = {}
        self._turns: list[Candidate] = []
        self._readers_along: list[ShadowReader] = []
        self._scheduler = Scheduler()
        self._encoder = msgspec.msgpack.Encoder()
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)
        self._looked_at_control_ns = 0
        self._linger = Linger(usable_cpus=len(os.sched_getaffinity(0)))
        self._stopping = False
        self._failures_in_a_row = 0
        self._last_failure = ""

    def serve(self) -> int:
        """Serve until told to stop or the daemon is gone.

        Returns:
            The exit status: 0, or EXIT_SICK when only a new process can help.
        """
        while not self._stopping:
            served = self._serve_one()
            if self._failures_in_a_row >= FAILURES_BEFORE_EXIT:
                sys.stderr.write(
                    f"{FAILURES_BEFORE_EXIT} frames in a row failed, the last for {self._last_failure}; "
                    "a new process may help\n"
                )
                return EXIT_SICK
            now_ns = time.monotonic_ns()
            if not served:
                self._sleep(now_ns)
            elif now_ns - self._looked_at_control_ns > CONTROL_EVERY_NS:
                self._look(0)
        return 0

    def _serve_one(self) -> bool:
        """Serve the camera whose turn it is; False when nobody has a frame."""
        now_ns = time.monotonic_ns()
        if self._readers_along and self._hold_back(now_ns):
            return False
        for camera in self._cameras.values():
            captured_ns = camera.reader.peek_captured_ns()
            camera.turn.pending_age_ns = None if captured_ns is None else max(0, now_ns - captured_ns)
        choice = self._scheduler.choose(now_ns, self._turns)
        for key in choice.stale:
            self._drop_stale(self._cameras[key])
        if choice.key is not None:
            camera = self._cameras[choice.key]
            camera.turn.last_served_ns = now_ns
            self._frame(camera)
        return choice.key is not None or bool(choice.stale)

    def _hold_back(self, now_ns: int) -> bool:
        """Whether a shadow would be in the way of the live worker just now; see ShadowReader."""
        readers = self._readers_along
        return any(r.fresh(now_ns) for r in readers) and not any(r.overdue for r in readers)

    def _sleep(self, now_ns: int) -> None:
        """Wait for a doorbell or a message, at most until the next sign of life is due."""
        self._pulse.beat(now_ns)
        if self._linger.budget_ns and self._frame_comes_by(now_ns + self._linger.budget_ns):
            return
        idle = all(camera.reader.about_to_sleep() for camera in self._cameras.values())
        asleep_ns = time.monotonic_ns()
        self._look((SHADOW_LOOK_S if self._readers_along else IDLE_BEAT_S) if idle else 0)
        if self._pending():
            self._linger.slept(time.monotonic_ns() - asleep_ns)

    def _frame_comes_by(self, deadline_ns: int) -> bool:
        """Look at the rings without sleeping; only when that has paid lately."""
        found = False
        while not found and time.monotonic_ns() < deadline_ns:
            found = self._pending()
        self._linger.looked(found=found)
        return found

    def _pending(self) -> bool:
        """A frame waits at a live seat; a shadow looks by the clock."""
        readers = (camera.reader for camera in self._cameras.values())
        return any(reader.pending for reader in readers if isinstance(reader, RingReader))

    def _look(self, timeout_s: float) -> None:
        """Sleep on doorbells and the control channel; obey what the channel brought."""
        self._looked_at_control_ns = time.monotonic_ns()
        for fd, _ in self._epoll.poll(timeout_s):
            if fd == self._control.fileno():
                self._obey()

    def _obey(self) -> None:
        """Everything that was said: all cameras change hands in one go."""
        try:
            while (received := self._control.receive()) is not None:
                self._carry_out(*received)
        except PeerGoneError:
            self._stopping = True

    def _carry_out(self, message: ToWorker, fds: list[int]) -> None:
        if isinstance(message, Attach):
            if self._priority is not None:
                (self._priority.yield_to_all if message.shadow else self._priority.restore)()
            self._detach(message.camera)
            camera = self._cameras[message.camera] = Attachment(message, fds)
            self._cameras_changed()
            if isinstance(camera.reader, RingReader):
                self._epoll.register(camera.reader.doorbell, select.EPOLLIN | select.EPOLLET)
        elif isinstance(message, Detach):
            taken = self._detach(message.camera)
            self._control.send(Detached(message.camera, taken))
        elif isinstance(message, AnswerTo):
            self._answer_to(message, fds)
        elif isinstance(message, SetGate):
            self._gate.use(message.setting)
        elif isinstance(message, CasesTo):
            self._gate.cases_to(fds)
        else:
            self._stopping = True

    def _answer_to(self, message: AnswerTo, fds: list[int]) -> None:
        camera = self._cameras.get(message.camera)
        if camera is not None and len(fds) == 1:
            camera.answer_to(fds[0], message.since_seq)
            return
        close_all(fds)

    def _detach(self, name: str) -> int:
        """Forget a camera; the sequence number of the frame taken last, 0 when it is not served here."""
        camera = self._cameras.pop(name, None)
        if camera is None:
            return 0
        taken = camera.reader.cursor
        self._cameras_changed()
        if isinstance(camera.reader, RingReader):
            self._epoll.unregister(camera.reader.doorbell)
        camera.close()
        return taken

    def _cameras_changed(self) -> None:
        cameras = self._cameras.values()
        self._turns = [camera.turn for camera in cameras]
        self._readers_along = [camera.reader for camera in cameras if isinstance(camera.reader, ShadowReader)]

    def _drop_stale(self, camera: Attachment) -> None:
        lease = self._take(camera)
        if lease is not None:
            camera.reader.release()
            if not camera.shadow:
                self._send(Dropped(camera.camera, lease.seq, DropCause.STALE))

    def _take(self, camera: Attachment) -> Lease | None:
        try:
            return camera.reader.take()
        except FrameError as error:
            taken_ns = time.monotonic_ns()
            self._fail(camera, camera.reader.cursor, taken_ns, FailCause.DECODE, str(error))
            return None

    def _frame(self, camera: Attachment) -> None:
        """Take, infer, answer: the hot path."""
        taken_ns = time.monotonic_ns()
        self._pulse.busy(taken_ns)
        lease = self._take(camera)
        if lease is None or (camera.shadow and lease.frame_format.tensor):
            return  # a tensor made for the model that serves says nothing of another
        if camera.shadow:  # copying is the shadow's affair, and so is its waiting for a CPU
            taken_ns, waited_ns = time.monotonic_ns(), cpu_wait_ns()
        else:
            waited_ns = 0
            taken_ns = max(taken_ns, lease.published_ns)  # a newer frame may have come in between
        self._pulse.hold(lease.seq, lease.captured_ns, lease.file)
        model = self._model
        try:
            if self._answered_before(camera, lease, taken_ns):
                return
            placement = camera.prepare(lease, model)
            held = placement is not None and not camera.shadow and self._gate.judges(camera.camera)
            if not held:
                camera.reader.release()
            prepared_ns = time.monotonic_ns()
            outputs = model.engine.run()
            inferred_ns = time.monotonic_ns()
            answer = (
                model.raw_answer(outputs)
                if placement is None
                else model.postprocessor.answer(outputs, placement)
            )
            judged = None
            if held and placement is not None:
                judged = self._gate.judge(camera.camera, answer, outputs, placement)
        except (VedetteError, MemoryError) as error:
            camera.reader.release()
            self._fail_frame(camera, lease, _fail_cause(error), str(error))
            return
        self._failures_in_a_row = 0
        answered_ns = time.monotonic_ns()
        result = Result(
            1,
            camera.camera,
            lease.seq,
            lease.captured_ns,
            model.ref,
            model.task if placement is not None else Task.RAW.value,
            lease.file or UNSET,
            answer.top,
            answer.detections,
            answer.tensors,
            answer.confidence,
            escalation=None if judged is None else _declined(judged.verdict),
            latency_ms=LatencyMs(
                _ms(lease.published_ns - lease.captured_ns),
                _ms(taken_ns - lease.published_ns),
                _ms(prepared_ns - taken_ns),
                _ms(inferred_ns - prepared_ns),
                _ms(answered_ns - inferred_ns),
                _ms(answered_ns - lease.captured_ns),
            ),
        )
        told = camera.answers is not None and camera.tell(lease.seq, self._encoder.encode(Answers((result,))))
        if told:  # whoever asked may wait for this very CPU; the daemon's turn comes after it
            os.sched_yield()
        waited_ns = cpu_wait_ns() - waited_ns if camera.shadow else 0
        asked = None if judged is None else judged.verdict.reason
        unsure = None if judged is None else judged.verdict.unsure
        use, wrong = camera.noted(lease, answer, words_of(answer), answered_ns)
        tensor = placement is None
        self._send(
            Answered(result, answered_ns, camera.shadow, waited_ns, tensor, told, asked, use, wrong, unsure)
        )
        if judged is not None:  # the answer went first: copying a frame takes as long as a small model
            if asked is not None and not self._gate.offer(lease, result, judged):
                self._send(Unasked(camera.camera, lease.seq))
            camera.reader.release()

    def _answered_before(self, camera: Attachment, lease: Lease, taken_ns: int) -> bool:
        """Give an earlier answer again, where the camera may and nothing has changed.

        Raises:
            FrameError: The frame cannot be used.
        """
        if camera.still is None or lease.frame_format.tensor:
            return False
        earlier = camera.still.look(camera.picture(lease), time.monotonic_ns())
        if earlier is None:
            return False
        camera.reader.release()
        answered_ns = time.monotonic_ns()
        answer, model = earlier.answer, self._model
        result = Result(
            1,
            camera.camera,
            lease.seq,
            lease.captured_ns,
            model.ref,
            model.task,
            lease.file or UNSET,
            answer.top,
            answer.detections,
            answer.tensors,
            answer.confidence,
            latency_ms=LatencyMs(
                _ms(lease.published_ns - lease.captured_ns),
                _ms(taken_ns - lease.published_ns),
                _ms(answered_ns - taken_ns),
                0.0,
                0.0,
                _ms(answered_ns - lease.captured_ns),
            ),
            reused_ms=_ms(lease.captured_ns - earlier.captured_ns),
        )
        self._send(Answered(result, answered_ns, use=Use.AGAIN))
        return True

    def _fail_frame(self, camera: Attachment, lease: Lease, cause: FailCause, detail: str) -> None:
        tensor = lease.frame_format.tensor
        if camera.still is not None:
            camera.still.failed()
        self._fail(camera, lease.seq, lease.captured_ns, cause, detail, lease.file, tensor=tensor)

    def _fail(  # noqa: PLR0917 - the frame, then what became of it
        self,
        camera: Attachment,
        seq: int,
        captured_ns: int,
        cause: FailCause,
        detail: str,
        file: str = "",
        *,
        tensor: bool = False,
    ) -> None:
        if cause in {FailCause.INFER, FailCause.OUT_OF_MEMORY}:
            self._failures_in_a_row += 1
            self._last_failure = cause.value.replace("_", " ")
        failure = Failure(cause.value, detail[:500])
        ref, task = self._model.ref, self._model.task
        result = Result(1, camera.camera, seq, captured_ns, ref, task, file or UNSET, failed=failure)
        self._send(Answered(result, time.monotonic_ns(), camera.shadow, tensor=tensor))

    def _send(self, message: Answered | Dropped | Unasked) -> None:
        """Hand a message to the daemon; while its buffer is full no further frame is taken."""
        payload = self._encoder.encode(message)
        if len(payload) > MAX_MESSAGE_BYTES and isinstance(message, Answered):
            payload = self._encoder.encode(_too_large(message, len(payload)))
        while not self._results.send_bytes(payload):
            self._pulse.beat(time.monotonic_ns())
            wait = select.poll()
            wait.register(self._results.fileno(), select.POLLOUT)
            wait.poll(SEND_WAIT_S * 1000)


def _declined(verdict: Verdict) -> Escalation | None:
    """What the result says of an unsure answer that nobody is asked about."""
    return None if verdict.declined is None else Escalation("declined", verdict.declined.value)


def _ms(elapsed_ns: int) -> float:
    """Milliseconds to the microsecond: more digits are noise, and make every result line longer."""
    return elapsed_ns // 1000 / 1000


def _too_large(message: Answered, size_bytes: int) -> Answered:
    """The failure that takes the place of an answer which no datagram can carry."""
    detail = f"the answer has {size_bytes:,} bytes, {MAX_MESSAGE_BYTES:,} is the most"
    answer, failure = message.result, Failure(FailCause.BAD_OUTPUT.value, detail)
    result = Result(
        1,
        answer.camera,
        answer.seq,
        answer.captured_ns,
        answer.model,
        answer.task,
        answer.file,
        failed=failure,
    )
    return Answered(result, message.answered_ns, message.shadow, tensor=message.tensor)


def _fail_cause(error: VedetteError | MemoryError) -> FailCause:
    if isinstance(error, (OutOfMemoryError, MemoryError)):
        return FailCause.OUT_OF_MEMORY
    if isinstance(error, FrameError):
        return FailCause.BAD_OUTPUT if error.kind == "bad_output" else FailCause.DECODE
    return FailCause.INFER


def run(descriptors: Sequence[int], parent_pid: int, encoded: str, priority: CpuPriority) -> int:
    """Load the WorkerSpec in `encoded`, say READY, serve; descriptors: control, results and pulse."""
    tie_to_parent(parent_pid)
    spec = msgspec.json.decode(encoded, type=WorkerSpec)
    control_fd, results_fd, pulse_fd = descriptors
    control: Channel[ToWorker] = Channel.from_fd(control_fd, ToWorker)
    results: Channel[None] = Channel.from_fd(results_fd, FromWorkerResults)
    pulse = Pulse(pulse_fd)
    pulse.beat(time.monotonic_ns())

    def progress(line: str) -> None:
        pulse.beat(time.monotonic_ns())
        control.send(Progress(line))

    try:
        model = load_model(spec, progress)
    except VedetteError as error:
        control.send(Fatal(error.exit_code, error.cause, error.cure))
        return error.exit_code
    gc.collect()
    gc.freeze()
    priority.loaded()
    pulse.beat(time.monotonic_ns())
    control.send(model.describe(can_serve=priority.can_serve))
    try:
        return Worker(model, control, results, pulse, priority).serve()
    except PeerGoneError:
        return 0
    finally:
        model.close()
