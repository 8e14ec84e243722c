"""Where results go: a descriptor that takes JSON lines."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Protocol

import msgspec

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from threading import Event

    from vedette.wire.messages import Result

WAIT_SLICE_S = 0.2


class SinkClosedError(UnavailableError):
    """Whoever read the results went away."""


class Sink(Protocol):
    """Takes results in order; waits while the consumer is slow, so that nothing is lost silently."""

    def write(self, results: Sequence[Result]) -> None:
        """Write all of them.

        Raises:
            SinkClosedError: The consumer is gone, or does not read and the daemon is stopping.
            UnavailableError: The results cannot be written: a full disk, for instance.
        """
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class LineSink:
    """JSON lines on a descriptor: standard output, a pipe or a file."""

    def __init__(self, fd: int, stopping: Event, *, owns_fd: bool = False) -> None:
        self._fd = fd
        self._stopping = stopping
        self._owns_fd = owns_fd
        self._encoder = msgspec.json.Encoder()

    @classmethod
    def to_file(cls, path: Path, stopping: Event) -> LineSink:
        """Append to a file, creating it when needed.

        Raises:
            UnavailableError: The file cannot be opened.
        """
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UnavailableError(f"cannot write results to {path}: {error.strerror}") from error
        return cls(fd, stopping, owns_fd=True)

    def write(self, results: Sequence[Result]) -> None:
        """See Sink."""
        for piece in _pieces([self._encoder.encode(result) + b"\n" for result in results]):
            self._write(memoryview(piece))

    def _write(self, left: memoryview) -> None:
        while left:
            _, writable, _ = select.select([], [self._fd], [], WAIT_SLICE_S)
            if not writable:
                if self._stopping.is_set():
                    raise SinkClosedError("the reader of the results does not read")
                continue
            try:
                left = left[os.write(self._fd, left[: select.PIPE_BUF]) :]
            except BlockingIOError:
                continue  # whoever shares the descriptor made it non-blocking, or was quicker
            except (BrokenPipeError, ConnectionError) as error:
                raise SinkClosedError("the reader of the results went away") from error
            except OSError as error:
                raise UnavailableError(
                    f"results cannot be written: {error.strerror}",
                    cure="make room, or send the results elsewhere; the lines before this are complete",
                ) from error

    def close(self) -> None:
        """See Sink."""
        if self._owns_fd:
            os.close(self._fd)


def _pieces(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Whole lines in pieces of at most PIPE_BUF bytes, where a line allows it.

    A pipe that select calls writable takes that many bytes at once and as one; more could block for ever.
    A consumer that stops reading then finds whole lines only.
    """
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > select.PIPE_BUF:
            yield piece
            piece = b""
        piece += line
    if piece:
        yield piece
