"""A frame ring in sealed shared memory: one producer, one live reader, shadows that read along.

Two modes. *Newest wins*: the producer never waits; a reader that was away finds the newest frame, and the
gap in sequence numbers says how many were superseded. *Lossless*: the producer waits while all are used.

Ownership of a slot is settled without locks by a pair of words: the producer marks a slot "being written"
(its sequence word is 0) and then looks whether a seat leases it; a reader leases a slot and then looks
whether its sequence word is still the one it wants. With a full fence between the two steps on each side, at
least one of them sees the other (Dekker's argument), so no frame is ever read while it is written. Leases are
words of a seat, not counters of a slot, so that the daemon can take back what a dead reader held.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.errors import BadInputError, UnavailableError
from vedette.frame import layout
from vedette.frame.descriptor import (
    DESCRIPTOR_BYTES,
)
from vedette.frame.layout import RingGeometry, parse_header
from vedette.wire.causes import SOURCE_DROPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.wire.causes import DropCause

LIVE_SEAT = 0

_fence_lock = threading.Lock()
_fence_lock.acquire()


def fence() -> None:
    """A full memory barrier: a release store followed by an acquire load of the same lock.

    On x86-64 both are locked instructions; on AArch64 the pair is sequentially consistent (RCsc).
    """
    _fence_lock.release()
    _fence_lock.acquire()


class RingHandles:
    """The file descriptors of a ring: its memory, a doorbell for each seat, and "there is space".

    They are what travels over SCM_RIGHTS; whoever holds the object closes it.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        if len(fds) != 2 + layout.SEATS:
            for fd in fds:
                os.close(fd)
            raise BadInputError(f"a frame ring comes with {2 + layout.SEATS} descriptors, got {len(fds)}")
        self.fds = tuple(fds)
        self.memory, self.space = fds[0], fds[1]
        self.doorbells = tuple(fds[2:])
        self._open = True

    def close(self) -> None:
        """Close all descriptors; safe to call twice."""
        if self._open:
            self._open = False
            for fd in self.fds:
                os.close(fd)


def available_bytes() -> int:
    """Memory that can be had without swapping, as the kernel estimates it; 0 when it does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0][1]) * 1024 if fields else 0


def _refuse_beyond(available: int, geometry: RingGeometry, name: str) -> None:
    """Asking the kernel is too late: it would first take memory from everybody, then kill somebody."""
    if 0 < available < geometry.total_bytes:
        raise _no_memory(geometry, name)


def _no_memory(geometry: RingGeometry, name: str) -> UnavailableError:
    return UnavailableError(
        f"no memory for the frame ring of {name}: {geometry.total_bytes:,} bytes are needed "
        f"({geometry.slots} slots of {geometry.slot_bytes:,})",
        cure="use a smaller frame size, fewer slots or fewer cameras",
    )


def create_ring(geometry: RingGeometry, *, name: str, available: int | None = None) -> RingHandles:
    """Allocate and seal the memory of a ring.

    Args:
        geometry: Its sizes.
        name: The camera, for messages and /proc.
        available: Bytes that may be taken; None asks the kernel.

    Raises:
        UnavailableError: The memory is not there; the message says how much is needed.
    """
    _refuse_beyond(available_bytes() if available is None else available, geometry, name)
    opened: list[int] = []
    try:
        memory = os.memfd_create(f"vedette-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        opened.append(memory)
        os.ftruncate(memory, geometry.total_bytes)
        os.posix_fallocate(memory, 0, geometry.total_bytes)
        with mmap.mmap(memory, layout.HEADER_BYTES) as header:
            words = memoryview(header).cast("Q")
            words[layout.W_VERSION] = layout.VERSION
            words[layout.W_SLOTS] = geometry.slots
            words[layout.W_SLOT_BYTES] = geometry.slot_bytes
            words[layout.W_MODE] = layout.MODE_NEWEST if geometry.newest_wins else layout.MODE_LOSSLESS
            words[layout.W_TOTAL_BYTES] = geometry.total_bytes
            words[layout.W_LIVE_SEAT] = LIVE_SEAT
            words[layout.W_MAGIC] = layout.MAGIC
            words.release()
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        for _ in range(1 + layout.SEATS):
            opened.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))  # noqa: PERF401 - kept for the undo
    except OSError as error:
        for fd in opened:
            os.close(fd)
        if error.errno in {errno.ENOMEM, errno.ENOSPC}:
            raise _no_memory(geometry, name) from error
        raise UnavailableError(
            f"the frame ring of {name} cannot be made: {error.strerror}",
            cure="allow more open files (`LimitNOFILE=` in a unit, `ulimit -n` in a shell)",
        ) from error
    return RingHandles(opened)


class Ring:
    """A mapped ring: the words and slots that producer, readers and the daemon share."""

    def __init__(self, handles: RingHandles) -> None:
        """Map the memory that `handles` names.

        Raises:
            BadInputError: The memory is not a sealed ring, or its header lies.
        """
        self.handles = handles
        seals = fcntl.fcntl(handles.memory, fcntl.F_GET_SEALS)
        if not seals & fcntl.F_SEAL_SHRINK:
            raise BadInputError("frame ring memory is not sealed: its owner could take it away under us")
        size = os.fstat(handles.memory).st_size
        if size < layout.HEADER_BYTES:
            raise BadInputError(f"frame ring memory has {size} bytes, less than a header")
        self._map = mmap.mmap(handles.memory, size)
        self._bytes = memoryview(self._map)
        self.words = self._bytes[: layout.HEADER_BYTES].cast("Q")
        try:
            self.geometry = parse_header(self.words, size)
        except BadInputError:
            self.close()
            raise
        geometry = self.geometry
        start, stride = geometry.data_offset_bytes, geometry.slot_stride_bytes
        self.slots = [
            self._bytes[start + i * stride : start + i * stride + geometry.slot_bytes]
            for i in range(geometry.slots)
        ]
        self.descriptors = [
            self._bytes[layout.HEADER_BYTES + i * DESCRIPTOR_BYTES :][:DESCRIPTOR_BYTES]
            for i in range(geometry.slots)
        ]

    def close(self) -> None:
        """Unmap; views that somebody still holds keep the memory until they go. Descriptors stay open."""
        views = [*getattr(self, "slots", []), *getattr(self, "descriptors", []), self.words, self._bytes]
        with contextlib.suppress(BufferError):  # an array over a slot may still be referenced
            for view in views:
                view.release()
            self._map.close()

    # What the daemon reads and writes ---------------------------------------------------------------------

    @property
    def head(self) -> int:
        """Sequence number of the newest published frame; 0 before the first."""
        return self.words[layout.W_HEAD]

    @property
    def taken(self) -> int:
        """Highest sequence number that the live reader took."""
        return self.words[layout.W_TAKEN]

    @property
    def ended(self) -> bool:
        """The producer published its last frame."""
        return self.words[layout.W_ENDED] != 0

    @property
    def producer_pulse_ns(self) -> int:
        """When the producer last showed progress or waited for a good reason (CLOCK_MONOTONIC)."""
        return self.words[layout.W_PRODUCER_PULSE_NS]

    def source_drops(self) -> dict[DropCause, int]:
        """Frames that the source counted and did not publish, by cause."""
        return {cause: self.words[layout.W_DROPS + i] for i, cause in enumerate(SOURCE_DROPS)}

    def revoke(self, seat: int) -> None:
        """Take back the lease of a reader that is dead, and let the producer go on."""
        self.words[layout.W_SEATS + seat * layout.SEAT_WORDS + layout.SEAT_LEASE] = 0
        if seat == self.words[layout.W_LIVE_SEAT]:
            self.words[layout.W_DONE] = self.words[layout.W_TAKEN]
        os.eventfd_write(self.handles.space, 1)

    def pass_over(self, seq: int) -> None:
        """While no reader is at the live seat: frames up to `seq` will not be taken; their slots are free."""
        self.words[layout.W_TAKEN] = seq
        self.words[layout.W_DONE] = seq
        os.eventfd_write(self.handles.space, 1)

    def resume_from(self, other: Ring) -> None:
        """Go on counting where a smaller ring of the same camera ended."""
        head = other.words[layout.W_HEAD]
        for word in (layout.W_HEAD, layout.W_TAKEN, layout.W_DONE):
            self.words[word] = head
        for i in range(len(SOURCE_DROPS)):
            self.words[layout.W_DROPS + i] = other.words[layout.W_DROPS + i]
