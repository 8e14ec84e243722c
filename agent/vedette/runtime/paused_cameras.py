"""Which cameras somebody paused, kept over restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.errors import storage_fault
from vedette.fsops import Point

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "paused-cameras.json"
_MAX_BYTES = 16384


class PausedCameras:
    """The list, on the disk before it is acted upon; one thread writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / _NAME
        self.names: frozenset[str] = frozenset()
        self.fault = ""

    def read(self) -> None:
        """Take over what the disk says; `fault` tells why it says nothing, and then no camera is paused."""
        try:
            with self._path.open("rb") as file:
                content = file.read(_MAX_BYTES)
            self.names = msgspec.json.decode(content, type=frozenset[str])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self.fault = f"{self._path} cannot be read ({error}): no camera is paused"

    def change(self, camera: str, *, paused: bool) -> None:
        """Note that a camera is paused, or not any more.

        Raises:
            StorageError: The disk refuses, and nothing was changed.
        """
        names = self.names | {camera} if paused else self.names - {camera}
        if names == self.names:
            return
        try:
            fsops.make_folder(self._folder, Point.OUTBOX)
            fsops.write_durable(self._path, msgspec.json.encode(sorted(names)), Point.OUTBOX)
        except OSError as error:
            raise storage_fault(error, f"{self._path} cannot be written") from error
        self.names = names
