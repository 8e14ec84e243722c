"""Counts the coded blocks of a sequential JPEG scan, to tell a cut picture from a grey one. Pure.

Huffman decoding follows ITU-T T.81 annex F.2.2; coefficients are passed over, not kept. About 1 us a symbol
in the interpreter, so it runs only on restart intervals whose last unit came out of the decoder exactly
mid-grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.source.jpeg import BASELINE, RESTART, JpegStructure, Scan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# For the next 16 bits: code length << 8 | symbol; 0 where no code fits.
LookupTable = list[int]
MID_GREY = 128
LOOKAHEAD_BITS = 16


def is_whole(data: bytes, structure: JpegStructure, pixels: npt.NDArray[np.uint8]) -> bool:
    """Whether the entropy data reached the last block of every restart interval.

    libjpeg leaves blocks whose data is missing at zero, which is exact mid-grey. A picture may be mid-grey
    there in truth, so a suspicious interval is decoded again and its blocks counted.

    Args:
        data: The picture, SOI to EOI.
        structure: What `examine` said of it.
        pixels: [height, width, 3] or [height, width] as decoded, in stored orientation.

    Returns:
        False when an interval is short. Only sequential pictures in one interleaved scan can be judged;
        others count as whole.
    """
    scan = structure.scans[0]
    judged = structure.start_marker in BASELINE and structure.precision == 8 and len(structure.scans) == 1
    if (
        not judged
        or len(structure.components) == 4
        or pixels.shape[:2] != (structure.height, structure.width)
    ):
        return True
    across, down = structure.units(scan)
    interval = scan.restart_interval or across * down
    unit = structure.mcu_size if len(scan.components) > 1 else (8, 8)
    segments: list[bytes] | None = None
    plan = None
    for number, first in enumerate(range(0, across * down, interval)):
        count = min(interval, across * down - first)
        row, column = divmod(first + count - 1, across)
        if not _is_mid_grey(pixels, column * unit[0], row * unit[1], unit):
            continue
        if segments is None:
            segments = _split(data, scan)
            plan = _plan(structure, scan)
        if plan is not None and not _covers(segments[number], plan, count):
            return False
    return True


def _is_mid_grey(pixels: npt.NDArray[np.uint8], left: int, top: int, unit: tuple[int, int]) -> bool:
    """Look at the middle of the unit: chroma upsampling lets neighbours shine into its rim."""
    height, width = pixels.shape[:2]
    x0, y0 = min(left + unit[0] // 4, width - 1), min(top + unit[1] // 4, height - 1)
    middle = pixels[y0 : max(y0 + 1, top + unit[1] * 3 // 4), x0 : max(x0 + 1, left + unit[0] * 3 // 4)]
    return bool((middle == MID_GREY).all())


def _split(data: bytes, scan: Scan) -> list[bytes]:
    """Entropy data of each restart interval, byte stuffing removed."""
    pieces = []
    begin = scan.begin
    for match in RESTART.finditer(data, scan.begin, scan.end):
        pieces.append(data[begin : match.start()])
        begin = match.end()
    pieces.append(data[begin : scan.end])
    return [piece.replace(b"\xff\x00", b"\xff") for piece in pieces]


def _plan(structure: JpegStructure, scan: Scan) -> list[tuple[LookupTable, LookupTable]] | None:
    """The (DC, AC) tables of each block of a unit, in coding order; None where tables are not in the file."""
    sampling = {c.identifier: c.horizontal * c.vertical for c in structure.components}
    built: dict[tuple[int, int], LookupTable] = {}
    plan = []
    for identifier, dc_number, ac_number in scan.components:
        keys = ((0, dc_number), (1, ac_number))
        for key in keys:
            if key not in scan.tables:
                return None
            if key not in built:
                built[key] = _lookup(scan.tables[key])
        blocks = sampling[identifier] if len(scan.components) > 1 else 1
        plan += [(built[keys[0]], built[keys[1]])] * blocks
    return plan


def _lookup(table: bytes) -> LookupTable:
    """Codes go by length (T.81 C.2); each fills the part of the table that it is a prefix of."""
    lookup: LookupTable = []
    at = 16
    for length in range(1, 17):
        for symbol in table[at : at + table[length - 1]]:
            lookup += [length << 8 | symbol] * (1 << (LOOKAHEAD_BITS - length))
        at += table[length - 1]
    size = 1 << LOOKAHEAD_BITS
    return (lookup + [0] * (size - len(lookup)))[:size]


def _covers(data: bytes, plan: list[tuple[LookupTable, LookupTable]], units: int) -> bool:
    """Whether `data` holds `units` whole units; what follows them is not looked at."""
    bits = _Bits(data)
    for _ in range(units):
        for dc_table, ac_table in plan:
            if not bits.skip_block(dc_table, ac_table):
                return False
    return True


class _Bits:
    """A bit reader that knows when it was asked for more than there is."""

    def __init__(self, data: bytes) -> None:
        # Whole 32-bit words, and enough of them that the last code can be looked up.
        self._data = data + bytes(8 + -len(data) % 4)
        self._at = 0
        self._held = 0
        self._count = 0
        self._left = 8 * len(data)

    def _symbol(self, table: LookupTable) -> int:
        """Read a code and pass over the extra bits that its symbol announces; -1 for none."""
        while self._count < 32 and self._at < len(self._data):
            self._held = (self._held << 32) | int.from_bytes(self._data[self._at : self._at + 4], "big")
            self._count += 32
            self._at += 4
        if self._count < 32:
            return -1
        entry = table[(self._held >> (self._count - LOOKAHEAD_BITS)) & 0xFFFF]
        if not entry:
            return -1
        used = (entry >> 8) + (entry & 15)
        self._count -= used
        self._left -= used
        self._held &= (1 << self._count) - 1
        return entry & 0xFF if self._left >= 0 else -1

    def skip_block(self, dc_table: LookupTable, ac_table: LookupTable) -> bool:
        """Pass over one 8x8 block; False when the data ends inside it, or is no such block."""
        if self._symbol(dc_table) < 0:
            return False
        coefficient = 1
        while coefficient < 64:
            symbol = self._symbol(ac_table)
            if symbol < 0:
                return False
            if symbol & 15 == 0 and symbol != 0xF0:
                break
            coefficient += (symbol >> 4) + 1
        return coefficient <= 64
