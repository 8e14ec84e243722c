"""The daemon's end of the HTTP door: a real ring, real channels, a real control socket, and a worker of ours.

The worker is a thread that takes frames from the ring as an engine worker does. Its model finds what is red
in the upright picture, so that a test knows which box is right; given a raw tensor, it doubles it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from tests.stubs.waiting import until

from vedette.api.control import ControlServer
from vedette.api.door_messages import DOOR, Answers, DoorSpec, FromDoor, Seen, Unview, View
from vedette.api.messages import (
    AgentStatus,
    CameraStatus,
    DescribeRequest,
    MetricsRequest,
    ModelDescription,
    StatusRequest,
)
from vedette.clock import SystemClock
from vedette.errors import UnavailableError
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.producer import RingProducer
from vedette.frame.reader import RingReader
from vedette.frame.ring import Ring, create_ring
from vedette.source.messages import Opened, StopSource, UseRing
from vedette.telemetry.ledger import CameraCounts, LedgerSnapshot
from vedette.telemetry.metrics import metrics_snapshot
from vedette.telemetry.report import Gathered
from vedette.telemetry.window import WindowRecorder
from vedette.vision.picture import picture_from_buffer, to_bgr
from vedette.vision.tensors import TensorInfo
from vedette.wire.messages import (
    AcceleratorReport,
    Detection,
    Failure,
    LatencyMs,
    ModelRef,
    RawTensor,
    Result,
    SelfTest,
    Skipped,
)
from vedette.wire.telemetry import BoxFigures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Self

    from vedette.api.messages import Request
    from vedette.frame.reader import Lease
    from vedette.telemetry.metrics import MetricsSnapshot
    from vedette.wire.pixels import FrameFormat

MODEL = ModelRef("redness", "3", "ab" * 32)
TENSOR = TensorInfo("x", (1, 4), "float32")
ENGINE = AcceleratorReport(
    runtime="onnx",
    asked=("cuda", "cpu"),
    effective="cpu",
    nodes={"cpu": 71},
    skipped=(Skipped("cuda", "no CUDA device is visible"),),
    evidence="graph nodes by provider",
    threads=1,
    check_ms=4.2,
    load_ms=210.0,
    degraded=True,
)
READY = ModelDescription(
    ready=True,
    model=MODEL,
    task="detect",
    platform="onnx",
    inputs=(TENSOR,),
    outputs=(TensorInfo("y", (1, 4), "float32"),),
    bundle_bytes=1 << 20,
    engine=ENGINE,
    self_test=SelfTest(3, 0.2, ""),
)
LOADING = ModelDescription(ready=False, reason="loading redness 3: building an engine", retry_after_s=7.0)
LATENCY = LatencyMs(0.1, 0.4, 0.2, 4.6, 0.1, 5.4)
SLOT_BYTES = 3 * 640 * 480


class Red(NamedTuple):
    """Where the red part of a picture lies, in upright pixels."""

    box: tuple[float, float, float, float]
    size: tuple[int, int]


def camera_status(
    name: str,
    state: str = "running",
    *,
    fps: float = 29.6,
    ok: int = 0,
    dropped: dict[str, int] | None = None,
    failed: dict[str, int] | None = None,
    restarts: int = 0,
) -> CameraStatus:
    """A camera's row, with four frames in flight."""
    lost = sum((dropped or {}).values()) + sum((failed or {}).values())
    return CameraStatus(
        camera=name,
        state=state,
        live=True,
        fps=fps,
        frames_in=ok + lost + 4,
        ok=ok,
        dropped=dropped or {},
        failed=failed or {},
        in_flight=4,
        source_restarts=restarts,
    )


def find_red(pixels: NDArray[np.uint8]) -> Red | None:
    """The bounding box of what is clearly red in a BGR picture."""
    wide = pixels.astype(np.int16)
    red = (wide[:, :, 2] > 150) & (wide[:, :, 1] < 100) & (wide[:, :, 0] < 100)
    rows, columns = np.flatnonzero(red.any(axis=1)), np.flatnonzero(red.any(axis=0))
    if not rows.size:
        return None
    box = (float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
    return Red(box, (pixels.shape[1], pixels.shape[0]))


def answer(lease: Lease) -> Result:
    """What this worker says of a frame."""
    frame_format = lease.frame_format
    if frame_format.tensor:
        given = np.frombuffer(bytes(lease.pixels[: frame_format.frame_bytes]), "<f4")
        raw = RawTensor("y", (1, given.size), "float32", (given * 2).tobytes())
        return Result(1, DOOR, lease.seq, lease.captured_ns, MODEL, "raw", tensors=(raw,), latency_ms=LATENCY)
    red = find_red(to_bgr(picture_from_buffer(lease.pixels, frame_format)))
    found = () if red is None else (Detection("red", 0, 0.9, red.box),)
    return Result(
        1,
        DOOR,
        lease.seq,
        lease.captured_ns,
        MODEL,
        "detect",
        detections=found,
        confidence=0.9 if found else 0.0,
        latency_ms=LATENCY,
    )


class FakeDaemon:
    """`with FakeDaemon(folder) as daemon: …`; requests go to `daemon.url`, or over `daemon.listen`."""

    def __init__(self, folder: Path, *, listen: str = "127.0.0.1:0", **changes: object) -> None:
        self.control_path = folder / "control.sock"
        self.environment: dict[str, str] = {}
        spec = DoorSpec(listen=listen, control_socket=str(self.control_path), slot_bytes=SLOT_BYTES, slots=3)
        self.spec = msgspec.structs.replace(spec, **changes)
        self.description: ModelDescription | None = READY
        self.serving = threading.Event()
        self.serving.set()
        self.formats: list[FrameFormat] = []
        self.fail_next: list[Failure] = []
        self.status_changes: dict[str, object] = {}
        self.held_back: list[Result] = []
        self.hold_back = 0
        self.answering = threading.Event()
        self.answering.set()
        self.where = ""
        self.messages: list[FromDoor] = []
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server = ControlServer(self.control_path, self._answer_control)
        self.ring: Ring | None = None
        self.views: dict[str, RingProducer] = {}
        self._view_rings: list[Ring] = []

    # Life -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._server.start()
        ours, theirs = channel_pair()
        arguments = [str(theirs.fileno()), str(os.getpid()), msgspec.json.encode(self.spec).decode()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vedette.api.door", *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
        )
        theirs.close()
        self.channel: Channel[FromDoor] = Channel(ours, FromDoor)
        until(lambda: self._heard(Opened) or self.process.poll() is not None, "the door opens")
        opened = self._heard(Opened)
        if opened is not None:
            self.where = opened.info.description.removeprefix("HTTP on ")
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.serving.set()
        self.answering.set()
        for thread in self._threads:
            thread.join(5)
        with contextlib.suppress(PeerGoneError):
            self.channel.send(StopSource())
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait(5)
            self.channel.close()
            self._server.stop()
            for ring in (self.ring, *self._view_rings):
                if ring is not None:
                    ring.close()
                    ring.handles.close()

    @property
    def url(self) -> str:
        """Where to ask."""
        return self.where

    @property
    def port(self) -> int:
        """The port on loopback."""
        return int(self.where.rpartition(":")[2])

    def heard(self) -> list[FromDoor]:
        """Everything that the door said so far."""
        with contextlib.suppress(PeerGoneError):
            while (received := self.channel.receive()) is not None:
                self.messages.append(received[0])
        return self.messages

    def _heard(self, kind: type[Opened]) -> Opened | None:
        return next((message for message in self.heard() if isinstance(message, kind)), None)

    # The ring and its worker ------------------------------------------------------------------------------

    def lend_ring(self, *, slots: int | None = None) -> None:
        """Give the door its ring, and begin to serve."""
        geometry = RingGeometry(slots or self.spec.slots, self.spec.slot_bytes, newest_wins=False)
        self.ring = Ring(create_ring(geometry, name=DOOR))
        assert self.channel.send(UseRing(), self.ring.handles.fds)
        worker = threading.Thread(target=self._serve, args=(self.ring,), name="worker")
        self._threads.append(worker)
        worker.start()

    def _serve(self, ring: Ring) -> None:
        reader = RingReader(ring, 0)
        while not self._done.is_set():
            if not self.serving.wait(0.05):
                continue
            lease = reader.take()
            if lease is None:
                if reader.about_to_sleep() and select.select([reader.doorbell], [], [], 0.05)[0]:
                    os.eventfd_read(reader.doorbell)
                continue
            self.formats.append(lease.frame_format)
            result = answer(lease)
            reader.release()
            if self.fail_next:
                result = msgspec.structs.replace(result, failed=self.fail_next.pop(0))
            self._deliver(result)

    def _deliver(self, result: Result) -> None:
        """Answer; with `hold_back`, so many at once and the last one first."""
        self.held_back.append(result)
        if len(self.held_back) > self.hold_back:
            batch, self.held_back = tuple(reversed(self.held_back)), []
            with contextlib.suppress(PeerGoneError):
                self.channel.send(Answers(batch))

    def stop_control(self) -> None:
        """Answer no question any more."""
        self._server.stop()

    # The other cameras ------------------------------------------------------------------------------------

    def show_camera(self, name: str, slot_bytes: int) -> RingProducer:
        """Give the door a newest-wins camera to read along."""
        ring = Ring(create_ring(RingGeometry(4, slot_bytes, newest_wins=True), name=name))
        self._view_rings.append(ring)
        assert self.channel.send(View(name), ring.handles.fds)
        producer = self.views[name] = RingProducer(ring, SystemClock())
        return producer

    def publish(self, camera: str, pixels: NDArray[np.uint8], frame_format: FrameFormat) -> int:
        """A frame of a camera; its sequence number."""
        producer = self.views[camera]
        memory = producer.try_acquire(frame_format)
        assert memory is not None
        memory[:] = pixels.tobytes()
        return producer.publish(time.monotonic_ns())

    def saw(self, results: Sequence[Result]) -> None:
        """Tell the door of answers of other cameras."""
        assert self.channel.send(Seen(tuple(results)))

    def hide_camera(self, name: str) -> None:
        """That ring is gone."""
        assert self.channel.send(Unview(name))

    # The control socket -----------------------------------------------------------------------------------

    def _answer_control(self, request: Request) -> bytes:
        self.answering.wait(30)
        if isinstance(request, DescribeRequest):
            if self.description is None:
                raise UnavailableError("the agent gave no description; it may be ending")
            return msgspec.json.encode(self.description)
        if isinstance(request, MetricsRequest):
            return msgspec.json.encode(self.figures())
        assert isinstance(request, StatusRequest)
        return msgspec.json.encode(self.status())

    @staticmethod
    def figures() -> MetricsSnapshot:
        """What the daemon counted: five answers of one camera."""
        window = WindowRecorder(0)
        for _ in range(5):
            window.record("front", MODEL, LATENCY, 0.05)
        ledger = LedgerSnapshot({"front": CameraCounts(frames_in=120, ok=5, dropped={"superseded": 115})})
        gathered = Gathered(ledger=ledger, box=BoxFigures())
        return metrics_snapshot(window.since_start(60_000_000_000), gathered)

    def status(self) -> AgentStatus:
        """What the daemon says of itself."""
        described = self.description
        status = AgentStatus(
            agent="0.1.0",
            device="bench-1",
            uptime_s=4000.0,
            model=None if described is None else described.model,
            engine=None if described is None else described.engine,
            worker_restarts=1,
            cameras=(camera_status("front", ok=110, dropped={"superseded": 6}),),
        )
        return msgspec.structs.replace(status, **self.status_changes)
