"""Where everything lies inside a ring's memory, and the check that a header makes sense. Pure.

All words are little-endian u64 on their natural alignment, so that each is read and written whole. Words with
different writers lie on different cache lines.
"""

from __future__ import annotations

import msgspec

from vedette.errors import BadInputError
from vedette.frame.descriptor import DESCRIPTOR_BYTES

MAGIC = int.from_bytes(b"VEDRING1", "little")
VERSION = 2
HEADER_BYTES = 4096
PAGE_BYTES = 4096
MAX_SLOTS = 64
QUEUE_LENGTH = 64
SEATS = 4
MAX_RING_BYTES = 1 << 36

# Geometry: written once, before the memory is handed out.
W_MAGIC, W_VERSION, W_SLOTS, W_SLOT_BYTES, W_MODE, W_TOTAL_BYTES = range(6)
# Written by the producer.
W_HEAD, W_PRODUCER_WAITS, W_PRODUCER_PULSE_NS, W_ENDED = 16, 17, 18, 19
W_DROPS = 20  # one word for each of wire.causes.SOURCE_DROPS
# Written by the live reader.
W_TAKEN, W_DONE = 32, 33
# Written by the daemon.
W_LIVE_SEAT, W_PRODUCER_STOP = 40, 41
# A line for each seat.
W_SEATS, SEAT_WORDS = 64, 8
SEAT_SLEEPS, SEAT_LEASE = 0, 1
# seq -> slot, and slot -> seq.
W_QUEUE, W_SLOT_SEQ = 128, 256

MODE_LOSSLESS, MODE_NEWEST = 0, 1


class RingGeometry(msgspec.Struct, frozen=True):
    """Sizes of a ring; `slot_bytes` is the room for one frame's pixels."""

    slots: int
    slot_bytes: int
    newest_wins: bool

    @property
    def slot_stride_bytes(self) -> int:
        """Distance between slots: whole pages, so that no two frames share one."""
        return -(-self.slot_bytes // PAGE_BYTES) * PAGE_BYTES

    @property
    def data_offset_bytes(self) -> int:
        """Where the first slot's pixels begin."""
        return HEADER_BYTES + -(-self.slots * DESCRIPTOR_BYTES // PAGE_BYTES) * PAGE_BYTES

    @property
    def total_bytes(self) -> int:
        """Memory that the ring takes."""
        return self.data_offset_bytes + self.slots * self.slot_stride_bytes


def parse_header(words: memoryview, memory_bytes: int) -> RingGeometry:
    """Check a header that another process wrote.

    Args:
        words: The header as u64 words.
        memory_bytes: Size of the memory behind it, as the kernel says.

    Returns:
        The geometry.

    Raises:
        BadInputError: Anything that does not add up; nothing behind the header may then be touched.
    """
    if len(words) < HEADER_BYTES // 8 or words[W_MAGIC] != MAGIC:
        raise BadInputError("this memory is not a frame ring")
    if words[W_VERSION] != VERSION:
        raise BadInputError(
            f"frame ring has layout version {words[W_VERSION]}, this agent speaks {VERSION}",
            cure="run the same vedette version on both sides",
        )
    slots, slot_bytes, mode = words[W_SLOTS], words[W_SLOT_BYTES], words[W_MODE]
    if not 2 <= slots <= MAX_SLOTS or not 1 <= slot_bytes <= MAX_RING_BYTES or mode not in {0, 1}:
        raise BadInputError(
            f"frame ring header is damaged ({slots} slots of {slot_bytes} bytes, mode {mode})"
        )
    geometry = RingGeometry(slots, slot_bytes, mode == MODE_NEWEST)
    if geometry.total_bytes != words[W_TOTAL_BYTES] or geometry.total_bytes > memory_bytes:
        raise BadInputError(
            f"frame ring header claims {words[W_TOTAL_BYTES]} bytes; its geometry needs "
            f"{geometry.total_bytes} and the memory has {memory_bytes}"
        )
    return geometry
