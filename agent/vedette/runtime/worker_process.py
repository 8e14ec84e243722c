"""One engine worker process as the supervisor sees it: loading, ready, or gone."""

from __future__ import annotations

import contextlib
import os
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from vedette.engine.messages import (
    AnswerTo,
    Attach,
    CasesTo,
    Detach,
    Detached,
    Fatal,
    FromWorker,
    FromWorkerResults,
    Progress,
    Ready,
    SetGate,
    Stop,
)
from vedette.engine.priority import Pace, cpu_wait_ns
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.lifeline import Pulse
from vedette.runtime.child import Child, describe_exit
from vedette.wire.causes import FailCause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.clock import Clock
    from vedette.engine.messages import WorkerSpec
    from vedette.frame.lifeline import HeldFrame
    from vedette.frame.ring import Ring
    from vedette.gate.setting import GateSetting

WORKER_MODULE = "vedette.engine.worker_start"
# A worker says that it lives every half second while idle; this much silence beyond the limit is a hang.
IDLE_GRACE_S = 2.0


class WorkerState(str, Enum):
    """Where a worker process is in its life."""

    LOADING = "loading"
    READY = "ready"
    GONE = "gone"


class WorkerProcess:
    """A worker process of one model generation."""

    def __init__(
        self,
        spec: WorkerSpec,
        clock: Clock,
        *,
        load_timeout_s: float,
        hang_timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Start it.

        Raises:
            OSError: The system has no process, memory or descriptor left for it.
        """
        self._clock = clock
        self._load_timeout_ns = round(load_timeout_s * 1e9)
        self._hang_timeout_ns = round(hang_timeout_s * 1e9)
        self._say = say
        self.state = WorkerState.LOADING
        self.ready: Ready | None = None
        self.fatal: Fatal | None = None
        self.progress = "starting"
        self.kill_cause: FailCause | None = None
        self.kill_detail = ""
        self.seats: dict[str, Ring] = {}
        # Of a worker at low priority only time in which it had a CPU counts as hanging.
        self._patient = spec.pace is not Pace.NORMAL
        self._busy_since_ns = 0
        self._waited_ns = 0
        with contextlib.ExitStack() as undo:
            self._start(spec, undo)
            undo.pop_all()

    def _start(self, spec: WorkerSpec, undo: contextlib.ExitStack) -> None:
        """Make the shared page and the channels, and start the process over them."""
        self._pulse = Pulse.create()
        undo.callback(self._pulse.close)
        control_ours, control_theirs = channel_pair()
        undo.callback(control_ours.close)
        undo.callback(control_theirs.close)
        results_ours, results_theirs = channel_pair()
        undo.callback(results_ours.close)
        try:
            os.set_inheritable(self._pulse.fd, True)  # noqa: FBT003 - the standard library's signature
            self.child = Child(
                WORKER_MODULE,
                [
                    str(control_theirs.fileno()),
                    str(results_theirs.fileno()),
                    str(self._pulse.fd),
                    str(os.getpid()),
                    spec.pace.value,
                    msgspec.json.encode(spec).decode(),
                ],
                pass_fds=(control_theirs.fileno(), results_theirs.fileno(), self._pulse.fd),
            )
        finally:
            control_theirs.close()
            results_theirs.close()
        self.started_ns = self._clock.monotonic_ns()
        self.control: Channel[FromWorker] = Channel(control_ours, FromWorker)
        self.results: Channel[FromWorkerResults] = Channel(
            results_ours, FromWorkerResults, with_descriptors=False
        )

    def listen(self) -> None:
        """Read what the worker says; changes `state`, `ready` and `fatal`."""
        try:
            while (received := self.control.receive()) is not None:
                message = received[0]
                if isinstance(message, Progress):
                    self.progress = message.line
                    self._say(message.line)
                elif isinstance(message, Ready):
                    self.ready, self.state = message, WorkerState.READY
                elif isinstance(message, Fatal):
                    self.fatal = message
                elif isinstance(message, Detached):
                    self.seats.pop(message.camera, None)
        except PeerGoneError:
            return

    def attach(self, attach: Attach, ring: Ring) -> bool:
        """Let the worker serve a camera, or read along; False when it cannot be told just now."""
        try:
            sent = self.control.send(attach, ring.handles.fds)
        except PeerGoneError:
            return False
        if sent:
            self.seats[attach.camera] = ring
        return sent

    def detach(self, camera: str) -> bool:
        """Ask the worker to forget a camera; its seat is empty once `listen` heard that it did.

        Returns:
            False when it cannot be told just now.
        """
        try:
            return self.control.send(Detach(camera))
        except PeerGoneError:
            return False  # its end is seen at its pidfd

    def let_tell(self, camera: str, fd: int, since_seq: int) -> bool:
        """Have it tell this camera's answers to later frames over `fd`, too; False: not just now."""
        try:
            return self.control.send(AnswerTo(camera, since_seq), [fd])
        except PeerGoneError:
            return False

    def send_cases(self, fds: Sequence[int]) -> bool:
        """Have frames for the large model put into the ring of these descriptors; False: not just now."""
        try:
            return self.control.send(CasesTo(), fds)
        except PeerGoneError:
            return False

    def send_setting(self, setting: GateSetting) -> bool:
        """Have answers judged by this setting; False: not just now."""
        try:
            return self.control.send(SetGate(setting))
        except PeerGoneError:
            return False

    def limit_hang(self, hang_timeout_s: float) -> None:
        """Change how long one frame may take."""
        self._hang_timeout_ns = round(hang_timeout_s * 1e9)

    def serves(self) -> None:
        """It is to answer: from now on it has its normal priority, and no excuse."""
        self._patient = False

    def check(self) -> None:
        """Kill a worker that loads too long or hangs in a frame; its end is then seen like any other."""
        if self.kill_cause is not None or self.state is WorkerState.GONE:
            return
        now_ns = self._clock.monotonic_ns()
        if self.state is WorkerState.LOADING:
            if now_ns - self.started_ns > self._load_timeout_ns:
                self._kill(f"the model was not ready within {self._load_timeout_ns / 1e9:.0f} s")
            return
        limit_s = self._hang_timeout_ns / 1e9
        busy_since_ns = self._pulse.busy_since_ns
        if busy_since_ns and now_ns - busy_since_ns - self._excused_ns(busy_since_ns) > self._hang_timeout_ns:
            self._kill(f"no answer within {limit_s:g} s")
        elif not busy_since_ns and now_ns - self._pulse.alive_ns > self._hang_timeout_ns + IDLE_GRACE_S * 1e9:
            self._kill(f"no sign of life within {limit_s:g} s")

    def _excused_ns(self, busy_since_ns: int) -> int:
        """Time of the frame in hand in which a worker at low priority had no CPU, as far as was seen."""
        if not self._patient:
            return 0
        waited_ns = cpu_wait_ns(self.child.pid)
        if busy_since_ns != self._busy_since_ns:
            self._busy_since_ns, self._waited_ns = busy_since_ns, waited_ns
        return waited_ns - self._waited_ns

    def _kill(self, detail: str) -> None:
        self.kill_cause, self.kill_detail = FailCause.WORKER_HUNG, detail
        self.child.kill()

    def obituary(self, status: int) -> tuple[FailCause, str]:
        """Why it is gone, for the frames that it had in hand and for people."""
        if self.kill_cause is not None:
            return self.kill_cause, self.kill_detail
        detail = describe_exit(status)
        words = self.child.last_words()
        return FailCause.WORKER_CRASHED, f"{detail}: {words}" if words else detail

    @property
    def held(self) -> HeldFrame:
        """The frame that it had in hand last; to be read before `close`."""
        return self._pulse.held

    def stop(self) -> None:
        """Ask it to finish; one that still loads has nothing to finish and is killed."""
        if self.state is WorkerState.LOADING:
            self.child.kill()
            return
        try:
            self.control.send(Stop())
        except PeerGoneError:
            return

    def give_up_stopping(self) -> None:
        """Kill it, because it did not finish the frame in hand when it was told to stop."""
        if self.kill_cause is None:
            self._kill("it did not finish when the agent was told to stop")

    def close(self) -> None:
        """Bury it. The results channel stays open: the results thread reads it out and closes it."""
        self.state = WorkerState.GONE
        self.child.close()
        self.control.close()
        self._pulse.close()
