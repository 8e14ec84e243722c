"""What the daemon and the HTTP door's process say to each other. Pure.

The door is a source child: its ring is a lossless camera named DOOR, its requests are frames. Beyond what
every source says, the daemon sends it the outcomes of its frames, and views of the other cameras' rings. A
good answer may come from the engine worker itself, over the same channel, while the daemon only counts it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from vedette.engine.messages import Answers
from vedette.source.messages import FromSource, ToSource
from vedette.wire.messages import Result

__all__ = ["DOOR", "Answers", "DoorSpec", "FromDoor", "JsonBody", "Seen", "ToDoor", "Unview", "View"]

DOOR = "http"


class DoorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the door opens; travels as JSON on the command line.

    `listen` is `host:port` or `unix:PATH`. `control_socket` is where it asks the daemon for status, readiness
    and figures. `slot_bytes` and `slots` are the ring it asks for: the largest picture, and how many wait.
    A request's head must come within `head_timeout_s`; its body, and then its answer, within
    `request_timeout_s`, and some of the body in every `body_pause_s`.
    """

    listen: str
    control_socket: str
    slot_bytes: int = 3 * 1920 * 1080
    slots: int = 8
    request_timeout_s: float = 30.0
    head_timeout_s: float = 10.0
    body_pause_s: float = 5.0
    max_body_bytes: int = 32 << 20


class View(msgspec.Struct, frozen=True, tag=True):
    """The ring of another camera, to read along, with its descriptors; replaces an earlier one."""

    camera: str


class Unview(msgspec.Struct, frozen=True, tag=True):
    """That ring is no more."""

    camera: str


class Seen(msgspec.Struct, frozen=True, tag=True):
    """Answers of other cameras for the pages, newest wins; as many as fit."""

    results: tuple[Result, ...]


ToDoor = ToSource | Answers | View | Unview | Seen
FromDoor = FromSource

# Asked by the door over the control socket; see api.messages.
JsonBody = dict[str, Any]
