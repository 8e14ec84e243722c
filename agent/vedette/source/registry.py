"""Which source reads which input: an explicit table, resolved on use."""

from __future__ import annotations

import difflib
import glob
import importlib
import math
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from vedette.errors import BadInputError, ConfigError
from vedette.source.package_files import SCHEME as PACKAGE_SCHEME
from vedette.source.package_files import resolve_package_file
from vedette.source.urls import redact_url
from vedette.source.v4l2 import is_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.source.port import Source, SourceSpec

# kind -> module:function(path_or_url, spec). OpenCV is only imported when one of them is opened.
OPENERS: dict[str, str] = {
    "pipe": "vedette.source.pipes:open_pipe",
    "rawvideo": "vedette.source.pipes:open_rawvideo",
    "y4m": "vedette.source.pipes:open_y4m",
    "mjpeg": "vedette.source.pipes:open_mjpeg",
    "pictures": "vedette.source.pictures:open_pictures",
    "file": "vedette.source.opencv:open_file",
    "stream": "vedette.source.opencv:open_stream",
    "device": "vedette.source.opencv:open_device",
    "synthetic": "vedette.source.synthetic:open_synthetic",
}
CONTAINERS = ("y4m", "rawvideo", "mjpeg")
STREAM_SCHEMES = frozenset({"rtsp", "rtsps", "http", "https", "rtmp", "rtmps", "udp", "tcp", "rtp", "srt"})
# Those that are connected to; the others may listen, so an address without a host makes sense there.
HOSTED_SCHEMES = frozenset({"rtsp", "rtsps", "http", "https", "rtmp", "rtmps"})
PIPES = ("-", "/dev/stdin", "/dev/fd/")
KIND_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".txt"), "pictures"),
    **dict.fromkeys((".yuv", ".raw", ".rgb", ".bgr", ".nv12", ".gray"), "rawvideo"),
    ".y4m": "y4m",
    ".mjpeg": "mjpeg",
    ".mjpg": "mjpeg",
}


def open_source(spec: SourceSpec) -> Source:
    """Open the input of a camera entry or of the `pipe` command.

    Raises:
        ConfigError: The entry makes no sense; the option to give or change is named.
        BadInputError: The input exists and is not what it should be, or a file does not exist.
        SourceLostError: A camera, stream or pipe is away or mute; trying again may help.
    """
    check_spec(spec)
    kind, where = kind_of(spec)
    if kind in CONTAINERS and not spec.container:
        spec = msgspec.structs.replace(spec, container=kind)
    module, _, function = OPENERS[kind].partition(":")
    opener: Callable[[str, SourceSpec], Source] = getattr(importlib.import_module(module), function)
    return opener(where, spec)


def check_spec(spec: SourceSpec) -> None:
    """Refuse what makes no sense, all of it at once.

    Raises:
        ConfigError: `problems` holds every one found.
    """
    problems = []
    if not spec.input:
        problems.append("`input` is empty; give a URL, device, file, folder, FIFO or `-`")
    if spec.container and spec.container not in CONTAINERS:
        near = difflib.get_close_matches(spec.container, CONTAINERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(CONTAINERS)}"
        problems.append(f"container {spec.container!r} is unknown; {hint}")
    if spec.width < 0 or spec.height < 0 or bool(spec.width) != bool(spec.height):
        problems.append(f"a size of {spec.width}x{spec.height}; give --size WxH with both above 0")
    if not (math.isfinite(spec.fps) and spec.fps >= 0):
        problems.append(f"fps {spec.fps} is no rate; 0 means no cap")
    problems += [
        f"{name} {value} is no time in seconds above 0"
        for name, value in (("stall_s", spec.stall_s), ("open_timeout_s", spec.open_timeout_s))
        if not (math.isfinite(value) and value > 0)
    ]
    if (spec.strides or spec.padded_height) and spec.container not in ("", "rawvideo"):
        problems.append(f"strides are for raw video; {spec.container} says its own geometry")
    if problems:
        raise ConfigError(f"camera {spec.camera!r} makes no sense", problems=tuple(problems))


def kind_of(spec: SourceSpec) -> tuple[str, str]:
    """The kind of an input (a key of OPENERS), and the path or address to open.

    Raises:
        ConfigError: The input takes no container, or its address makes no sense.
        BadInputError: There is no such file.
    """
    text = spec.input
    if text.startswith("synthetic:"):
        return "synthetic", text
    if text.startswith(PIPES):
        return spec.container or "pipe", text
    if is_device(text):
        return "device", text
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if scheme is not None and scheme[1].lower() != "file":
        return _stream(spec, scheme[1].lower()), text
    if scheme is not None:
        text = text[len(scheme[0]) :]
    elif text.startswith(PACKAGE_SCHEME):
        text = str(resolve_package_file(text))
    return _kind_of_path(spec, Path(text)), text


def _stream(spec: SourceSpec, scheme: str) -> str:
    if scheme not in STREAM_SCHEMES:
        raise ConfigError(
            f"camera {spec.camera!r}: {redact_url(spec.input)} is of no protocol known here",
            cure=f"one of {', '.join(sorted(STREAM_SCHEMES))}",
        )
    if scheme in HOSTED_SCHEMES and not _host(spec):
        raise ConfigError(
            f"camera {spec.camera!r}: {redact_url(spec.input)} names no host",
            cure=f"write {scheme}://HOST/PATH as the camera's manual says",
        )
    if spec.container in ("y4m", "rawvideo"):
        raise ConfigError(
            f"camera {spec.camera!r}: {spec.container} is not read from a network address",
            cure="pipe it in: ffmpeg -i ADDRESS -f yuv4mpegpipe - | vedette-agent pipe --format y4m",
        )
    return "stream"


def _host(spec: SourceSpec) -> str:
    """The host of an address, empty without one.

    Raises:
        ConfigError: It is no address.
    """
    try:
        parts = urlsplit(spec.input)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(
            f"camera {spec.camera!r}: {redact_url(spec.input)} is no address: {error}",
            cure="write it as the camera's manual says; a `:`, `@` or `/` in a password is %3A, %40 or %2F",
        ) from error
    return parts.hostname or ""


def _kind_of_path(spec: SourceSpec, path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if glob.has_magic(str(path)):
            return "pictures"
        raise BadInputError(
            f"{path}: {error.strerror}", cure="check the path and the rights to it"
        ) from error
    if stat.S_ISDIR(mode):
        return "pictures"
    if stat.S_ISFIFO(mode) or spec.container:
        return spec.container or "pipe"
    return KIND_BY_SUFFIX.get(path.suffix.lower(), "file")
