"""Video4Linux devices: which node is meant, why it cannot be opened, what it really delivers."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from vedette.errors import ConfigError, SourceLostError
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from vedette.source.port import SourceSpec

DEVICE_PREFIX = "/dev/"
FOURCC_BY_PIXEL = {
    PixelFormat.YUYV422: "YUYV",
    PixelFormat.NV12: "NV12",
    PixelFormat.YUV420P: "YU12",
    PixelFormat.GRAY8: "GREY",
}
HINTS = {
    errno.EACCES: (
        "no right to open it",
        "join the group `video`; a service needs DeviceAllow=char-video4linux and SupplementaryGroups=video",
    ),
    errno.EPERM: (
        "no right to open it",
        "the service's device rules forbid it: DeviceAllow=char-video4linux rw",
    ),
    errno.ENOENT: (
        "it does not exist",
        "is the camera plugged in? `ls -l /dev/v4l/by-id`; as a service, PrivateDevices= must be off",
    ),
    errno.EBUSY: ("another program uses it", "find it with `fuser -v` and stop it"),
    errno.ENODEV: ("the driver has no camera behind it", "plug it in again, or look at `dmesg`"),
    errno.ENXIO: ("the driver has no camera behind it", "plug it in again, or look at `dmesg`"),
}


def is_device(text: str) -> bool:
    """Whether an input names a capture device: `0`, `/dev/video0`, `/dev/v4l/by-id/...`."""
    return text.isascii() and (text.isdigit() or text.startswith(DEVICE_PREFIX))


def device_path(text: str) -> str:
    """The node meant; stable names under /dev/v4l are links, resolved at each opening (casebook 14)."""
    return f"/dev/video{int(text)}" if text.isdigit() else text


def check_device(path: str) -> str:
    """Open and close the node once, so that the reason of a failure is known (OpenCV only says no).

    Returns:
        The node's real path.

    Raises:
        SourceLostError: It cannot be opened now; missing, forbidden and busy are told apart.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason, cure = HINTS.get(error.errno or 0, (error.strerror or "it cannot be opened", None))
        raise SourceLostError(f"{path}: {reason}", cure=cure) from error
    os.close(fd)
    return os.path.realpath(path)


def requested_fourcc(spec: SourceSpec) -> str:
    """What to ask the device for: `container: mjpeg` means MJPG, else the pixel format; empty is its default.

    Raises:
        ConfigError: A pixel format that no V4L2 capture is asked for here.
    """
    if spec.container == "mjpeg":
        return "MJPG"
    if spec.container not in ("", "rawvideo"):
        raise ConfigError(f"camera {spec.camera!r}: a V4L2 device delivers no {spec.container!r}")
    if spec.pixel is None:
        return ""
    if spec.pixel not in FOURCC_BY_PIXEL:
        known = ", ".join(sorted(pixel.value for pixel in FOURCC_BY_PIXEL))
        raise ConfigError(
            f"camera {spec.camera!r}: a V4L2 device is not asked for {spec.pixel.value}",
            cure=f"one of {known}, or `container: mjpeg`",
        )
    return FOURCC_BY_PIXEL[spec.pixel]


def fourcc_name(code: float) -> str:
    """The four characters of OpenCV's number."""
    value = int(code)
    letters = bytes(value >> shift & 0xFF for shift in (0, 8, 16, 24)) if value > 0 else b""
    return letters.decode("ascii", "replace").strip("\x00 ")


def truth_notes(
    spec: SourceSpec, *, width: int, height: int, fps: float, fourcc: str, asked_fourcc: str
) -> tuple[str, ...]:
    """What the device did not give as asked, as sentences."""
    notes = []
    asked_size = (spec.width or width, spec.height or height)
    if asked_size != (width, height):
        notes.append(f"asked for {asked_size[0]}x{asked_size[1]}, the device gives {width}x{height}")
    if spec.fps and fps and fps < spec.fps * 0.95:
        notes.append(f"asked for {spec.fps:g} fps, the device gives {fps:g}")
    if asked_fourcc and fourcc and fourcc != asked_fourcc:
        notes.append(f"asked for {asked_fourcc}, the device gives {fourcc}")
    return tuple(notes)
