"""The first root metadata, which came with the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MAX_ROOT_BYTES = 512_000


class _Signed(msgspec.Struct):
    """What tells root metadata from other files; all else is trust's business."""

    kind: str = msgspec.field(name="_type")


class _Root(msgspec.Struct):
    signed: _Signed


def read_root(path: Path) -> bytes:
    """The first root metadata, which alone is believed without a signature that leads to it.

    Raises:
        ConfigError: It is not there, or cannot be one.
    """
    cure = "bring the repository's metadata/1.root.json to the box by a way that you trust"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ROOT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"`update.root`: {path}: {error.strerror}", cure=cure) from error
    try:
        kind = msgspec.json.decode(content, type=_Root).signed.kind
    except msgspec.DecodeError:
        kind = ""
    if kind != "root" or len(content) > MAX_ROOT_BYTES:
        raise ConfigError(f"`update.root`: {path} is no root metadata", cure=cure)
    return content
