"""The high-water marks on disk: two copies, the older one is replaced, each carries its digest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.trust.marks import Marks

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 1 << 20


class _Copy(msgspec.Struct, frozen=True):
    seq: int
    marks: Marks


class MarksFile:
    """`trust.rec.0` and `trust.rec.1` in a folder that exists.

    `lost` is true when copies are there and none is whole: the cache of metadata is then the only memory.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = (folder / "trust.rec.0", folder / "trust.rec.1")
        self._newest: _Copy | None = None
        self._newest_index = 1
        self.lost = False

    def read(self) -> Marks | None:
        """The newest whole copy; None when there is none.

        Raises:
            OSError: The disk cannot be read.
        """
        self._newest, self._newest_index = None, 1
        seen = False
        for index, path in enumerate(self._paths):
            try:
                with path.open("rb") as file:
                    content = file.read(_MAX_BYTES)
            except FileNotFoundError:
                continue
            seen = True
            copy = _parse_copy(content)
            if copy is not None and (self._newest is None or copy.seq > self._newest.seq):
                self._newest, self._newest_index = copy, index
        self.lost = seen and self._newest is None
        return None if self._newest is None else self._newest.marks

    def write(self, marks: Marks) -> None:
        """Replace the older copy; durable when it returns. Equal marks are not written again.

        Raises:
            OSError: The disk is full or broken; the newer copy is untouched.
        """
        if self._newest is not None and self._newest.marks == marks:
            return
        copy = _Copy(1 if self._newest is None else self._newest.seq + 1, marks)
        index = 1 - self._newest_index
        fsops.write_durable(self._paths[index], _build_copy(copy), fsops.Point.TRUST)
        self._newest, self._newest_index = copy, index


def _build_copy(copy: _Copy) -> bytes:
    body = msgspec.json.encode(copy)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n"


def _parse_copy(content: bytes) -> _Copy | None:
    digest, _, rest = content.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if digest != hashlib.sha256(body).hexdigest().encode():
        return None
    try:
        return msgspec.json.decode(body, type=_Copy)
    except msgspec.DecodeError:
        return None
