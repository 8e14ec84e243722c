"""Traces that record the steps of a program, end it, or make its disk fail."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.fsops import Kind

if TYPE_CHECKING:
    from vedette.fsops import Operation

ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_NEEDS_SPACE = frozenset({Kind.CREATE, Kind.WRITE, Kind.RESIZE, Kind.MAKE_FOLDER, Kind.RENAME})


class Recorder:
    """Writes down every step, with paths relative to a folder, and the promises between them.

    `refused` are the numbers of the steps that a disk which fails with an errno from then on would refuse.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps: list[Operation] = []
        self.promises: list[tuple[int, str]] = []  # steps begun before it was made, the word
        self.refused: dict[int, list[int]] = {code: [] for code in ERRNOS}

    def before(self, operation: Operation) -> None:
        """Write it down."""
        for code, numbers in self.refused.items():
            if is_refused(operation, code):
                numbers.append(len(self.steps))
        target = os.path.relpath(operation.target, self.root) if operation.target else ""
        path = os.path.relpath(operation.path, self.root)
        self.steps.append(operation._replace(path=path, target=target))

    def promise(self, word: str) -> None:
        """Write a promise down."""
        self.promises.append((len(self.steps), word))

    def promised(self, steps: int) -> list[str]:
        """The words that were said before step number `steps` (from 0) began."""
        return [word for begun, word in self.promises if begun <= steps]


class KillAt:
    """Ends the process as kill -9 does, before step number `step` (from 0)."""

    def __init__(self, step: int) -> None:
        self._left = step

    def before(self, _operation: Operation) -> None:
        """Count, and at last die."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class FailAt:
    """Raises an errno at step number `step` (from 0).

    EIO comes once, and from a sync it takes with it what was not synced. A full disk stays full: it refuses
    what needs space, but not to overwrite in place. A read-only one refuses all but syncs. Writes that fail
    have written a half before.
    """

    def __init__(self, step: int, code: int) -> None:
        self._left = step
        self._code = code
        self._unsynced: dict[str, list[tuple[int, int]]] = {}

    def before(self, operation: Operation) -> None:
        """Raise when it is time."""
        self._left -= 1
        once = self._code == errno.EIO
        if (self._left == -1 if once else self._left < 0) and is_refused(operation, self._code):
            if operation.kind is Kind.WRITE:
                _write_half(operation)
            elif operation.kind is Kind.SYNC:
                self._lose(operation.path)
            raise OSError(self._code, os.strerror(self._code), operation.path)
        if operation.kind is Kind.WRITE:
            written = (operation.offset, len(operation.data))
            self._unsynced.setdefault(operation.path, []).append(written)
        elif operation.kind is Kind.SYNC:
            self._unsynced.pop(operation.path, None)

    def _lose(self, path: str) -> None:
        """The kernel drops dirty pages that it could not write."""
        with Path(path).open("r+b") as file:
            for offset, length in self._unsynced.pop(path, []):
                file.seek(offset)
                file.write(bytes(length))


def is_refused(operation: Operation, code: int) -> bool:
    """Whether a disk that fails with this errno refuses the step."""
    if code == errno.EIO:
        return True
    if code == errno.EROFS:
        return operation.kind not in {Kind.SYNC, Kind.SYNC_FOLDER}
    return operation.kind in _NEEDS_SPACE and not _is_in_place(operation)


def _is_in_place(operation: Operation) -> bool:
    if operation.kind is Kind.WRITE:
        return operation.offset + len(operation.data) <= Path(operation.path).stat().st_size
    return operation.kind is Kind.RESIZE and operation.size_bytes <= Path(operation.path).stat().st_size


def _write_half(operation: Operation) -> None:
    descriptor = os.open(operation.path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, operation.data[: len(operation.data) // 2], operation.offset)
    except OSError:
        pass
    finally:
        os.close(descriptor)
