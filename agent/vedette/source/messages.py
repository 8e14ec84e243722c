"""What the daemon and a source child say to each other. Pure."""

from __future__ import annotations

import msgspec

from vedette.source.port import SourceInfo


class UseRing(msgspec.Struct, frozen=True, tag=True):
    """Write into the ring whose descriptors come along."""


class RefuseRing(msgspec.Struct, frozen=True, tag=True):
    """There is no memory for frames of that size; the child counts them as `oversize`."""

    reason: str


class StopSource(msgspec.Struct, frozen=True, tag=True):
    """End now; the frame in hand is not published."""


ToSource = UseRing | RefuseRing | StopSource


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The input is open; a ring with slots of `slot_bytes` is needed."""

    info: SourceInfo
    slot_bytes: int


class NeedRing(msgspec.Struct, frozen=True, tag=True):
    """Frames became larger than the slots; the old ring gets no more frames."""

    slot_bytes: int


class Remark(msgspec.Struct, frozen=True, tag=True):
    """A sentence for a person."""

    text: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The regular end of the input."""


class SourceFailed(msgspec.Struct, frozen=True, tag=True):
    """The input cannot be used. `retry` says whether trying again can help."""

    exit_code: int
    cause: str
    cure: str | None
    retry: bool


FromSource = Opened | NeedRing | Remark | Ended | SourceFailed
