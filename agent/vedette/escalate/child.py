"""The process that asks the large model: pixels come in by a ring, and only words go out to the daemon.

Started as `python -m vedette.escalate.child CONTROL_FD PARENT_PID SPEC`. Neither the daemon nor a worker ever
waits for it: a ring without a free slot is a frame that stays, and what this process held when it died the
daemon ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING

import cv2
import msgspec

from vedette.config.escalation import EscalationConfig
from vedette.errors import FrameError, VedetteError
from vedette.escalate.case_reader import CaseReader
from vedette.escalate.composition import compose
from vedette.escalate.messages import Begin, EscalatorReady, EscalatorSpec, Feed, ToEscalator
from vedette.escalate.outgoing import Outgoing
from vedette.frame.channel import Channel, PeerGoneError
from vedette.frame.lifeline import tie_to_parent
from vedette.frame.ring import Ring, RingHandles
from vedette.vision.picture import picture_from_buffer, to_bgr
from vedette.wire.escalation import DeclineCause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vedette.escalate.asked_model import AskedModel
    from vedette.escalate.case_reader import TakenCase
    from vedette.escalate.composition import Composed

# Frames go first: what is asked here has seconds.
NICE = 10
BEGIN_WAIT_S = 30.0
STOP_WAIT_S = 1.2
RESEND_S = 0.02
CASES_A_TURN = 8
RETIRED_S, RETIRED_LOOK_S, MAX_RETIRED = 3.0, 0.05, 4
# Outcomes that the daemon has not read yet: beyond that no more cases are taken.
MAX_UNREAD = 1024


class CaseSource:
    """One worker's ring of cases; `model` is whose they are, None where its bundle is of no use."""

    model: AskedModel | None = None

    def __init__(self, fds: list[int]) -> None:
        """Map the ring.

        Raises:
            BadInputError: The descriptors are those of no ring.
        """
        self._handles = RingHandles(fds)
        try:
            self._ring = Ring(self._handles)
        except VedetteError:
            self._handles.close()
            raise
        self.reader = CaseReader(self._ring)

    def close(self) -> None:
        """Give it back."""
        self._ring.close()
        self._handles.close()


class Escalator:
    """The loop over control channel, ring and pool."""

    def __init__(self, control: Channel[ToEscalator], composed: Composed, outgoing: Outgoing) -> None:
        self._control = control
        self._composed = composed
        self._service = composed.service
        self._outgoing = outgoing
        self._source: CaseSource | None = None
        # Rings that were replaced: their worker may have had a frame in hand. Oldest first, with their end.
        self._retired: list[tuple[float, CaseSource]] = []
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)
        self._epoll.register(composed.pool.doorbell, select.EPOLLIN)
        self._stopping = False

    def serve(self) -> None:
        """Serve until the daemon says stop or is gone."""
        with contextlib.suppress(PeerGoneError):
            while not self._stopping:
                more = self._take(CASES_A_TURN)
                self._service.turn()
                sent = self._outgoing.flush()
                self._sleep(0.0 if more else self._pause_s(), sent=sent)
                self._obey()
        self._end()

    def _take(self, most: int) -> bool:
        """Deal with cases that came; whether there may be more."""
        for _, retired in self._retired:
            self._take_from(retired, most)
        while self._retired and time.monotonic() >= self._retired[0][0]:
            self._retired.pop(0)[1].close()
        return self._source is not None and self._take_from(self._source, most)

    def _take_from(self, source: CaseSource, most: int) -> bool:
        for _ in range(most):
            if self._outgoing.unread > MAX_UNREAD:
                return False
            taken = source.reader.take()
            if taken is None:
                return False
            self._deal(taken, source)
        return True

    def _deal(self, taken: TakenCase, source: CaseSource) -> None:
        def frame() -> NDArray[np.uint8]:
            if taken.frame_format.tensor:
                raise FrameError("a tensor is no picture", kind="format")
            return to_bgr(picture_from_buffer(taken.pixels, taken.frame_format))

        try:
            self._service.desk.take(taken.case, source.model, frame)
        finally:
            source.reader.release()

    def _pause_s(self) -> float:
        left_ns = self._service.next_turn_ns() - time.monotonic_ns()
        left_s = max(0.0, left_ns / 1e9)
        return min(left_s, RETIRED_LOOK_S) if self._retired else left_s

    def _sleep(self, pause_s: float, *, sent: bool) -> None:
        if pause_s > 0 and self._source is not None and not self._source.reader.about_to_sleep():
            pause_s = 0.0 if self._outgoing.unread <= MAX_UNREAD else pause_s
        self._epoll.poll(pause_s if sent else min(pause_s, RESEND_S))

    def _obey(self) -> None:
        """Everything that the daemon has said."""
        while (received := self._control.receive()) is not None:
            message, fds = received
            if isinstance(message, Feed):
                self._feed(message, fds)
                continue
            for fd in fds:
                os.close(fd)
            if not isinstance(message, Begin):
                self._stopping = True

    def _feed(self, feed: Feed, fds: list[int]) -> None:
        """Cases come by another ring; what the one before still holds, or gets, is taken for a while."""
        source = CaseSource(fds)
        before = self._source
        if before is not None:
            self._epoll.unregister(before.reader.doorbell)
            self._retired.append((time.monotonic() + RETIRED_S, before))
            while len(self._retired) > MAX_RETIRED:
                _, oldest = self._retired.pop(0)
                self._take_from(oldest, MAX_UNREAD)
                oldest.close()
        self._service.feed(feed)
        source.model = self._service.model
        self._source = source
        self._epoll.register(source.reader.doorbell, select.EPOLLIN | select.EPOLLET)

    def _end(self) -> None:
        """End every case, those in the ring too; all within two seconds."""
        deadline_s = time.monotonic() + STOP_WAIT_S
        now_ns = time.monotonic_ns()
        sources = [source for _, source in self._retired]
        for source in [*sources, *([] if self._source is None else [self._source])]:
            while (taken := source.reader.take()) is not None:
                self._service.desk.decline(taken.case, DeclineCause.STOPPED, now_ns)
                source.reader.release()
        self._service.stop()
        self._composed.client.close()
        with contextlib.suppress(PeerGoneError):
            while not self._outgoing.flush() and time.monotonic() < deadline_s:
                time.sleep(RESEND_S)
        self._composed.pool.close(max(0.05, deadline_s - time.monotonic()))


def run(control: Channel[ToEscalator], spec: EscalatorSpec) -> int:
    """Wait for the key, say that it is ready, serve."""
    received = control.receive(BEGIN_WAIT_S)
    if received is None or not isinstance(received[0], Begin):
        sys.stderr.write("the daemon did not begin by saying which key to use\n")
        return 70
    outgoing = Outgoing(control)
    try:
        config = msgspec.convert(spec.config, EscalationConfig)
        composed = compose(spec, config, received[0].key, outgoing)
        control.send(EscalatorReady())
        Escalator(control, composed, outgoing).serve()
    except PeerGoneError:
        return 0
    except VedetteError as error:
        # The daemon repeats the last line.
        sys.stderr.write(f"{error.cause}; {error.cure}\n" if error.cure else f"{error.cause}\n")
        return error.exit_code
    return 0


def main(arguments: list[str]) -> int:
    """Entry of the child process."""
    control_fd, parent_pid = int(arguments[0]), int(arguments[1])
    tie_to_parent(parent_pid)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    cv2.setNumThreads(1)
    spec = msgspec.json.decode(arguments[2], type=EscalatorSpec)
    control: Channel[ToEscalator] = Channel.from_fd(control_fd, ToEscalator)
    return run(control, spec)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
