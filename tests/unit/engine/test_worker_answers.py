"""What the serving loop makes of single frames: times that add up, answers that fit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec import UNSET
from tests.stubs.running import stub_bundle, worker

from vedette.clock import SystemClock
from vedette.engine.messages import Answered, Answers, AnswerTo, Attach, FromWorkerResults, ToWorker
from vedette.engine.model import load_model
from vedette.engine.worker import Worker
from vedette.errors import BundleError
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.lifeline import Pulse
from vedette.frame.producer import RingProducer
from vedette.frame.ring import Ring, create_ring
from vedette.wire.pixels import PixelFormat, describe, tensor_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.frame.reader import Lease

FORMAT = describe(8, 8, PixelFormat.BGR24)


class Bench:
    """A worker of the real code, one ring, and the daemon's ends of its channels."""

    def __init__(self, bundle: Path, **options: str) -> None:
        self.model = load_model(worker(bundle, **options), lambda _line: None)
        control_ours, control_theirs = channel_pair()
        results_ours, results_theirs = channel_pair()
        self.control: Channel[None] = Channel(control_ours, None)
        self.results: Channel[FromWorkerResults] = Channel(results_ours, FromWorkerResults)
        self.pulse = Pulse.create()
        theirs: Channel[ToWorker] = Channel(control_theirs, ToWorker)
        out: Channel[None] = Channel(results_theirs, None)
        self._ends = (theirs, out)
        self.worker = Worker(self.model, theirs, out, self.pulse)
        self.ring = Ring(create_ring(RingGeometry(3, FORMAT.frame_bytes, newest_wins=True), name="front"))
        self.control.send(Attach("front", 0), self.ring.handles.fds)
        self.worker._obey()
        self.producer = RingProducer(self.ring, SystemClock())

    def publish(self) -> None:
        """Put a black frame into the ring."""
        memory = self.producer.try_acquire(FORMAT)
        assert memory is not None
        memory[:] = bytes(len(memory))
        self.producer.publish(time.monotonic_ns())

    def publish_tensor(self, packed: bytes) -> None:
        """Put somebody's own input tensor into a ring of its own."""
        self.worker._detach("front")
        self.ring.close()
        self.ring.handles.close()
        self.ring = Ring(create_ring(RingGeometry(3, len(packed), newest_wins=False), name="front"))
        self.control.send(Attach("front", 0), self.ring.handles.fds)
        self.worker._obey()
        self.producer = RingProducer(self.ring, SystemClock())
        memory = self.producer.try_acquire(tensor_format(len(packed)))
        assert memory is not None
        memory[:] = packed
        self.producer.publish(time.monotonic_ns())

    def answer(self) -> Answered:
        """Serve the newest frame, and read what came of it."""
        assert self.worker._serve_one()
        received = self.results.receive(1.0)
        assert received is not None
        assert isinstance(received[0], Answered)
        return received[0]

    def close(self) -> None:
        """Give everything back."""
        self.worker._detach("front")
        for channel in (self.control, self.results, *self._ends):
            channel.close()
        self.ring.close()
        self.ring.handles.close()
        self.pulse.close()
        self.model.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(stub_bundle(tmp_path / "bundle"))
    yield made
    made.close()


def test_case_46_a_frame_that_came_after_the_look_at_the_clock_did_not_wait_less_than_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 46: a newer frame slips in before the lease; it waited for 0, and the stages add up."""
    reader = bench.worker._cameras["front"].reader
    take = reader.take

    def take_late() -> Lease | None:
        bench.publish()
        return take()

    monkeypatch.setattr(reader, "take", take_late)
    bench.publish()
    result = bench.answer().result
    stages = result.latency_ms
    assert result.seq == 2
    assert stages
    parts = (stages.transport, stages.queue, stages.preprocess, stages.infer, stages.postprocess)
    assert stages.queue == 0
    assert min(parts) >= 0
    assert abs(sum(parts) - stages.total) < 0.01


def test_raw_tensors_that_no_result_can_carry_are_refused_at_load(tmp_path: Path) -> None:
    """Every frame would fail: it is said once, with the figure and a cure, before the first."""
    bundle = stub_bundle(tmp_path / "bundle", task="raw", output={"layout": "raw"})
    with pytest.raises(BundleError, match=r"200,000 bytes of tensors into every result") as caught:
        load_model(worker(bundle, outputs="1x50000:float32"), lambda _line: None)
    assert caught.value.cure is not None


def test_an_answer_that_is_too_large_all_the_same_fails_by_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame's failure, not the death of the worker over and over."""
    monkeypatch.setattr("vedette.engine.worker.MAX_MESSAGE_BYTES", 200)
    bench.publish()
    failed = bench.answer().result.failed
    assert failed
    assert failed.cause == "bad_output"
    assert "200 is the most" in failed.detail


def test_a_raw_tensor_is_run_as_it_is_and_answered_as_it_leaves_the_engine(tmp_path: Path) -> None:
    """Byte for byte in, the engine's own types out; marked, so that no model is judged by it."""
    bench = Bench(stub_bundle(tmp_path / "bundle"), answer="echo")
    packed = np.full((1, 3, 8, 8), 2.5, "<f4").tobytes()
    bench.publish_tensor(packed)
    answered = bench.answer()
    bench.close()
    (tensor,) = answered.result.tensors or ()
    assert (tensor.name, tensor.shape, tensor.dtype) == ("stub_output_0", (1, 4), "float32")
    assert np.frombuffer(tensor.data, "<f4").tolist() == [2.5] * 4
    assert (answered.tensor, answered.result.task) == (True, "raw")
    assert answered.result.top is UNSET
    assert answered.result.latency_ms


def test_a_tensor_of_another_size_fails_with_both_sizes_and_the_next_is_answered(tmp_path: Path) -> None:
    """Never a partly filled input."""
    bench = Bench(stub_bundle(tmp_path / "bundle"), answer="echo")
    bench.publish_tensor(bytes(760))
    refused = bench.answer()
    bench.publish_tensor(bytes(768))
    good = bench.answer()
    bench.close()
    assert refused.result.failed
    assert refused.result.failed.cause == "decode"
    assert "a tensor of 760 bytes" in refused.result.failed.detail
    assert "[1, 3, 8, 8], 768 bytes" in refused.result.failed.detail
    assert refused.tensor
    assert not good.result.failed


def test_nan_in_a_raw_answer_is_the_clients_affair(tmp_path: Path) -> None:
    """What a picture's answer may never hold, whoever asks for raw outputs gets as it is."""
    bench = Bench(stub_bundle(tmp_path / "bundle"), plugin="tests.stubs.faulty_plugins:open_nan_later")
    bench.publish_tensor(bytes(768))
    answered = bench.answer()
    bench.close()
    assert not answered.result.failed
    assert np.isnan(np.frombuffer((answered.result.tensors or ())[0].data, "<f4")).all()


def test_whoever_gave_the_frames_is_told_by_the_worker_and_the_daemon_only_counts(tmp_path: Path) -> None:
    """Not of frames that somebody else gave before; when he is gone, answers go by the daemon again."""
    bench = Bench(stub_bundle(tmp_path / "bundle"))
    asker_end, worker_end = channel_pair()
    asker: Channel[Answers] = Channel(asker_end, Answers)
    bench.control.send(AnswerTo("front", since_seq=1), [worker_end.fileno()])
    bench.worker._obey()
    worker_end.close()
    bench.publish()
    assert not bench.answer().told
    bench.publish()
    told = bench.answer()
    received = asker.receive(1.0)
    assert received is not None
    assert received[0].results == (told.result,)
    assert told.told
    asker.close()
    bench.publish()
    assert not bench.answer().told
    bench.close()


def test_a_channel_for_a_camera_that_is_not_served_is_closed(tmp_path: Path) -> None:
    """The camera went to another worker meanwhile; no descriptor is left behind."""
    bench = Bench(stub_bundle(tmp_path / "bundle"))
    asker_end, worker_end = channel_pair()
    asker: Channel[Answers] = Channel(asker_end, Answers)
    bench.control.send(AnswerTo("gone"), [worker_end.fileno()])
    bench.worker._obey()
    worker_end.close()
    with pytest.raises(PeerGoneError):
        asker.receive(1.0)
    asker.close()
    bench.close()
