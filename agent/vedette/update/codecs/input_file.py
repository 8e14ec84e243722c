"""Reads a file at offsets, and never less than was asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, final

from vedette.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self


@final
class InputFile:
    """A regular file, open for reading; its size is taken once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self.descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def read_at(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            BadInputError: The file ends before that.
            OSError: The disk.
        """
        if offset < 0 or offset + size > self.size_bytes:
            raise BadInputError(
                f"{self._path.name}: {size} bytes wanted at {offset}, but it has {self.size_bytes}",
                cure="fetch the blob again, or the full encoding instead",
            )
        piece = os.pread(self.descriptor, size, offset)
        while len(piece) < size:
            more = os.pread(self.descriptor, size - len(piece), offset + len(piece))
            if not more:
                raise BadInputError(
                    f"{self._path.name}: became shorter while it was read", cure="fetch the full encoding"
                )
            piece += more
        return piece
