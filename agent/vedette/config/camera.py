"""One camera of the configuration: its keys and their rules. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.notation import Seconds, SizePixels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vedette.config.yaml_tree import Problem

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def is_path(camera_input: str) -> bool:
    """Whether an input is a path: not `-`, no device number, and no URL or other `scheme:`."""
    return camera_input != "-" and not camera_input.isdigit() and _SCHEME.match(camera_input) is None


def home_problems(key: str, fields: Mapping[str, Any]) -> Iterator[Problem]:
    """A path that only a shell would understand."""
    path = fields.get(key)
    if path is not None and path.startswith("~"):
        yield (key,), "`~` is not filled in here; write the whole path, or ${HOME}"


class ReuseConfig(msgspec.Struct, frozen=True):
    """Give an answer again while nothing changes before the camera, for at most `max_age_s`.

    `check_share` of the frames that would get it are answered anew: how often would it have been wrong?
    """

    max_age_s: Seconds = 2.0
    check_share: Annotated[float, Meta(ge=0.001, le=1)] = 0.01


class CameraConfig(msgspec.Struct, frozen=True):
    """One camera. `fps` caps the rate, null is no cap.

    `max_age_ms`: older frames are dropped; null never, `auto` is 500 for live sources and null for files.
    """

    input: Annotated[str, Meta(min_length=1)]
    format: Literal["y4m", "rawvideo", "mjpeg"] | None = None
    size: SizePixels | None = None
    pix_fmt: (
        Literal[
            "bgr24", "rgb24", "bgra", "gray8", "gray16le", "yuv420p", "yuv422p", "yuv444p", "nv12", "yuyv422"
        ]
        | None
    ) = None
    strides: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    padded_height: Annotated[int, Meta(ge=1)] | None = None
    matrix: Literal["bt601", "bt709"] | None = None
    range: Literal["limited", "full"] | None = None
    fps: Annotated[float, Meta(gt=0, le=1000)] | None = None
    priority: Annotated[int, Meta(ge=0, le=1000)] = 1
    max_age_ms: Annotated[float, Meta(gt=0, le=86_400_000)] | Literal["auto"] | None = "auto"
    live: bool | Literal["auto"] = "auto"
    loop: bool = False
    stall_s: Seconds = 10.0
    slots: Annotated[int, Meta(ge=3, le=64)] = 4
    reuse: ReuseConfig | None = None

    @property
    def reads_stdin(self) -> bool:
        """Whether the frames come from standard input."""
        return self.input in _STDIN

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """Keys that are missing for this kind of input, and keys that would do nothing."""
        source, container = fields.get("input", ""), fields.get("format")
        if container == "rawvideo":
            for key in ("size", "pix_fmt"):
                if key in fields and fields[key] is None:
                    yield (key,), "is missing: raw video carries no header that tells it"
        else:
            yield from _idle_keys(fields, stream="://" in source)
        yield from home_problems("input", fields)
        live_by_nature = source in _STDIN or "://" in source or source.startswith("/dev/") or source.isdigit()
        if fields.get("loop") and live_by_nature:
            yield ("loop",), "only a file can be played again"


def _idle_keys(fields: Mapping[str, Any], *, stream: bool) -> Iterator[Problem]:
    """Geometry that nobody would look at: the input's own header tells it."""
    keys = ("size", "pix_fmt", "strides", "padded_height") if stream else ("strides", "padded_height")
    if stream or fields.get("format") is not None:
        for key in keys:
            if fields.get(key):
                yield (key,), "does nothing here: only `format: rawvideo` needs to be told"
