"""What there is to announce of a repository's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError
from vedette.wire.plane import Announcement
from vedette_fleet.roles import ROLLOUTS, SNAPSHOT, TIMESTAMP
from vedette_fleet.tuf_repository import METADATA

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 4 << 20


class _Meta(msgspec.Struct):
    version: int


class _Signed(msgspec.Struct):
    version: int
    meta: dict[str, _Meta]


class _Document(msgspec.Struct):
    signed: _Signed


def read_announcement(folder: Path, *, spread_s: float) -> Announcement:
    """The versions of what is published now; a hint needs no proof, so signatures are not looked at.

    Raises:
        BadInputError: It is no repository, or a damaged one.
    """
    timestamp = _read(folder, TIMESTAMP)
    snapshot = _read(folder, f"{timestamp.meta[f'{SNAPSHOT}.json'].version}.{SNAPSHOT}")
    return Announcement(
        timestamp_version=timestamp.version,
        rollouts_version=snapshot.meta[f"{ROLLOUTS}.json"].version,
        spread_s=spread_s,
    )


def _read(folder: Path, role: str) -> _Signed:
    path = folder / METADATA / f"{role}.json"
    listed = f"{SNAPSHOT if role == TIMESTAMP else ROLLOUTS}.json"
    cure = "name the folder of an update repository; vedette-fleet init makes one"
    try:
        with path.open("rb") as file:
            signed = msgspec.json.decode(file.read(_MOST_BYTES), type=_Document).signed
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}", cure=cure) from error
    except msgspec.DecodeError as error:
        raise BadInputError(f"{path}: no TUF metadata: {error}", cure=cure) from error
    if listed not in signed.meta:
        raise BadInputError(f"{path}: does not list {listed}", cure=cure)
    return signed
