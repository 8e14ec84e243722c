"""Real pictures for calibration, agreement figures and golden inputs, all RGB uint8 HxWx3.

Two folders are read: `--clips` holds the clips and the CIFAR-10 archive named in README.md, `--pictures` is
scikit-image's `data` folder (its photographs are CC0 or public domain).
"""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

CLIPS = ("vtest.avi", "bikes.mp4", "carphone_pristine.mp4")
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "motorcycle_left")


def photograph(folder: Path, name: str) -> Picture:
    """Read one photograph by its stem."""
    matches = sorted(folder.glob(f"{name}.*"))
    if not matches:
        raise SystemExit(f"{folder}: no picture named {name}; give scikit-image's data folder as --pictures")
    with Image.open(matches[0]) as image:
        return np.asarray(image.convert("RGB"))


def clip_frames(folder: Path, name: str, every: int) -> list[Picture]:
    """Every n-th frame of a clip."""
    capture = cv2.VideoCapture(str(folder / name))
    frames: list[Picture] = []
    index = 0
    try:
        while True:
            good, frame = capture.read()
            if not good:
                break
            if index % every == 0:
                frames.append(np.ascontiguousarray(frame[:, :, ::-1]))
            index += 1
    finally:
        capture.release()
    if not frames:
        raise SystemExit(f"{folder / name}: no frame could be read")
    return frames


def cifar(folder: Path, start: int, count: int) -> list[tuple[Picture, str]]:
    """`count` labelled CIFAR-10 test pictures in name order, spread over the classes."""
    with zipfile.ZipFile(folder / "cifar10_test_5000.zip") as archive:
        by_number = sorted(archive.namelist(), key=lambda name: (name.split("/")[1], name))
        chosen = by_number[start : start + count]
        return [
            (np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")), name.split("/")[0])
            for name in chosen
        ]


def squares(picture: Picture, count: int, seed: int) -> list[Picture]:
    """Random square crops between half and the whole of the shorter side."""
    rng = np.random.default_rng(seed)
    height, width = picture.shape[:2]
    crops = []
    for _ in range(count):
        side = int(rng.integers(min(height, width) // 2, min(height, width), endpoint=True))
        top = int(rng.integers(0, height - side, endpoint=True))
        left = int(rng.integers(0, width - side, endpoint=True))
        crops.append(picture[top : top + side, left : left + side])
    return crops


def center_square(picture: Picture) -> Picture:
    """The largest centred square."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[top : top + side, left : left + side]


def resized(picture: Picture, width: int, height: int) -> Picture:
    """The picture at exactly this size, antialiased when it shrinks."""
    smaller = width < picture.shape[1]
    mode = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return np.ascontiguousarray(
        cv2.resize(np.ascontiguousarray(picture), (width, height), interpolation=mode)
    )


def letterboxed(picture: Picture, side: int, level: int) -> Picture:
    """The whole picture, centred in a square with borders of one grey level."""
    height, width = picture.shape[:2]
    scale = side / max(height, width)
    inner = resized(picture, round(width * scale), round(height * scale))
    square = np.full((side, side, 3), level, np.uint8)
    top, left = (side - inner.shape[0]) // 2, (side - inner.shape[1]) // 2
    square[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
    return square


def mixture(clips: Path, photographs: Path, *, offset: int, cifar_count: int, crops: int) -> list[Picture]:
    """Square pictures of all three kinds; another offset gives other pictures.

    `offset` 0 and 1 share no CIFAR picture and no frame of a clip; the photographs' crops differ.
    """
    found = [picture for picture, _ in cifar(clips, offset * 2500, cifar_count)]
    for name in CLIPS:
        frames = clip_frames(clips, name, 5)[offset::2]
        found += [center_square(frame) for frame in frames]
    for index, name in enumerate(PHOTOGRAPHS):
        found += squares(photograph(photographs, name), crops, seed=100 * offset + index)
    return found
