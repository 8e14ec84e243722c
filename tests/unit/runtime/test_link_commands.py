"""What the fleet may ask of a box, carried out on a daemon with real children."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.processes import alive
from tests.stubs.running import Running, camera, plan, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.errors import BadInputError, UnavailableError
from vedette.runtime.commands import (
    AgentCommands,
    CameraArguments,
    LevelArguments,
    SnapshotArguments,
    parse_arguments,
)
from vedette.runtime.commands_diagnosis import Diagnosis
from vedette.runtime.commands_snapshot import Snapshots
from vedette.runtime.log import Level, Log
from vedette.runtime.paused_cameras import PausedCameras
from vedette.runtime.status import StatusDesk
from vedette.wire.plane import Command, CommandReply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.api.messages import AgentStatus

LIVE = "synthetic:320x240@30"
ROOM_BYTES = 200_000


class Asked:
    """A running daemon and its commands; `room_bytes` is what the broker takes."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        self.room_bytes = ROOM_BYTES
        self.folder = folder
        self.run = Running(
            plan(
                worker(stub_bundle(folder / "b")),
                camera("front", LIVE, live=True),
                camera("back", LIVE, live=True),
            )
        )
        daemon = self.run.daemon
        desk = StatusDesk(clock, device="box")
        daemon._on_tick = desk.tick
        self.log = Log(self.run.said.append, clock)
        self.paused = PausedCameras(folder / "link")
        self.commands = AgentCommands(
            daemon,
            desk,
            clock=clock,
            log=self.log,
            complete=_as_it_is,
            room_bytes=lambda: self.room_bytes,
            snapshots=Snapshots(daemon, desk, clock),
            diagnosis=Diagnosis(
                daemon, desk, log=self.log, config={"device": {"id": "box"}}, complete=_as_it_is
            ),
            paused=self.paused,
            updates=None,
        )

    def ask(self, name: str, **arguments: Any) -> Any:  # noqa: ANN401 - a JSON body
        """The body of a reply."""
        reply = self.commands.carry_out(name, Command(id="c-1", arguments=arguments))
        assert isinstance(reply, CommandReply)
        assert reply.ok
        assert reply.id == "c-1"
        return reply.body

    def state(self, name: str) -> str:
        """A camera's state, as `status` says."""
        states: dict[str, str] = {found["camera"]: found["state"] for found in self.ask("status")["cameras"]}
        return states[name]


def _as_it_is(status: AgentStatus) -> AgentStatus:
    return status


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """One daemon for all that changes nothing."""
    asked = Asked(tmp_path_factory.mktemp("asked"))
    with asked.run as run:
        run.until_answers("front")
        run.until_answers("back")
        yield asked


def test_a_ping_and_the_status_are_answered(asked: Asked) -> None:
    assert asked.ask("ping")["uptime_s"] > 0
    status = asked.ask("status")
    assert [found["camera"] for found in status["cameras"]] == ["front", "back"]
    assert status["model"]["name"] == "tiny"


def test_a_status_is_cut_for_a_broker_that_takes_little(asked: Asked) -> None:
    asked.room_bytes = 700
    try:
        status = asked.ask("status")
    finally:
        asked.room_bytes = ROOM_BYTES
    assert status["device"] == "box"
    assert "engine" in status["left_out"]


def decoded(body: dict[str, Any]) -> tuple[int, int]:
    """Width and height of the picture in a reply."""
    raw = np.frombuffer(base64.b64decode(body["picture"]), np.uint8)
    pixels = cv2.imdecode(raw, cv2.IMREAD_COLOR)
    assert pixels is not None
    return pixels.shape[1], pixels.shape[0]


def test_a_snapshot_is_the_cameras_newest_frame(asked: Asked) -> None:
    before = asked.run.counts("front").frames_in
    body = asked.ask("snapshot", camera="front")
    assert decoded(body) == (body["width"], body["height"]) == (320, 240)
    assert body["seq"] >= before
    assert 0 <= body["age_s"] < 10
    assert decoded(asked.ask("snapshot", camera="back", max_width=100)) == (100, 75)


def test_a_snapshot_gets_smaller_until_the_broker_takes_it(asked: Asked) -> None:
    asked.room_bytes = 6_000
    try:
        body = asked.ask("snapshot", camera="front")
    finally:
        asked.room_bytes = ROOM_BYTES
    assert decoded(body) == (body["width"], body["height"])
    assert len(body["picture"]) < 6_000


def test_a_snapshot_that_no_packet_can_carry_says_so(asked: Asked) -> None:
    asked.room_bytes = 900
    try:
        with pytest.raises(UnavailableError, match="no picture fits"):
            asked.ask("snapshot", camera="front")
    finally:
        asked.room_bytes = ROOM_BYTES


@pytest.mark.parametrize(
    ("name", "arguments", "cause"),
    [
        ("snapshot", {"camera": "side"}, "no camera `side`"),
        ("pause-camera", {"camera": "side"}, "no camera `side`"),
        ("snapshot", {"camera": "front", "max_width": 1}, "max_width"),
        ("snapshot", {"camera": "front", "max_width": 10**9}, "max_width"),
        ("snapshot", {"camera": "front", "max_width": "wide"}, "max_width"),
        ("snapshot", {}, "camera"),
        ("pause-camera", {"camera": 7}, "camera"),
        ("ping", {"now": True}, "now"),
        ("set-log-level", {"level": "loud"}, "loud"),
        ("set-log-level", {"level": None}, "level"),
        ("reboot", {}, "no command `reboot`"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_cause(
    asked: Asked, name: str, arguments: dict[str, Any], cause: str
) -> None:
    with pytest.raises(BadInputError, match=cause) as caught:
        asked.ask(name, **arguments)
    assert (
        caught.value.cure is not None or "status" in caught.value.cause or "max_width" in caught.value.cause
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    given=st.dictionaries(st.sampled_from(["camera", "level", "max_width", "x"]), json_values, max_size=4),
    wanted=st.sampled_from([CameraArguments, SnapshotArguments, LevelArguments]),
)
def test_arguments_are_what_they_should_be_or_refused(given: dict[str, Any], wanted: type[Any]) -> None:
    try:
        found = parse_arguments("any", given, wanted)
    except BadInputError as error:
        refused = error
    else:
        assert set(given) <= {"camera", "level", "max_width"}
        assert isinstance(getattr(found, "camera", ""), str)
        assert getattr(found, "level", "info") in {level.value for level in Level}
        return
    assert refused.cure is not None
    assert "takes" in refused.cure


def test_a_level_is_set_and_shown(asked: Asked) -> None:
    assert asked.ask("set-log-level", level="debug")["before"] == "info"
    asked.ask("ping")
    assert "command ping: done" in asked.run.said
    assert asked.ask("set-log-level", level="info")["before"] == "debug"


def test_a_diagnosis_tells_versions_settings_and_the_last_lines(asked: Asked) -> None:
    asked.log.say("camera at rtsp://admin:s3cret@10.0.0.7/live is slow")
    found = asked.ask("diagnose")
    assert found["packages"]["numpy"] == np.__version__
    assert found["status"]["engine"]["effective"] == "cpu"
    assert found["config"] == {"device": {"id": "box"}}
    assert "is slow" in found["log"][0]["text"]
    assert "s3cret" not in str(found)


def test_updates_are_not_looked_for_where_none_are_configured(asked: Asked) -> None:
    with pytest.raises(UnavailableError, match="without an `update` section"):
        asked.ask("check-updates")


def test_a_camera_pauses_and_comes_back_and_no_frame_is_lost_for_it(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    with asked.run as run:
        run.until_answers("front", 5)
        source = run.source_pid("front")
        for _ in range(2):
            assert asked.ask("pause-camera", camera="front") == {"camera": "front", "paused": True}
        until(lambda: asked.state("front") == "paused", "it is paused")
        assert not alive(source)
        run.until_answers("back", 10)
        paused = run.counts("front")
        assert (paused.in_flight, paused.failed) == (0, {})
        run.until_answers("back", 10)
        assert run.counts("front") == paused, "while it is paused nothing is counted"
        again = PausedCameras(tmp_path / "link")
        again.read()
        assert again.names == {"front"}
        for _ in range(2):
            asked.ask("resume-camera", camera="front")
        run.until_answers("front", 5)
        assert asked.state("front") == "running"
        restarts = {found["source_restarts"] for found in asked.ask("status")["cameras"]}
        assert restarts == {0}, "a pause is no death"
    assert set(asked.run.counts("front").dropped) <= {"superseded", "no_worker", "shutdown", "stale"}


def test_paused_and_resumed_at_once_it_runs(tmp_path: Path) -> None:
    """The child that was told to end must not take the camera with it."""
    asked = Asked(tmp_path)
    with asked.run as run:
        run.until_answers("front", 2)
        source = run.source_pid("front")
        asked.ask("pause-camera", camera="front")
        asked.ask("resume-camera", camera="front")
        until(lambda: not alive(source), "the first child ends")
        run.until_answers("front", 5)
        assert asked.state("front") == "running"


def test_a_camera_that_was_paused_before_the_start_is_never_opened(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    front = asked.run.daemon.cameras[0]
    assert front.pausable
    front.pause()
    with asked.run as run:
        run.until_answers("back", 5)
        assert (front.child, asked.state("front")) == (None, "paused")
        asked.ask("resume-camera", camera="front")
        run.until_answers("front", 2)


@pytest.mark.parametrize(
    ("source", "live", "pausable"),
    [
        ("film.mp4", None, False),
        ("film.mp4", True, True),
        ("rtsp://10.0.0.7/live", None, True),
        ("rtsp://10.0.0.7/live", False, False),
        ("/dev/video0", None, True),
        ("-", True, False),
    ],
)
def test_what_would_lose_or_repeat_frames_cannot_be_paused(
    tmp_path: Path, source: str, *, live: bool | None, pausable: bool
) -> None:
    """Asked before anything is open, as after a restart."""
    run = Running(plan(worker(stub_bundle(tmp_path / "b")), camera("one", source, live=live)))
    assert run.daemon.cameras[0].pausable is pausable
