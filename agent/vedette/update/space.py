"""How much of the disk an update may take, with a reserve that it leaves to everybody else (casebook 36)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vedette.errors import StorageError, storage_fault

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_RESERVE_BYTES = 64 << 20


class DiskSpace:
    """Accounts for the file system of one folder."""

    def __init__(self, folder: Path, *, reserve_bytes: int = DEFAULT_RESERVE_BYTES) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes

    def free_bytes(self) -> int:
        """Bytes that an update may take: what is free, less the reserve; 0 when there is none.

        Raises:
            StorageError: The disk does not say.
        """
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            raise storage_fault(error, f"free space of {self._folder} is unknown") from error
        return max(0, found.f_bavail * found.f_frsize - self._reserve_bytes)

    def require(self, need_bytes: int) -> None:
        """Refuse before a byte is fetched what would not fit.

        Raises:
            StorageError: Too little space beside the reserve.
        """
        free_bytes = self.free_bytes()
        if need_bytes > free_bytes:
            raise StorageError(
                f"the update needs {need_bytes} bytes; {free_bytes} are free beside a reserve of "
                f"{self._reserve_bytes}",
                kind="no_space",
                cure=f"free space on the disk of {self._folder}",
            )
