"""Where results go: a descriptor that takes JSON lines."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from vedette.clock import SystemClock
from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    from vedette.clock import Clock
    from vedette.wire.messages import Result

WAIT_SLICE_S = 0.2
READER_WAIT_S = 60.0


class UndeliveredError(UnavailableError):
    """Results did not reach their reader; `delivered` counts those of the last `write` that did."""

    def __init__(self, cause: str, *, delivered: int = 0, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.delivered = delivered


class SinkClosedError(UndeliveredError):
    """Whoever read the results went away."""


class Sink(Protocol):
    """Takes results in order; waits while the consumer is slow, so that nothing is lost silently."""

    def write(self, results: Sequence[Result]) -> None:
        """Write all of them.

        Raises:
            SinkClosedError: The consumer is gone.
            UndeliveredError: The results cannot be written: a full disk, for instance, or a consumer that
                does not read although the daemon is stopping.
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
        self._before = b"\n" if _ends_inside_a_line(fd) else b""

    @property
    def mends(self) -> bool:
        """The file ends inside a line, as after a power cut: the first result begins a new one."""
        return bool(self._before)

    @classmethod
    def to_file(
        cls,
        path: Path,
        stopping: Event,
        *,
        say: Callable[[str], None],
        clock: Clock | None = None,
        reader_wait_s: float = READER_WAIT_S,
    ) -> LineSink:
        """Append to a file, creating it when needed; wait for the reader of a FIFO.

        Args:
            path: A file or a FIFO.
            stopping: Ends every wait.
            say: Told why it takes time.
            clock: For tests.
            reader_wait_s: How long a FIFO may be without a reader.

        Raises:
            UnavailableError: The file cannot be opened, or nobody opened the FIFO for reading in time.
        """
        clock = clock or SystemClock()
        deadline_ns = clock.monotonic_ns() + round(reader_wait_s * 1e9)
        said = False
        while (fd := _open_for_writing(path)) is None:
            if not said:
                say(f"waiting for somebody to read the results from {path}, up to {reader_wait_s:g} s")
                said = True
            if clock.monotonic_ns() >= deadline_ns:
                raise UnavailableError(
                    f"nobody opened {path} for reading within {reader_wait_s:g} s",
                    cure="start the program that reads the results, or name a file",
                )
            if stopping.wait(WAIT_SLICE_S):
                raise UnavailableError(
                    f"nobody had opened {path} for reading when the agent was told to stop"
                )
        sink = cls(fd, stopping, owns_fd=True)
        if sink.mends:
            say(f"{path} ends inside a line: results go on after it, on a line of their own")
        return sink

    def write(self, results: Sequence[Result]) -> None:
        """See Sink."""
        delivered = 0
        for piece in _pieces([self._encoder.encode(result) + b"\n" for result in results]):
            try:
                self._write(piece)
            except UndeliveredError as error:
                error.delivered += delivered
                raise
            delivered += piece.count(b"\n")

    def _write(self, piece: bytes) -> None:
        before, self._before = self._before, b""
        left = memoryview(before + piece)
        while left:
            _, writable, _ = select.select([], [self._fd], [], WAIT_SLICE_S)
            if not writable:
                if self._stopping.is_set():
                    raise UndeliveredError(
                        "the reader of the results does not read",
                        delivered=_whole_lines(piece, len(left)),
                        cure="see what became of the program that reads them",
                    )
                continue
            try:
                left = left[os.write(self._fd, left[: select.PIPE_BUF]) :]
            except BlockingIOError:
                continue  # whoever shares the descriptor made it non-blocking, or was quicker
            except (BrokenPipeError, ConnectionError) as error:
                raise SinkClosedError(
                    "the reader of the results went away", delivered=_whole_lines(piece, len(left))
                ) from error
            except OSError as error:
                self._cut_back(piece, len(left))
                raise UndeliveredError(
                    f"results cannot be written: {error.strerror}",
                    delivered=_whole_lines(piece, len(left)),
                    cure="make room, or send the results elsewhere; the lines before this are complete",
                ) from error

    def _cut_back(self, piece: bytes, left_bytes: int) -> None:
        """Take the beginning of a line that could not be finished out of a file that nobody else wrote to."""
        written = piece[: max(0, len(piece) - left_bytes)]
        cut_bytes = len(written) - (written.rfind(b"\n") + 1)
        try:
            status = os.fstat(self._fd)
            if (
                cut_bytes
                and stat.S_ISREG(status.st_mode)
                and os.lseek(self._fd, 0, os.SEEK_CUR) == status.st_size
            ):
                os.ftruncate(self._fd, status.st_size - cut_bytes)
        except OSError:
            return  # the next start finds the cut line and goes on after it

    def close(self) -> None:
        """See Sink."""
        if self._owns_fd:
            os.close(self._fd)


def _open_for_writing(path: Path) -> int | None:
    """A descriptor; None for a FIFO that nobody reads yet.

    Raises:
        UnavailableError: The file cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            return None
        raise UnavailableError(
            f"cannot write results to {path}: {error.strerror}",
            cure="check that its folder exists and may be written to, or name another file",
        ) from error


def _ends_inside_a_line(fd: int) -> bool:
    """Whether the next byte would be joined to an unfinished line; False where that cannot be told."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return False
        appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
        end = status.st_size if appends else os.lseek(fd, 0, os.SEEK_CUR)
        with Path(f"/proc/self/fd/{fd}").open("rb") as file:
            return end > 0 and os.pread(file.fileno(), 1, end - 1) not in {b"\n", b""}
    except OSError:
        return False


def _whole_lines(piece: bytes, left_bytes: int) -> int:
    """Lines of a piece that were written whole when `left_bytes` of it were not."""
    return piece.count(b"\n", 0, max(0, len(piece) - left_bytes))


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
