"""Discovery for Home Assistant: what it is told, and that nothing is left behind when it is switched off."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.link.linked_box import TOPICS, LinkedBox

from vedette.link.home_assistant import CameraState, HomeAssistant, HomeState
from vedette.wire.plane import ModelState, Reported
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.mqtt.port import Outgoing

# The keys of MQTT_JSON_UPDATE_SCHEMA in Home Assistant 2025; one that is not there costs the whole message.
UPDATE_KEYS: dict[str, tuple[type, ...]] = {
    "installed_version": (str,),
    "latest_version": (str,),
    "title": (str,),
    "release_summary": (str,),
    "release_url": (str,),
    "entity_picture": (str,),
    "in_progress": (bool,),
    "update_percentage": (int, float, type(None)),
}
OLD, NEW = ModelState("traffic", "3", "aa" * 32), ModelState("traffic", "4", "bb" * 32)


@pytest.fixture
def home() -> HomeAssistant:
    return HomeAssistant(TOPICS, agent="0.1.0", cameras=("front", "gate 2"))


def content(message: Outgoing) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(message.payload)
    return decoded


def update(home: HomeAssistant, phase: str, **parts: Any) -> dict[str, Any]:  # noqa: ANN401
    shown = content(home.update(Reported(seq=1, boot_id="b", utc_s=0.0, phase=phase, **parts)))
    for key, value in shown.items():
        assert isinstance(value, UPDATE_KEYS[key]), f"{key} would make Home Assistant drop the message"
    return shown


def test_one_retained_message_describes_the_device(home: HomeAssistant) -> None:
    message = home.discovery()
    assert message.topic == "homeassistant/device/cam-7/config"
    assert (message.retain, message.qos) == (True, 1)
    described = content(message)
    assert described["device"]["identifiers"]
    assert described["origin"]["name"]
    assert described["availability"][0]["topic"] == TOPICS.status
    parts = described["components"]
    assert {"fps", "latency", "drops", "temperature", "update", "camera_front"} <= set(parts)
    assert parts["update"]["platform"] == "update"
    assert parts["camera_front"]["device_class"] == "connectivity"
    assert all({"platform", "unique_id", "name"} <= set(part) for part in parts.values())
    ids = [part["unique_id"] for part in parts.values()]
    assert len(set(ids)) == len(ids)


def test_each_value_that_a_sensor_reads_is_in_the_state(home: HomeAssistant) -> None:
    state = HomeState(
        fps=9.5,
        drops=3,
        latency_p95_ms=41.0,
        temperature_c=55.0,
        cameras={"front": CameraState(online=True, fps=9.5), "unheard of": CameraState(online=True)},
    )
    described, shown = content(home.discovery()), content(home.state(state))
    for part in described["components"].values():
        template = part.get("value_template", "")
        path = template.partition("value_json.")[2].split(" ")[0]
        value: Any = shown
        for step in path.replace("['", ".").replace("']", "").split("."):
            if step:
                assert step in value, f"{template} reads nothing"
                value = value[step]
    assert shown["cameras"]["front"]["online"]
    assert sum(camera["online"] for camera in shown["cameras"].values()) == 1


def test_the_update_entity_shows_rest_progress_and_outcome(home: HomeAssistant) -> None:
    assert update(home, "idle") == {"in_progress": False, "update_percentage": None}
    rest = update(home, "idle", active=OLD)
    assert (rest["installed_version"], rest["latest_version"], rest["in_progress"]) == ("3", "3", False)
    offered = update(home, "deferred", active=OLD, candidate=NEW)
    assert (offered["latest_version"], offered["in_progress"]) == ("4", False)
    fetching = update(home, "fetch", active=OLD, candidate=NEW, bytes_fetched=30, bytes_needed=120)
    assert (fetching["in_progress"], fetching["update_percentage"]) == (True, 25.0)
    trial = update(home, "trial", active=OLD, candidate=NEW, bytes_fetched=120, bytes_needed=120)
    assert (trial["in_progress"], trial["update_percentage"]) == (True, None)
    failed = update(home, "idle", active=OLD, result="failed_rolled_back", cause="error_rate")
    assert "error_rate" in failed["release_summary"]


@pytest.mark.parametrize(("fetched", "needed", "shown"), [(5, 0, None), (-5, 10, 0.0), (50, 10, 100.0)])
def test_a_share_stays_one(home: HomeAssistant, fetched: int, needed: int, shown: float | None) -> None:
    said = update(home, "fetch", candidate=NEW, bytes_fetched=fetched, bytes_needed=needed)
    assert said["update_percentage"] == shown


def test_names_that_home_assistant_does_not_take_stay_apart() -> None:
    first = HomeAssistant(DeviceTopics("s", "cam.7"), agent="1", cameras=())
    second = HomeAssistant(DeviceTopics("s", "cam:7"), agent="1", cameras=())
    for home in (first, second):
        level = home.discovery_topic.split("/")[2]
        assert level.replace("_", "").replace("-", "").isalnum()
    assert first.discovery_topic != second.discovery_topic


def test_it_is_kept_up_to_date_and_said_anew_to_a_broker_that_forgot(
    tmp_path: Path, home: HomeAssistant
) -> None:
    box = LinkedBox(tmp_path, home=home).open()
    box.run(1.0)
    assert home.state_topic not in box.broker.retained
    box.link.home_state(HomeState(fps=1.0, drops=0))
    box.run(1.0)
    box.link.home_state(HomeState(fps=2.0, drops=0))
    box.state.phase = "fetch"
    box.link.state_changed()
    box.run(1.0)
    assert [shown["fps"] for shown in box.said(home.state_topic)] == [1.0, 2.0]
    assert len(box.said(home.update_topic)) == 2
    box.broker.go_away()
    box.run()
    box.broker.come_back(memory=False)
    box.run(1.0)
    assert set(home.topics) <= set(box.broker.retained)


def test_switched_off_it_is_taken_back_once(tmp_path: Path, home: HomeAssistant) -> None:
    box = LinkedBox(tmp_path, home=home).open()
    box.link.home_state(HomeState(fps=1.0, drops=0))
    box.run(1.0)
    assert set(home.topics) <= set(box.broker.retained)
    box.restart(home=None)
    box.open().run(1.0)
    assert not set(home.topics) & set(box.broker.retained)
    before = len(box.broker.published)
    box.restart()
    box.open().run(1.0)
    assert not [m for m in box.broker.published[before:] if m.topic in home.topics]


def test_a_device_that_never_had_it_writes_nothing_there(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path).open()
    box.run(1.0)
    assert not [m for m in box.broker.published if m.topic.startswith("homeassistant")]


def test_a_device_that_was_renamed_takes_its_old_description_back(
    tmp_path: Path, home: HomeAssistant
) -> None:
    box = LinkedBox(tmp_path, home=home).open()
    box.run(1.0)
    renamed = HomeAssistant(DeviceTopics("plant-a", "cam-8"), agent="0.1.0", cameras=())
    box.restart(home=renamed)
    box.open().run(1.0)
    assert home.discovery_topic not in box.broker.retained
    assert renamed.discovery_topic in box.broker.retained
