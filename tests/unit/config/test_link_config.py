"""The sections `mqtt`, `telemetry` and `http`."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.config.agent import AgentConfig, parse_config
from vedette.errors import ConfigError

BASE = "model: {factory: m}\ncameras: {a: {input: clip.mp4}}\n"
STATE = "state_dir: /var/lib/v\n"


def parsed(text: str) -> AgentConfig:
    return parse_config(BASE + text, origin=Path("/etc/vedette/agent.yaml"), environ={"SECRET": "s3"})


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return "\n".join(caught.value.problems)


def test_a_broker_is_a_name_and_the_port_follows_from_tls() -> None:
    plain = parsed(STATE + "mqtt: {host: broker}").mqtt
    secure = parsed(STATE + "mqtt: {host: broker, tls: {ca: ca.pem}}").mqtt
    assert plain is not None
    assert secure is not None
    assert (plain.effective_port, secure.effective_port) == (1883, 8883)
    assert secure.tls is not None
    assert secure.tls.ca == "/etc/vedette/ca.pem"


def test_a_password_comes_from_the_environment() -> None:
    config = parsed(STATE + "mqtt: {host: b, username: u, password: '${SECRET}'}").mqtt
    assert config is not None
    assert (config.username, config.password) == ("u", "s3")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mqtt: {host: broker}", "needs `state_dir`"),
        (STATE + "mqtt: {host: 'mqtt://broker'}", "name or address alone"),
        (STATE + "mqtt: {host: 'broker:1883'}", "name or address alone"),
        (STATE + "mqtt: {host: b, password: x}", "needs `username`"),
        (STATE + "mqtt: {host: b, username: u, password: x, password_file: y}", "one too many"),
        (STATE + "mqtt: {host: b, tls: {cert: c.pem}}", "needs `key` too"),
        (STATE + "mqtt: {host: b, outbox: 1KB}", "at least 256KB"),
        (STATE + "http: {listen: '0.0.0.0:80'}", "can be reached by others"),
        (STATE + "http: {listen: '192.168.1.4:80'}", "can be reached by others"),
        (STATE + "http: {listen: 'unix:relative'}", "expected"),
        (STATE + "http: {listen: 'unix:/" + "d" * 107 + "'}", "has 108 bytes; a socket's may have 107"),
        (STATE + "limits: {ring_memory: 40MB}\nhttp: {}", "8 waiting requests of 6,220,800 bytes are"),
        ("http: {}", "needs `state_dir` or `control.socket`"),
        (STATE + "telemetry: {max_report: 100B}", "1KiB to 256KiB"),
        (STATE + "update: {root: r, via: [mqtt]}", "there is no `mqtt` section"),
        (STATE + "update: {root: r}", "`via` is [mqtt]"),
        (STATE + "update: {root: r, metadata: repo, via: [http, http]}", "names a way twice"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, words: str) -> None:
    assert words in problem(text)


@pytest.mark.parametrize("listen", ["127.0.0.1:9477", "[::1]:80", "localhost:1", "unix:/run/v/http.sock"])
def test_the_door_opens_to_this_box_only(listen: str) -> None:
    config = parsed(STATE + f"http: {{listen: '{listen}'}}").http
    assert config is not None
    assert config.listen == listen


def test_no_camera_may_take_the_name_of_the_door() -> None:
    text = "model: {factory: m}\nstate_dir: /s\ncameras: {http: {input: clip.mp4}}\nhttp: {}\n"
    with pytest.raises(ConfigError) as caught:
        parse_config(text, origin=Path("a.yaml"), environ={})
    assert "the HTTP door's own frames" in caught.value.problems[0]


def test_a_box_with_a_door_needs_no_camera() -> None:
    """Others bring the frames; a camera that is there and wrong is another matter."""
    text = "model: {factory: m}\nstate_dir: /s\nhttp: {}\n"
    assert parse_config(text + "cameras: {}\n", origin=Path("a.yaml"), environ={}).cameras == {}
    with pytest.raises(ConfigError) as caught:
        parse_config("model: {factory: m}\ncameras: {a: {inptu: x}}\n", origin=Path("a.yaml"), environ={})
    assert not any("names none" in problem for problem in caught.value.problems)


def test_blocks_over_mqtt_need_no_repository_url() -> None:
    text = (
        "model: {factory: m, name: person}\nstate_dir: /s\ncameras: {a: {input: clip.mp4}}\n"
        "mqtt: {host: b}\nupdate: {root: r.json, via: [mqtt]}\n"
    )
    update = parse_config(text, origin=Path("/e/a.yaml"), environ={}).update
    assert update is not None
    assert update.metadata is None
    assert update.via == ("mqtt",)
