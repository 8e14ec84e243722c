"""`tools/demo.py` from start to end, and whether what it leaves behind and says is true."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cv2
import msgspec
import numpy as np
import pytest

from vedette.config.agent import load_config
from vedette.telemetry.summary import RunSummary
from vedette.vision.annotate import colour_of
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = [pytest.mark.engine, pytest.mark.system, pytest.mark.timeout(480)]

CHECKOUT = Path(__file__).resolve().parents[2]
DEMO = CHECKOUT / "tools" / "demo.py"
FLEET = Path(sys.executable).with_name("vedette-fleet")
TIMEOUT_S = 420
FRAMES = {"face": 120, "imagenet-litert": 250, "imagenet-onnx": 250}
FACE_SIZE = (176, 144)


class Shown(NamedTuple):
    """A finished demo."""

    out: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    out = tmp_path_factory.mktemp("demo") / "out"
    out.mkdir()
    (out / "face-9999.png").write_text("left by an earlier demo")
    (out / "mine.txt").write_text("not the demo's")
    done = subprocess.run(
        [sys.executable, str(DEMO), "--out", str(out)],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return Shown(out, done.stdout, done.stderr)


def results_of(shown: Shown, name: str) -> list[Result]:
    """Each line, decoded strictly."""
    lines = (shown.out / f"{name}.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Result, strict=True) for line in lines]


def read_picture(path: Path) -> NDArray[np.uint8]:
    picture = cv2.imread(str(path))
    assert picture is not None, path
    return np.asarray(picture, np.uint8)


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_one_line_and_the_figures_add_up(shown: Shown, name: str) -> None:
    """The equation in = ok + dropped + failed holds in figures and lines, and is what is printed."""
    results = results_of(shown, name)
    assert [result.seq for result in results] == list(range(1, FRAMES[name] + 1))
    summary = msgspec.json.decode((shown.out / f"{name}.summary.json").read_bytes(), type=RunSummary)
    (camera,) = summary.cameras
    dropped, failed = sum(camera.dropped.values()), sum(camera.failed.values())
    assert camera.frames_in == camera.ok + dropped + failed == FRAMES[name]
    assert summary.imbalance == {}
    said = f"in {camera.frames_in} = ok {camera.ok} + dropped {dropped} + failed {failed}"
    assert re.search(rf"{name} +{re.escape(said)}", shown.stdout)
    assert summary.engine is not None
    assert f"runs on {summary.engine.effective}: {summary.engine.runtime}" in shown.stdout


def test_faces_lie_inside_the_frame_with_their_key_points(shown: Shown) -> None:
    """One face in every frame of this clip, where faces are: boxes in pixels of the frame, six key points."""
    width, height = FACE_SIZE
    for result in results_of(shown, "face"):
        (face,) = result.detections or ()
        x1, y1, x2, y2 = face.box
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert face.label == "face"
        assert 0.5 <= face.score <= 1
        points = face.keypoints or ()
        assert len(points) == 6
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_the_engines_are_compared_over_the_same_frames(shown: Shown) -> None:
    """The share that is printed is the share in the lines, and it is no share of the same engine twice."""
    litert, onnx = results_of(shown, "imagenet-litert"), results_of(shown, "imagenet-onnx")
    pairs = [((one.top or ())[0], (other.top or ())[0]) for one, other in zip(litert, onnx, strict=True)]
    same = sum(one.index == other.index for one, other in pairs)
    sure = [one.index == other.index for one, other in pairs if one.score >= 0.5]
    assert f"Same class first: {same} of 250 frames ({same / 250:.0%})." in shown.stdout
    assert f"Where LiteRT gives 50% or more: {sum(sure)} of {len(sure)}" in shown.stdout
    assert sum(sure) >= 0.9 * len(sure) > 0
    assert {result.model.sha256 for result in litert}.isdisjoint(result.model.sha256 for result in onnx)


def test_the_table_shows_the_quantiles_of_the_lines(shown: Shown) -> None:
    """p50 and p95 of the engine's time for both, recomputed from the results."""
    row = next(line for line in shown.stdout.splitlines() if line.strip().startswith("infer"))
    printed = [float(figure) for figure in re.findall(r"\d+\.\d+|\d+", row)]
    expected = []
    for name in ("imagenet-litert", "imagenet-onnx"):
        times = [result.latency_ms.infer for result in results_of(shown, name) if result.latency_ms]
        expected += [float(np.percentile(times, share)) for share in (50, 95)]
    assert printed == pytest.approx(expected, rel=0.06)


def test_the_pictures_show_the_frames_with_something_drawn_on_them(shown: Shown) -> None:
    """Six pictures and the sheet that holds them; a face's box is where its line says."""
    faces, scenes = sorted(shown.out.glob("face-*.png")), sorted(shown.out.glob("scene-*.png"))
    assert (len(faces), len(scenes)) == (3, 3)
    results = results_of(shown, "face")
    for path in faces:
        picture = read_picture(path)
        scale = picture.shape[1] / FACE_SIZE[0]
        (face,) = results[int(path.stem.partition("-")[2]) - 1].detections or ()
        x1, y1, x2, y2 = (round(side * scale) for side in face.box)
        for edge in (picture[y1:y2, x1], picture[y1:y2, x2], picture[y1, x1:x2], picture[y2, x1:x2]):
            assert (np.abs(edge.astype(int) - colour_of(face.index)) < 30).all(axis=1).mean() > 0.6
    sheet = read_picture(shown.out / "demo.png")
    assert sheet.shape[1] > 3 * 640
    assert sheet.std() > 20


def test_nothing_old_stays_and_nothing_of_others_goes(shown: Shown) -> None:
    """A picture of an earlier demo would pass for a new one; other files are none of its business."""
    assert not (shown.out / "face-9999.png").exists()
    assert (shown.out / "mine.txt").read_text() == "not the demo's"


def test_its_configurations_are_good_ones(shown: Shown) -> None:
    """They can be run again as they stand, from the folder they are in."""
    for name in FRAMES:
        config = load_config(shown.out / f"{name}.yaml", {})
        assert (Path(config.model.factory) / "model.yaml").exists()


def test_a_box_with_nothing_but_mqtt_was_watched_and_updated(shown: Shown) -> None:
    """Each thing that is promised was seen, in its order, and seconds only rise."""
    seen = re.findall(r"^ +(\d+\.\d) s  (\w+) ", shown.stderr, re.MULTILINE)
    assert [word for _, word in seen] == [
        *("birth", "telemetry", "announced", "fetched", "trial", "confirmed", "telemetry", "goodbye")
    ]
    assert sorted(float(second) for second, _ in seen) == [float(second) for second, _ in seen]
    config = load_config(shown.out / "over-mqtt" / "agent.yaml", {})
    assert config.update is not None
    assert (config.update.via, config.update.metadata, config.http) == (("mqtt",), None, None)


def test_no_frame_was_lost_while_the_model_changed(shown: Shown) -> None:
    """What is printed is what the lines say: the old model's answers, then the new one's, each frame once."""
    results = results_of(shown, "over-mqtt/results")
    versions = [result.model.version for result in results]
    old, new = versions.count("1"), versions.count("2")
    assert versions == ["1"] * old + ["2"] * new
    assert min(old, new) > 10
    numbers = [result.seq for result in results]
    assert len(set(numbers)) == len(numbers)
    assert f"{old} by version 1, up to frame {numbers[old - 1]}" in shown.stdout
    assert f"{new} by version 2, from frame {numbers[old]} on" in shown.stdout
    assert re.search(rf"lost in between +{numbers[old] - numbers[old - 1] - 1}\b", shown.stdout)
    content = (shown.out / "over-mqtt" / "summary.json").read_bytes()
    (camera,) = msgspec.json.decode(content, type=RunSummary).cameras
    assert camera.frames_in == camera.ok + sum(camera.dropped.values())
    assert camera.ok == len(results)


def test_the_model_came_as_the_delta_that_was_published(shown: Shown) -> None:
    """The same release again changes nothing, and says what a device fetches of it."""
    folder = shown.out / "over-mqtt"
    done = subprocess.run(
        [FLEET, "release", folder / "person-2", "--owner", "demo", "--repo", folder / "repo", "--json"],
        check=True,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    fetched = {entry["from"]: entry["bytes"] for entry in msgspec.json.decode(done.stdout)["fetched"]}
    came, full = (
        int(figure.replace(",", ""))
        for figure in re.findall(r"([\d,]+) bytes came as a delta, in full it is ([\d,]+)", shown.stdout)[0]
    )
    assert full == fetched[""]
    assert fetched["1"] <= came <= 2 * fetched["1"] < full / 10


def test_nothing_is_left_running(shown: Shown) -> None:
    """No agent, no server, no broker."""
    mine = str(shown.out).encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mine in content_of(path)]
    assert left == []


def content_of(path: Path) -> bytes:
    """What a process was started with; nothing when it has ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_what_the_large_model_said_is_what_the_lines_say(shown: Shown) -> None:
    """Outcomes, figures, and how much a call bought: all recomputed from the lines."""
    lines = results_of(shown, "escalate")
    local: dict[int, Result] = {}
    told: list[tuple[Result, Result]] = []
    for line in lines:
        if line.seq not in local:
            local[line.seq] = line
        elif line.source == "cloud":
            told.append((local[line.seq], line))
    assert len(told) >= 5
    for before, after in told:
        assert after.escalation is not None
        assert before.top
        assert after.top
        same = before.top[0].label == after.top[0].label
        assert after.escalation.outcome == ("agreed" if same else "answered")
    for reason, words in (("uncertain", "an unsure one"), ("audit", "one at random")):
        found = [
            after.escalation for _, after in told if after.escalation and after.escalation.reason == reason
        ]
        corrected = sum(one.outcome == "answered" for one in found)
        row = next(line for line in shown.stdout.splitlines() if line.strip().startswith(words))
        assert (f"{corrected} of {len(found)} answers corrected" in row) or not found
    summary = msgspec.json.decode((shown.out / "escalate.summary.json").read_bytes(), type=RunSummary)
    assert summary.escalation is not None
    assert f"{summary.escalation.calls[1]} calls" in shown.stdout
    assert summary.imbalance == {}


def test_progress_is_said_apart_from_the_findings(shown: Shown) -> None:
    """Commands and steps on standard error; tables and next steps on standard output."""
    assert "[1/6]" in shown.stderr
    assert shown.stderr.count("run --config") == 5
    assert "[1/6]" not in shown.stdout
    assert "Try next" in shown.stdout


def test_the_files_and_bundles_it_points_to_exist(shown: Shown) -> None:
    """What is suggested next can be pasted."""
    commands = [line.strip() for line in shown.stdout.splitlines() if "vedette-agent" in line]
    assert len(commands) == 3
    for command in commands:
        for word in shlex.split(command):
            if word.startswith(("agent/", "models/")):
                assert (CHECKOUT / word).exists()


def test_a_folder_that_cannot_be_written_ends_it_at_once(tmp_path: Path) -> None:
    """Exit 69 with cause and cure, before any minute is spent."""
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, str(DEMO), "--out", str(tmp_path / "file" / "out")],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 69
    assert "cannot write to" in done.stderr
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_others_is_not_taken_for_the_demos_own(tmp_path: Path) -> None:
    """It would be removed with all that is in it."""
    theirs = tmp_path / "over-mqtt" / "notes.txt"
    theirs.parent.mkdir()
    theirs.write_text("mine")
    done = subprocess.run(
        [sys.executable, str(DEMO), "--out", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 69
    assert "was not made by the demo" in done.stderr
    assert theirs.read_text() == "mine"


def test_a_run_that_fails_fails_the_demo_with_what_the_agent_said(tmp_path: Path) -> None:
    """A checkout without its models: the agent's own words, the command to repeat, and no pictures."""
    shutil.copytree(CHECKOUT / "tools", tmp_path / "tools")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "tools" / "demo.py"), "--out", "out"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 69
    assert "the agent ended with exit code" in done.stderr
    assert "models/face" in done.stderr
    assert "run it by hand" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").glob("*.png"))
