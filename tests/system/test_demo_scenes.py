"""What the demo promises to show over MQTT: seen on its own broker, and never taken for granted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from tests.stubs.mqtt_waiting import Connections, connected, deliver

from demo_broker import embedded_broker
from demo_fleet import Offer
from demo_scenes import Scenes
from demo_watch import OperatorView
from vedette.errors import InternalError, UnavailableError
from vedette.mqtt.port import Outgoing
from vedette.telemetry.sketch import Sketch
from vedette.wire.blocks import STATUS_BUSY, STATUS_DATA, BlockRequest, encode_data, encode_request
from vedette.wire.plane import Announcement, DeviceStatus, Reported
from vedette.wire.telemetry import (
    STAGES,
    CameraFigures,
    ReportedModel,
    Series,
    TelemetryReport,
    encode_report,
    report_with,
)
from vedette.wire.topics import DeviceTopics, announcements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.mqtt.paho_connection import PahoConnection

pytestmark = pytest.mark.system

TOPICS = DeviceTopics.of("demo", "demo-box")
OFFER = Offer(delta_bytes=600, full_bytes=10_000)


class Stage(NamedTuple):
    """The operator, and a device that is played."""

    view: OperatorView
    scenes: Scenes
    device: PahoConnection
    said: list[str]

    def plays(self, topic: str, message: msgspec.Struct | bytes) -> None:
        """The device publishes, and the broker has it."""
        payload = message if isinstance(message, bytes) else msgspec.json.encode(message)
        assert not deliver(self.device, Outgoing(topic, payload))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    said: list[str] = []
    with embedded_broker(tmp_path) as port, Connections() as connections, OperatorView(port, TOPICS) as view:
        assert view.connected().protocol == 5
        device = connections.to(port)
        connected(device)
        yield Stage(view, Scenes(view, "person", (), said.append, patience=0.02), device, said)


def status(*, online: bool, clean: bool = False) -> DeviceStatus:
    return DeviceStatus(
        online=online, device=TOPICS.device, boot_id="b", session="s", agent="0.1.0", clean=clean
    )


def reported(phase: str, **more: str) -> Reported:
    return Reported(seq=1, boot_id="b", utc_s=0.0, phase=phase, **more)  # type: ignore[arg-type]


def report(seq: int, values_ms: list[float]) -> bytes:
    """A report of frames that version 1 answered in these times."""
    sketch = Sketch()
    for value_ms in values_ms:
        sketch.record(value_ms)
    model = ReportedModel("person", "1")
    head = TelemetryReport(
        device=TOPICS.device, boot_id="b", started_s=0.0, seq=seq, start_s=2.0 * seq, end_s=2.0 * seq + 2
    )
    camera = CameraFigures("street", (len(values_ms), len(values_ms)), (len(values_ms), len(values_ms)))
    series = Series("street", model, (sketch.histogram(),) * len(STAGES))
    return encode_report(report_with(head, [(camera, [series])]))


def test_an_update_is_told_from_birth_to_goodbye(stage: Stage) -> None:
    """Bytes are counted by what the device asked for; percentiles are those of both reports together."""
    view, scenes = stage.view, stage.scenes
    stage.plays(TOPICS.status, status(online=True))
    scenes.birth()
    stage.plays(TOPICS.telemetry, report(0, [1.0] * 99))
    view.until("the first report", lambda: view.reports or None, 10.0)
    stage.plays(TOPICS.telemetry, report(1, [100.0]))
    view.until("both reports", lambda: True if view.reports == 2 else None, 10.0)
    latency = scenes.telemetry("1")
    assert latency.count == 100
    assert latency.p95_ms == pytest.approx(1.0, rel=0.02), "an average of percentiles would be 50"

    stage.plays(announcements(), Announcement(timestamp_version=4, rollouts_version=2))
    scenes.announcement()
    for xfer, path in (("a", "blobs/00"), ("b", "metadata/timestamp.json")):
        request = BlockRequest(xfer, 1, path, 1024, (0,))
        stage.plays(TOPICS.block_request, encode_request(request))
        stage.plays(TOPICS.block_data, encode_data(status=STATUS_BUSY, xfer=xfer, request=1, offset=9))
        stage.plays(
            TOPICS.block_data,
            encode_data(status=STATUS_DATA, xfer=xfer, request=1, total_bytes=700, data=bytes(700)),
        )
    scenes.delta(OFFER)
    stage.plays(TOPICS.reported, reported("trial"))
    scenes.trial()
    assert (view.bytes_of("blobs"), view.bytes_of("metadata")) == (700, 700)
    stage.plays(TOPICS.reported, reported("idle", result="success"))
    scenes.confirmation()
    stage.plays(TOPICS.status, status(online=False, clean=True))
    scenes.goodbye()
    words = [line.split()[2] for line in stage.said]
    assert words == ["birth", "telemetry", "announced", "fetched", "trial", "confirmed", "goodbye"]
    assert "700 of 10,000 bytes (7.0%)" in stage.said[3]


def test_what_does_not_come_in_time_is_an_error_that_says_how_it_stands(stage: Stage) -> None:
    with pytest.raises(UnavailableError, match=r"no birth within .* nothing came from the device"):
        stage.scenes.birth()
    stage.plays(TOPICS.status, status(online=True))
    stage.scenes.birth()
    stage.plays(TOPICS.reported, reported("fetch", look_fault="no server answers"))
    with pytest.raises(UnavailableError, match=r"no trial .* in `fetch`; no server answers"):
        stage.scenes.trial()


def test_a_full_download_is_not_passed_off_as_a_delta(stage: Stage) -> None:
    """More bytes than the delta and its repetitions: the promise was not kept."""
    stage.plays(TOPICS.block_request, encode_request(BlockRequest("a", 1, "blobs/00", 65_536, (0,))))
    data = encode_data(status=STATUS_DATA, xfer="a", request=1, total_bytes=10_000, data=bytes(10_000))
    stage.plays(TOPICS.block_data, data)
    with pytest.raises(UnavailableError, match="10,000 bytes came"):
        stage.scenes.delta(OFFER)


def test_an_update_that_went_back_is_no_confirmation(stage: Stage) -> None:
    failed = reported("idle", result="failed_rolled_back", cause="latency_p95", detail="3 times slower")
    stage.plays(TOPICS.reported, failed)
    with pytest.raises(UnavailableError, match="`failed_rolled_back`: latency_p95 3 times slower"):
        stage.scenes.confirmation()


def test_a_message_that_cannot_be_read_ends_the_demo(stage: Stage) -> None:
    """It would be a bug of ours, and is not shown as nothing."""
    stage.plays(TOPICS.telemetry, b"\xff\xff")
    with pytest.raises(InternalError, match=r"tele/report cannot be read"):
        stage.scenes.telemetry("1")


def test_a_demo_that_is_told_to_end_ends_its_children(tmp_path: Path) -> None:
    """An agent on a clip that begins anew would run for ever."""
    code = (
        "import sys; from pathlib import Path; from demo_children import Child, end_on_signals\n"
        "end_on_signals()\n"
        "with Child([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)'],"
        " log=Path(sys.argv[1])) as child:\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait(60.0)\n"
    )
    demo = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "log"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert demo.stdout is not None
    with demo.stdout:
        child = Path("/proc", demo.stdout.readline().decode().strip())
    assert child.exists()
    demo.terminate()
    assert demo.wait(10) != 0
    assert not child.exists()
