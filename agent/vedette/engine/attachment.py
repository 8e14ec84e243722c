"""One camera as the worker sees it: its ring, its reader, and the frame in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.engine.scheduler import Candidate
from vedette.engine.still_scene import StillScene
from vedette.frame.channel import MAX_MESSAGE_BYTES, Channel, PeerGoneError
from vedette.frame.reader import RingReader
from vedette.frame.ring import Ring, RingHandles
from vedette.frame.shadow_reader import ShadowReader
from vedette.gate.reuse_rules import Use
from vedette.vision.picture import picture_from_buffer

if TYPE_CHECKING:
    from vedette.engine.messages import Attach
    from vedette.engine.model import Model
    from vedette.frame.reader import Lease
    from vedette.vision.answers import Answer
    from vedette.vision.geometry import Placement
    from vedette.vision.picture import Picture
    from vedette.wire.pixels import FrameFormat


class Attachment:
    """A camera's ring at one seat; pictures over its slots are built once, not per frame."""

    def __init__(self, attach: Attach, fds: list[int]) -> None:
        self.camera = attach.camera
        self.shadow = attach.shadow
        self.turn = Candidate(attach.camera, attach.priority, None, attach.max_age_ns)
        self._handles = RingHandles(fds)
        try:
            self.ring = Ring(self._handles)
        except BaseException:
            self._handles.close()
            raise
        self.reader: RingReader | ShadowReader = (
            ShadowReader(self.ring, every=attach.every, hold_ns=attach.hold_ns)
            if attach.shadow
            else RingReader(self.ring, attach.seat)
        )
        self.still = None if attach.reuse is None or attach.shadow else StillScene(attach.reuse)
        self.answers: Channel[None] | None = None
        self._since_seq = 0
        self._pictures: dict[tuple[int, FrameFormat], Picture] = {}

    def answer_to(self, fd: int, since_seq: int) -> None:
        """Use this channel to whoever gives the frames after `since_seq`."""
        self.stop_telling()
        self._since_seq = since_seq
        self.answers = Channel.from_fd(fd, None)

    def tell(self, seq: int, payload: bytes) -> bool:
        """Hand a frame's answer over; False when it has to go by the daemon."""
        if self.answers is None or seq <= self._since_seq or len(payload) > MAX_MESSAGE_BYTES:
            return False
        try:
            return self.answers.send_bytes(payload)
        except PeerGoneError:
            self.stop_telling()
            return False

    def stop_telling(self) -> None:
        """Answers go by the daemon only."""
        if self.answers is not None:
            self.answers.close()
            self.answers = None

    def noted(self, lease: Lease, answer: Answer, words: str, now_ns: int) -> tuple[Use, bool]:
        """The model answered; why it did, and whether an earlier answer would have been wrong."""
        if self.still is None or lease.frame_format.tensor:
            return Use.ANEW, False
        return self.still.answered(answer, words, lease.captured_ns, now_ns)

    def prepare(self, lease: Lease, model: Model) -> Placement | None:
        """Fill the engine's input from the leased slot; None for a tensor, whose answer is raw.

        Raises:
            FrameError: The frame cannot be used.
        """
        if lease.frame_format.tensor:
            model.take_tensor(lease.pixels[: lease.frame_format.frame_bytes])
            return None
        return model.preprocessor.prepare(self.picture(lease), model.engine.input_array)

    def picture(self, lease: Lease) -> Picture:
        """Plane views over the leased slot.

        Raises:
            FrameError: The format does not fit the slot.
        """
        key = (lease.slot, lease.frame_format)
        picture = self._pictures.get(key)
        if picture is None:
            if len(self._pictures) >= 4 * self.ring.geometry.slots:
                self._pictures.clear()
            picture = self._pictures[key] = picture_from_buffer(lease.pixels, lease.frame_format)
        return picture

    def close(self) -> None:
        """Drop all views, then the mapping and its descriptors."""
        self.stop_telling()
        self._pictures.clear()
        self.ring.close()
        self._handles.close()
