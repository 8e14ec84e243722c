"""The child process that makes one picture of a camera's newest frame, and ends.

Started as `python -m vedette.runtime.snapshot_child PARENT_PID SPEC`. It reads along in the ring like any
shadow, so that neither the camera nor the model is held up by it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import cv2
import msgspec

from vedette.errors import BadInputError, UnavailableError, VedetteError
from vedette.frame.lifeline import tie_to_parent
from vedette.frame.ring import Ring, RingHandles
from vedette.frame.shadow_reader import ShadowReader
from vedette.runtime.commands_snapshot import SnapshotHead, SnapshotSpec
from vedette.vision.picture import picture_from_buffer, to_bgr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

BEHIND_FRAMES = 10  # niceness
QUALITIES = (85, 70, 50)
MIN_WIDTH = 64


def take(spec: SnapshotSpec) -> tuple[SnapshotHead, bytes]:
    """The newest frame as a JPEG that fits.

    Raises:
        FrameError: Its descriptor is damaged.
        BadInputError: It is no picture.
        UnavailableError: It is overwritten faster than it can be copied, or does not fit at any size.
    """
    ring = Ring(RingHandles(spec.fds))
    lease = ShadowReader(ring, present=True).take()
    if lease is None:
        raise UnavailableError("the camera's frames are overwritten faster than they can be copied")
    if lease.frame_format.tensor:
        raise BadInputError("its newest frame is a tensor and no picture")
    pixels = to_bgr(picture_from_buffer(lease.pixels, lease.frame_format))
    width = pixels.shape[1] if spec.max_width is None else min(spec.max_width, pixels.shape[1])
    jpeg, quality, (shown_height, shown_width) = fitting_jpeg(pixels, width, spec.max_bytes)
    return SnapshotHead(lease.seq, lease.captured_ns, shown_width, shown_height, quality), jpeg


def fitting_jpeg(pixels: Pixels, width: int, max_bytes: int) -> tuple[bytes, int, tuple[int, int]]:
    """A JPEG of at most `max_bytes`, its quality, and its rows and columns.

    Raises:
        UnavailableError: It does not fit at any size that shows something.
    """
    while True:
        sized = _at_width(pixels, width)
        for quality in QUALITIES:
            jpeg = cv2.imencode(".jpg", sized, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
            if len(jpeg) <= max_bytes:
                return jpeg, quality, (sized.shape[0], sized.shape[1])
        if width <= MIN_WIDTH:
            raise UnavailableError(f"no picture fits in {max_bytes} bytes, which the broker has room for")
        width = max(MIN_WIDTH, width // 2)


def _at_width(pixels: Pixels, width: int) -> Pixels:
    height, full_width = pixels.shape[:2]
    if width >= full_width:
        return pixels
    rows = max(1, round(height * width / full_width))
    return cv2.resize(pixels, (width, rows), interpolation=cv2.INTER_AREA)  # type: ignore[no-any-return]


def main(arguments: list[str]) -> int:
    """Entry of the child process."""
    tie_to_parent(int(arguments[0]))
    os.nice(BEHIND_FRAMES)
    spec = msgspec.json.decode(arguments[1], type=SnapshotSpec)
    try:
        head, jpeg = take(spec)
    except VedetteError as error:
        sys.stderr.write(f"{error.cause}\n")
        return error.exit_code
    with os.fdopen(spec.into, "wb") as file:
        file.write(msgspec.json.encode(head) + b"\n" + jpeg)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
