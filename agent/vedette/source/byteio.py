"""Bounded reading from a file descriptor, straight into lent memory."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from typing import TYPE_CHECKING

from vedette.clock import Clock, SystemClock
from vedette.errors import SourceLostError

if TYPE_CHECKING:
    from vedette.source.port import FrameSink

PIPE_BUFFER_BYTES = 1 << 20
PEEK_BYTES = 4096
POLL_SLICE_MS = 100
READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class FdReader:
    """Reads exact amounts from a pipe, FIFO, socket or file; owns the descriptor.

    `last_byte_ns` is CLOCK_MONOTONIC when the last byte was here, `offset_bytes` how many were read so far.
    `stall_s` bounds how long a read may be mute, None waits as long as the writer wants (a lossless pipe
    whose producer thinks). Every wait is cut into slices in which the sink is asked whether to stop.
    """

    def __init__(self, fd: int, *, name: str, stall_s: float | None, clock: Clock | None = None) -> None:
        self._fd = fd
        self.name = name
        self._stall_s = stall_s
        self._clock = clock or SystemClock()
        self._poll = select.poll()
        self._poll.register(fd, READABLE)
        self._ahead = b""
        self.at_eof = False
        self.offset_bytes = 0
        self.last_byte_ns = self._clock.monotonic_ns()
        enlarge_pipe(fd)

    def fill(self, memory: memoryview, sink: FrameSink | None, *, limit_s: float | None = None) -> int:
        """Read until `memory` is full; one read is never taken for one frame (casebook 18).

        Args:
            memory: Writable bytes, contiguous.
            sink: Asked for `stopping` and told `alive` while waiting; None while opening.
            limit_s: Seconds of silence allowed in place of `stall_s`.

        Returns:
            Bytes read; fewer than asked at the end of the input or when the sink stops.

        Raises:
            SourceLostError: Mute for too long, or the descriptor failed.
        """
        filled = 0
        while filled < len(memory):
            count = self.read_some(memory[filled:], sink, limit_s=limit_s)
            if count == 0:
                break
            filled += count
        return filled

    def read_some(self, memory: memoryview, sink: FrameSink | None, *, limit_s: float | None = None) -> int:
        """Read what is there, at least one byte; 0 at the end of the input or when the sink stops.

        Raises:
            SourceLostError: Mute for too long, or the descriptor failed.
        """
        if self._ahead:
            piece, self._ahead = self._ahead[: len(memory)], self._ahead[len(memory) :]
            memory[: len(piece)] = piece
            self.offset_bytes += len(piece)
            return len(piece)
        while not self.at_eof:
            if not self._wait(sink, self._stall_s if limit_s is None else limit_s):
                return 0
            try:
                count = os.readv(self._fd, [memory])
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise SourceLostError(f"reading {self.name} failed: {error.strerror}") from error
            self.last_byte_ns = self._clock.monotonic_ns()
            self.at_eof = count == 0
            self.offset_bytes += count
            return count
        return 0

    def peek(self, wanted_bytes: int, *, limit_s: float) -> bytes:
        """Look at the first bytes without taking them: what came at once, and at least `wanted_bytes`.

        Returns:
            Fewer bytes at the end of the input.

        Raises:
            SourceLostError: Mute for longer than `limit_s`, or the descriptor failed.
        """
        head = bytearray()
        block = memoryview(bytearray(PEEK_BYTES))
        while len(head) < wanted_bytes and (count := self.read_some(block, None, limit_s=limit_s)):
            head += block[:count]
        self._ahead = bytes(head)
        self.offset_bytes -= len(head)
        return self._ahead

    def _wait(self, sink: FrameSink | None, limit_s: float | None) -> bool:
        """True once there are bytes or the end; False when the sink stops."""
        began_ns = self._clock.monotonic_ns()
        while True:
            if sink is not None and sink.stopping:
                return False
            if self._poll.poll(POLL_SLICE_MS):
                return True
            waited_s = (self._clock.monotonic_ns() - began_ns) / 1e9
            if limit_s is not None and waited_s >= limit_s:
                raise SourceLostError(
                    f"{self.name} was mute for {waited_s:.1f} s",
                    cure="check that the producer runs, or raise the time that it may be silent",
                )
            if sink is not None:
                sink.alive()

    def close(self) -> None:
        """Close the descriptor; safe to call twice. Standard input stays open for its owner."""
        if self._fd > 2:
            self._poll.unregister(self._fd)
            os.close(self._fd)
        self._fd = -1
        self.at_eof = True


def enlarge_pipe(fd: int) -> int:
    """Give a pipe a 1 MiB buffer (measured: halves the hand-over of a VGA frame).

    Returns:
        The size in force, 0 for what is no pipe. The kernel may refuse, which costs speed only.
    """
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return 0
    try:
        return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BUFFER_BYTES)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EBUSY, errno.EINVAL, errno.ENOMEM):
            raise
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
