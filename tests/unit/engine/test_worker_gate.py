"""The gate in the serving loop: answers go out first, and what is unsure goes on its way with its pixels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from tests.stubs.running import stub_bundle, worker

from vedette.clock import SystemClock
from vedette.engine.case_writer import slot_bytes_for
from vedette.engine.messages import Answered, Attach, CasesTo, FromWorkerResults, SetGate, ToWorker, Unasked
from vedette.engine.model import load_model
from vedette.engine.worker import Worker
from vedette.escalate.case_reader import CaseReader
from vedette.frame.channel import Channel, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.lifeline import Pulse
from vedette.frame.producer import RingProducer
from vedette.frame.ring import Ring, create_ring
from vedette.gate.setting import GateMode, GateSetting
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Escalation
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = describe(8, 8, PixelFormat.BGR24)


class Desk:
    """A worker of the real code, a camera's ring and a case ring of two slots."""

    def __init__(self, bundle: Path) -> None:
        self.model = load_model(worker(bundle), lambda _line: None)
        ours, theirs = channel_pair()
        results_ours, results_theirs = channel_pair()
        self.control: Channel[None] = Channel(ours, None)
        self.results: Channel[FromWorkerResults] = Channel(results_ours, FromWorkerResults)
        self._pulse = Pulse.create()
        self._theirs: Channel[ToWorker] = Channel(theirs, ToWorker)
        self._out: Channel[None] = Channel(results_theirs, None)
        self.worker = Worker(self.model, self._theirs, self._out, self._pulse)
        self.ring = Ring(create_ring(RingGeometry(3, FORMAT.frame_bytes, newest_wins=True), name="front"))
        cases = RingGeometry(2, slot_bytes_for(FORMAT.frame_bytes), newest_wins=False)
        self.case_ring = Ring(create_ring(cases, name="cases"))
        self.cases = CaseReader(self.case_ring)
        self.control.send(Attach("front", 0), self.ring.handles.fds)
        self.control.send(CasesTo(), self.case_ring.handles.fds)
        self.worker._obey()
        self._producer = RingProducer(self.ring, SystemClock())

    def gate(self, number: int = 1, **changes: Any) -> None:  # noqa: ANN401 - fields of a struct
        plain = GateSetting(
            number=number,
            model_sha256=self.model.bundle.model_sha256,
            mode=GateMode.CALIBRATED,
            threshold=1.1,
            guarantee=Guarantee.AGREEMENT,
            tokens=100,
            paced=False,
        )
        self.control.send(SetGate(msgspec.structs.replace(plain, **changes)))
        self.worker._obey()

    def frame(self, grey: int = 7) -> list[FromWorkerResults]:
        """Serve one frame; everything that the daemon hears of it."""
        memory = self._producer.try_acquire(FORMAT)
        assert memory is not None
        memory[:] = bytes([grey]) * len(memory)
        self._producer.publish(time.monotonic_ns())
        assert self.worker._serve_one()
        heard: list[FromWorkerResults] = []
        while (received := self.results.receive()) is not None:
            heard.append(received[0])
        return heard

    def close(self) -> None:
        self.worker._detach("front")
        self.worker._gate.close()
        for ring in (self.ring, self.case_ring):
            ring.close()
            ring.handles.close()
        for channel in (self.control, self.results, self._theirs, self._out):
            channel.close()
        self.model.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(stub_bundle(tmp_path / "bundle"))
    yield made
    made.close()


def test_without_a_setting_frames_are_answered_as_ever(desk: Desk) -> None:
    (answered,) = desk.frame()
    assert isinstance(answered, Answered)
    assert (answered.asked, answered.unsure, answered.result.escalation) == (None, None, None)
    assert desk.cases.take() is None


def test_an_unsure_answer_goes_out_and_its_frame_goes_on_its_way(desk: Desk) -> None:
    desk.gate()
    (answered,) = desk.frame(grey=9)
    assert isinstance(answered, Answered)
    assert (answered.asked, answered.unsure, answered.result.escalation) == (Reason.UNCERTAIN, True, None)
    taken = desk.cases.take()
    assert taken is not None
    assert taken.case.result == answered.result
    assert bytes(taken.pixels) == bytes([9]) * FORMAT.frame_bytes
    assert np.frombuffer(taken.case.logits, "<f4").size == 4
    assert (taken.case.setting, taken.case.guarantee) == (1, Guarantee.AGREEMENT)


def test_when_there_is_no_room_the_frame_stays_and_its_token_is_free_again(desk: Desk) -> None:
    desk.gate(tokens=3)
    for _ in range(2):
        assert len(desk.frame()) == 1
    answered, unasked = desk.frame()
    assert isinstance(answered, Answered)
    assert unasked == Unasked("front", answered.result.seq)
    assert desk.cases.take() is not None
    desk.cases.release()
    assert len(desk.frame()) == 1  # the third token
    (declined,) = desk.frame()
    assert isinstance(declined, Answered)
    assert declined.result.escalation == Escalation("declined", "budget")


def test_a_setting_for_another_model_file_changes_nothing(desk: Desk) -> None:
    desk.gate(model_sha256="f" * 64)
    (answered,) = desk.frame()
    assert isinstance(answered, Answered)
    assert answered.asked is None


def test_an_audit_is_asked_about_however_sure_the_answer_is(desk: Desk) -> None:
    desk.gate(threshold=0.0, audit_share=1.0, audit_tokens=5)
    (answered,) = desk.frame()
    assert isinstance(answered, Answered)
    assert (answered.asked, answered.unsure) == (Reason.AUDIT, False)
    taken = desk.cases.take()
    assert taken is not None
    assert taken.case.inclusion == 1.0
