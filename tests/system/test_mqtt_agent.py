"""A box that has nothing but MQTT, with everything real: installed commands, Mosquitto with our rules.

It is born, watched, asked, updated by delta in blocks, loses its broker and its power.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.brokers import Mosquitto
from tests.stubs.fleet import Operator
from tests.stubs.fleet_ear import FleetEar
from tests.stubs.linked_agent import DEVICE, PASSWORD, TOPICS, LinkedAgent, serve_blocks
from tests.stubs.running import REPOSITORY
from tests.stubs.scene_models import NAME, scene_bundle
from tests.stubs.updated_box import CAMERA

from vedette.mqtt.paho_client import WILL_DELAY_S
from vedette.mqtt.port import Outgoing
from vedette.telemetry.sketch import Sketch
from vedette.wire.plane import Command
from vedette.wire.telemetry import STAGES, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ACL = REPOSITORY / "systemd" / "mosquitto" / "vedette.acl"
GENEROUS = ("--latency-ratio", "5")
_TOTAL = STAGES.index("total")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: a socket's may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """A repository in which the factory's model is release 1."""
    operator = Operator(tmp_path)
    operator.release(scene_bundle(tmp_path / "v1", "1"))
    return operator


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    users = dict.fromkeys((DEVICE, "operator", "blocks"), PASSWORD)
    with Mosquitto(tmp_path / "broker", acl=ACL, users=users) as broker:
        yield broker


@pytest.fixture
def box(tmp_path: Path, short: Path, operator: Operator, broker: Mosquitto) -> Iterator[LinkedAgent]:
    home = tmp_path / "box"
    home.mkdir()
    (home / "password").write_text(PASSWORD)
    mqtt = {"username": DEVICE, "password_file": "password", "results": {"publish": "change"}}
    box = LinkedAgent(home, short, factory=tmp_path / "v1", root=operator.root, port=broker.port, mqtt=mqtt)
    box.start()
    yield box
    if box.boot.process.poll() is None:
        box.kill()


def online(ear: FleetEar) -> list[bool]:
    """What the device said of itself, newest last."""
    return [status["online"] for status in ear.said(TOPICS.status)]


def test_a_box_with_nothing_but_mqtt_is_watched_asked_and_updated(
    box: LinkedAgent, broker: Mosquitto, operator: Operator, tmp_path: Path
) -> None:
    with FleetEar(broker.port, TOPICS, username="operator", password=PASSWORD) as ear:
        ear.until(lambda: online(ear) == [True], "its birth")
        ear.until(lambda: len(ear.reports()) >= 3, "telemetry")
        check_telemetry(ear)
        check_commands(ear)
        with serve_blocks(operator.repo, broker.port, "--username", "blocks", password=PASSWORD):
            check_delta_update(ear, operator, tmp_path)
            check_nothing_is_lost_while_the_broker_is_away(ear, box, broker, operator, tmp_path)
        leave_a_command_behind(ear)
        box.kill()
        ear.until(lambda: online(ear)[-1] is False, "its will", timeout_s=WILL_DELAY_S + 15)
        assert not ear.said(TOPICS.status)[-1].get("clean", False)
        box.start()
        ear.until(lambda: online(ear)[-1] is True, "its second birth")
        check_that_it_was_ignored(ear)
        box.stop()
        ear.until(lambda: online(ear)[-1] is False, "its goodbye")
        assert ear.said(TOPICS.status)[-1]["clean"]


def check_telemetry(ear: FleetEar) -> None:
    """Windows of one camera merge into one sketch, whose counts are those of the books.

    A frame in the instant of the last report may be in one of the two already.
    """
    reports = ear.reports()
    merged = Sketch()
    for report in reports:
        for _, own in pieces_of(report):
            for series in own:
                merged.merge(Sketch.of(series.stages[_TOTAL]))
    rows = [row for report in reports for row in report.cameras.rows()]
    assert {row.name for row in rows} == {CAMERA}
    assert abs(merged.count - sum(row.ok[0] for row in rows)) <= 1
    assert merged.count > 0
    p95_ms = merged.quantile(0.95)
    assert p95_ms is not None
    assert 0.1 < p95_ms < 5000
    box = reports[-1].box
    assert box is not None
    assert box.engine is not None
    assert box.engine.effective == "cpu"
    assert {"daemon", "worker"} <= set(box.processes)
    assert ear.said(TOPICS.result(CAMERA)), "answers that change are told"


def check_commands(ear: FleetEar) -> None:
    reply = ear.ask("status")
    assert reply.ok
    assert reply.body["link"]["connected"] is True
    assert reply.body["model"]["version"] == "1"
    picture = ear.ask("snapshot", {"camera": CAMERA, "max_width": 160})
    assert base64.b64decode(picture.body["picture"])[:3] == b"\xff\xd8\xff"
    found = ear.ask("diagnose").body
    assert found["config"]["mqtt"]["username"] == DEVICE
    assert found["config"]["mqtt"]["password"] is None
    assert found["log"], "what it said last"
    refused = ear.ask("pause-camera", {"camera": "elsewhere"})
    assert (refused.ok, "no camera `elsewhere`" in refused.error) == (False, True)
    assert ear.ask("pause-camera", {"camera": CAMERA}).ok
    ear.until(lambda: ear.events("camera_paused"), "an event that it is paused")
    assert ear.ask("resume-camera", {"camera": CAMERA}).ok
    ear.until(lambda: ear.events("camera_resumed"), "an event that it is resumed")


def leave_a_command_behind(ear: FleetEar) -> None:
    """A command that the broker keeps, as a tool that always sets the retain flag would send it."""
    command = msgspec.json.encode(Command(id="old", arguments={"camera": CAMERA}))
    ear.publish(Outgoing(TOPICS.command("pause-camera"), command, retain=True))
    assert ear.ask("ping", {}).ok, "what comes after it is heard"
    check_that_it_was_ignored(ear)


def check_that_it_was_ignored(ear: FleetEar) -> None:
    """Casebook 31: what the broker remembers is not asked now, connected or not; the next one is heard."""
    status = ear.ask("status").body
    assert status["link"]["bad_messages"]["retained_command"] == 1
    assert {camera["state"] for camera in status["cameras"]} != {"paused"}
    assert "old" not in {reply["id"] for reply in ear.said(TOPICS.response("pause-camera"))}


def check_delta_update(ear: FleetEar, operator: Operator, tmp_path: Path) -> None:
    """Announced, fetched in blocks by delta, tried, confirmed, and told step by step."""
    release = operator.release(scene_bundle(tmp_path / "v2", "2", tuned=0.02))
    operator.roll_out("second", f"{NAME}@2", *GENEROUS)
    ear.until(lambda: ear.events("update_result"), "the result of an update", timeout_s=90)
    (result,) = ear.events("update_result")
    assert (result["data"]["result"], result["data"]["version"]) == ("success", "2")
    full = next(
        item["bytes"] for item in release["encodings"] if item["kind"] == "full" and "onnx" in item["file"]
    )
    assert 0 < result["data"]["bytes_fetched"] < full / 2
    ear.until(lambda: ear.said(TOPICS.reported)[-1]["phase"] == "idle", "it is idle again")
    reported = ear.said(TOPICS.reported)[-1]
    assert (reported["active"]["version"], reported["result"], reported["rollout"]) == (
        "2",
        "success",
        "second",
    )
    steps = [event["data"]["to"] for event in ear.events("update_phase")]
    assert [step for step in steps if step in {"fetch", "preflight", "trial", "confirm"}] == [
        "fetch",
        "preflight",
        "trial",
        "confirm",
    ]


def check_nothing_is_lost_while_the_broker_is_away(
    ear: FleetEar, box: LinkedAgent, broker: Mosquitto, operator: Operator, tmp_path: Path
) -> None:
    """The update ends while nobody hears it; afterwards the fleet has each step and the result, once."""
    ids = {event["id"] for event in ear.events()}
    operator.release(scene_bundle(tmp_path / "v3", "3", tuned=0.04), "--full-only")
    operator.roll_out("third", f"{NAME}@3", *GENEROUS)
    box.until_status(lambda status: status["update"]["phase"] == "trial", "version 3 is on trial")
    broker.kill()
    box.until_status(lambda status: not status["link"]["connected"], "the broker is missed")
    box.until_status(lambda status: status["link"]["waiting_reports"] > 0, "what cannot be said waits")
    broker.start()  # a trial over MQTT passes only while updates can still come
    box.until_result("3")
    ear.until(lambda: len(ear.events("update_result")) == 2, "the second result", timeout_s=60)
    ear.until(lambda: box.status()["link"]["waiting_events"] == 0, "nothing waits any more")

    def steps() -> list[str]:
        found = [event for event in ear.events("update_phase") if event["id"] not in ids]
        return [event["data"]["to"] for event in found]

    ear.until(lambda: steps()[-2:] == ["confirm", "report"], "the steps that nobody heard")
    assert steps().count("trial") == 1
    assert [event["data"]["version"] for event in ear.events("update_result")] == ["2", "3"]
    assert ear.events("update_result")[-1]["data"]["result"] == "success"
