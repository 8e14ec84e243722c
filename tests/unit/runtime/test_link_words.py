"""What is said, kept, shown and sent of it: levels, secrets, sizes, the words of the link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.clock import ManualClock
from vedette.config.agent import parse_config
from vedette.errors import ConfigError, StorageError, UnavailableError
from vedette.link.port import LinkStatus
from vedette.runtime.commands_bodies import shrink
from vedette.runtime.linking import broker_options
from vedette.runtime.log import KEPT_CHARS, Level, Log, LogLine
from vedette.runtime.paused_cameras import PausedCameras
from vedette.runtime.public_config import HIDDEN, public_config
from vedette.runtime.reporting_duties import LinkWords

if TYPE_CHECKING:
    from pathlib import Path

SAID = {
    Level.ERROR: LogLine(Level.ERROR, "given up"),
    Level.WARNING: LogLine(Level.WARNING, "tried again"),
    Level.INFO: "plain",
    Level.DEBUG: LogLine(Level.DEBUG, "all the time"),
}
CONFIG = """
state_dir: state
model: {factory: models/person}
cameras:
  front: {input: "rtsp://admin:${CAM}@10.0.0.7/live?token=abc"}
mqtt:
  host: broker
  username: cam-7
  password: hunter2
update: {metadata: "https://user:pw@updates.example/repo", root: 1.root.json, via: [http, mqtt]}
"""


@pytest.mark.parametrize("level", list(Level))
def test_a_level_includes_those_before_it(level: Level) -> None:
    written: list[str] = []
    log = Log(written.append, ManualClock())
    log.level = level
    for line in SAID.values():
        log.say(line)
    assert len(written) == list(Level).index(level) + 1
    assert [kept.level for kept in log.newest()] == list(SAID), "what is not shown is kept for a diagnosis"


def test_what_is_kept_of_the_past_is_bounded() -> None:
    clock = ManualClock()
    log = Log(lambda _text: None, clock)
    for number in range(2000):
        log.say(f"{number:05d} " + "x" * 200)
        clock.advance_s(1)
    kept = log.newest()
    assert sum(len(line.text) for line in kept) <= KEPT_CHARS
    assert (kept[-1].text[:5], kept[-1].age_s) == ("01999", 1.0)


def test_a_configuration_that_is_shown_holds_no_secret(tmp_path: Path) -> None:
    text = CONFIG.replace("  front:", "  front:", 1).replace(
        "model: {factory: models/person}", "model: {factory: models/person, name: person}"
    )
    config = parse_config(text, origin=tmp_path / "agent.yaml", environ={"CAM": "s3cret"})
    shown = msgspec.json.encode(public_config(config)).decode()
    for secret in ("hunter2", "s3cret", "user:pw", "token=abc"):
        assert secret not in shown
    assert public_config(config)["mqtt"]["password"] == HIDDEN
    assert public_config(config)["mqtt"]["username"] == "cam-7"
    assert "10.0.0.7/live" in shown


def mqtt_of(tmp_path: Path, section: str) -> Any:  # noqa: ANN401 - MqttConfig, never None here
    text = f"state_dir: s\nmodel: {{factory: m}}\ncameras: {{a: {{input: a.mp4}}}}\nmqtt: {section}\n"
    return parse_config(text, origin=tmp_path / "agent.yaml", environ={}).mqtt


def test_the_broker_is_reached_as_configured(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pa ss\n")
    section = '{host: "[::1]", username: u, password_file: secret, tls: {ca: ca.pem}, keepalive_s: 9}'
    options = broker_options(mqtt_of(tmp_path, section), "cam-7")
    assert (options.host, options.port, options.client_id) == ("::1", 8883, "cam-7")
    assert (options.username, options.password, options.keepalive_s) == ("u", "pa ss", 9)
    assert options.tls is not None
    assert options.tls.ca == str(tmp_path / "ca.pem")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines\n", b"\xff\xfe", b"x" * 5000])
def test_a_password_file_that_holds_none_is_an_error_with_its_name(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match=r"mqtt\.password_file.*secret"):
        broker_options(mqtt_of(tmp_path, "{host: b, username: u, password_file: secret}"), "cam-7")


def test_paused_cameras_are_known_after_a_restart(tmp_path: Path) -> None:
    before = PausedCameras(tmp_path / "link")
    before.read()
    before.change("front", paused=True)
    before.change("back", paused=True)
    before.change("back", paused=False)
    before.change("front", paused=True)
    after = PausedCameras(tmp_path / "link")
    after.read()
    assert after.names == {"front"}
    assert after.fault == ""


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b'{"a": 1}', b"[" * 10000])
def test_a_damaged_list_pauses_nobody_and_says_so(tmp_path: Path, content: bytes) -> None:
    paused = PausedCameras(tmp_path)
    (tmp_path / "paused-cameras.json").write_bytes(content)
    paused.read()
    assert not paused.names
    assert "no camera is paused" in paused.fault
    paused.change("front", paused=True)
    assert paused.names == {"front"}


def test_a_disk_that_refuses_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("a file where a folder should be")
    paused = PausedCameras(tmp_path / "link")
    with pytest.raises(StorageError):
        paused.change("front", paused=True)
    assert not paused.names


BODY = {"id": 1, "log": [f"line {number}" for number in range(200)], "status": {"update": "u" * 500, "v": 1}}
CUTS = (("log",), ("status", "update"), ("nowhere",), ("status",))


@given(room_bytes=st.integers(60, 4000))
def test_a_body_that_is_too_large_loses_parts_in_order_and_says_which(room_bytes: int) -> None:
    body = shrink({**BODY, "status": dict(BODY["status"])}, CUTS, room_bytes)  # type: ignore[call-overload]
    assert len(msgspec.json.encode(body)) <= room_bytes
    left_out = body.get("left_out", [])
    assert left_out == ["log", "status.update", "status"][: len(left_out)]
    if "log" in body:
        assert body["log"] == BODY["log"][: len(body["log"])]  # type: ignore[index]
    if not left_out:
        assert body == BODY


def test_a_body_that_cannot_fit_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="the broker has room for 10"):
        shrink({"id": 1, "must": "x" * 100}, (("log",),), 10)


def status(**changes: Any) -> LinkStatus:  # noqa: ANN401 - fields of LinkStatus
    fields: dict[str, Any] = {
        "connected": False, "broker": "b:1883", "protocol": 0, "since_s": 1.0, "last_loss": "", "connects": 0,
        "waiting_events": 0, "waiting_reports": 0, "waiting_bytes": 0, "dropped_reports": 0,
        "dropped_results": 0, "set_aside": 0, "bad_messages": {}, "commands": {},
    }  # fmt: skip
    return LinkStatus(**{**fields, **changes})


def test_the_link_says_when_the_broker_comes_and_goes_and_a_cause_once() -> None:
    words = LinkWords()
    refused = status(last_loss="refused: nobody listens (attempt 1)")
    again = status(last_loss="refused: nobody listens (attempt 2)")
    up = status(connected=True, protocol=5, connects=1, last_loss="refused: nobody listens (attempt 2)")
    assert words.follow(status()) == []
    assert [str(line) for line in words.follow(refused)] == [
        f"mqtt: no connection to b:1883: {refused.last_loss}"
    ]
    assert words.follow(again) == []
    assert words.follow(up) == ["mqtt: connected to b:1883, MQTT 5"]
    assert words.follow(up) == []
    assert len(words.follow(refused)) == 1
    assert len(words.follow(status(last_loss="auth: bad password"))) == 1


def test_a_broker_of_the_old_protocol_is_said_once() -> None:
    words = LinkWords()
    old = status(connected=True, protocol=4, connects=1)
    first = words.follow(old)
    assert [isinstance(line, LogLine) for line in first] == [False, True]
    assert "3.1.1 only" in first[1]
    words.follow(status(last_loss="closed: bye"))
    assert len(words.follow(msgspec.structs.replace(old, connects=2))) == 1
