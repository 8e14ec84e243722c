"""JPEG structure: where a picture begins and ends, and whether it is whole. Pure.

Markers and segments follow ITU-T T.81 annex B. libjpeg fills what is missing with grey and reports success,
so wholeness is judged here:

- a marker that cannot stand where it stands, a missing end marker, restart markers missing or out of order;
- a scan that ends before its last block (`vedette.source.entropy`, run on pictures that look like it).

Bytes that stand between a restart interval and its marker are harmless and accepted. Not found: changed bytes
inside entropy-coded data that still decode to the right number of blocks (JPEG has no checksum), and a
progressive picture whose last refinement scan is cut but properly ended.
"""

from __future__ import annotations

import re

import msgspec

from vedette.errors import FrameError
from vedette.source.exif import orientation_of

SOI = b"\xff\xd8"
EOI = b"\xff\xd9"
# What ends entropy-coded data: any marker but stuffing (00), restarts (D0..D7) and fill bytes (FF).
ENTROPY_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
RESTART = re.compile(rb"\xff([\xd0-\xd7])")

DHT, DRI, SOS, DNL = 0xC4, 0xDD, 0xDA, 0xDC
BASELINE = frozenset({0xC0, 0xC1})
PROGRESSIVE = 0xC2
FRAME_STARTS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})
APP1, APP14 = 0xE1, 0xEE


class Component(msgspec.Struct, frozen=True):
    """One colour component: its id and sampling factors."""

    identifier: int
    horizontal: int
    vertical: int


class Scan(msgspec.Struct, frozen=True):
    """One scan: component ids with their (DC, AC) table numbers, and where its entropy data lies."""

    components: tuple[tuple[int, int, int], ...]
    spectral: tuple[int, int]
    approximation: tuple[int, int]
    begin: int
    end: int
    restart_interval: int
    tables: dict[tuple[int, int], bytes]


class JpegStructure(msgspec.Struct, frozen=True):
    """What the markers say. `orientation` is the EXIF value, 1 where there is none."""

    width: int
    height: int
    precision: int
    start_marker: int
    components: tuple[Component, ...]
    scans: tuple[Scan, ...]
    orientation: int = 1

    @property
    def mcu_size(self) -> tuple[int, int]:
        """Width and height in pixels of an interleaved minimum coded unit."""
        return 8 * max(c.horizontal for c in self.components), 8 * max(c.vertical for c in self.components)

    def units(self, scan: Scan) -> tuple[int, int]:
        """Minimum coded units of a scan, across and down (T.81 A.2)."""
        mcu_width, mcu_height = self.mcu_size
        if len(scan.components) > 1:
            return -(-self.width // mcu_width), -(-self.height // mcu_height)
        only = next(c for c in self.components if c.identifier == scan.components[0][0])
        across = -(-self.width * only.horizontal // (mcu_width // 8))
        down = -(-self.height * only.vertical // (mcu_height // 8))
        return -(-across // 8), -(-down // 8)


def damaged(cause: str) -> FrameError:
    """The error for a picture that must not be inferred."""
    return FrameError(f"JPEG: {cause}", kind="damaged")


def examine(data: bytes) -> JpegStructure:
    """Walk the markers of one picture, SOI to EOI.

    Raises:
        FrameError: It is cut, or its structure is broken.
    """
    return _Walk(data).run()


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._frame: tuple[int, int, int, int, tuple[Component, ...]] | None = None
        self._scans: list[Scan] = []
        self._tables: dict[tuple[int, int], bytes] = {}
        self._restart_interval = 0
        self._orientation = 1

    def run(self) -> JpegStructure:
        data = self._data
        if not data.startswith(SOI):
            raise damaged("it does not start with FF D8")
        at = 2
        while True:
            marker, at = next_marker(data, at)
            if marker == 0xD9:
                break
            if marker == 0xD8:
                raise damaged("a second picture starts inside it")
            if marker in STANDALONE:
                continue
            payload, at = _segment(data, at)
            if marker == SOS:
                at = self._scan(payload, at)
            else:
                self._take(marker, payload)
        return self._result()

    def _take(self, marker: int, payload: bytes) -> None:
        if marker in FRAME_STARTS:
            self._start_frame(marker, payload)
        elif marker == DHT:
            self._tables = {**self._tables, **_huffman_tables(payload)}
        elif marker == DRI:
            if len(payload) != 2:
                raise damaged("a restart interval of a wrong length")
            self._restart_interval = int.from_bytes(payload, "big")
        elif marker == APP1 and payload.startswith(b"Exif\x00\x00"):
            self._orientation = orientation_of(payload[6:])

    def _start_frame(self, marker: int, payload: bytes) -> None:
        if self._frame is not None:
            raise damaged("it has two frame headers")
        if len(payload) < 6 or len(payload) != 6 + 3 * payload[5] or payload[5] == 0:
            raise damaged("its frame header is broken")
        height, width = int.from_bytes(payload[1:3], "big"), int.from_bytes(payload[3:5], "big")
        if not (width and height):
            raise damaged("its frame header gives no size")
        components = tuple(
            Component(payload[at], payload[at + 1] >> 4, payload[at + 1] & 15)
            for at in range(6, len(payload), 3)
        )
        if not all(1 <= c.horizontal <= 4 and 1 <= c.vertical <= 4 for c in components):
            raise damaged("its sampling factors are out of range")
        self._frame = (marker, payload[0], width, height, components)

    def _scan(self, payload: bytes, begin: int) -> int:
        if self._frame is None:
            raise damaged("a scan comes before the frame header")
        count = payload[0] if payload else 0
        if not count or len(payload) != 4 + 2 * count:
            raise damaged("its scan header is broken")
        known = {c.identifier for c in self._frame[4]}
        parts = tuple(
            (payload[at], payload[at + 1] >> 4, payload[at + 1] & 15) for at in range(1, 1 + 2 * count, 2)
        )
        if not {part[0] for part in parts} <= known:
            raise damaged("a scan names an unknown component")
        match = ENTROPY_END.search(self._data, begin)
        if match is None:
            raise damaged("it ends inside its picture data")
        low, high, approximation = payload[-3:]
        self._scans.append(
            Scan(
                components=parts,
                spectral=(low, high),
                approximation=(approximation >> 4, approximation & 15),
                begin=begin,
                end=match.start(),
                restart_interval=self._restart_interval,
                tables=self._tables,
            )
        )
        return match.start()

    def _result(self) -> JpegStructure:
        if self._frame is None or not self._scans:
            raise damaged("it holds no picture data")
        marker, precision, width, height, components = self._frame
        structure = JpegStructure(
            width, height, precision, marker, components, tuple(self._scans), self._orientation
        )
        for scan in structure.scans:
            _check_restarts(self._data, structure, scan)
        _check_coverage(structure)
        return structure


def next_marker(data: bytes, at: int) -> tuple[int, int]:
    """The marker code at `at` (fill bytes passed over) and the position after it.

    Raises:
        FrameError: There is none, or the data ends.
    """
    if data[at : at + 1] not in (b"", b"\xff"):
        raise damaged(f"no marker where one must be (byte {at})")
    while data[at : at + 1] == b"\xff":
        at += 1
    if at >= len(data):
        raise damaged("it ends before its end marker")
    if data[at] == 0:
        raise damaged(f"no marker where one must be (byte {at})")
    return data[at], at + 1


def _segment(data: bytes, at: int) -> tuple[bytes, int]:
    length = int.from_bytes(data[at : at + 2], "big")
    if length < 2 or at + length > len(data):
        raise damaged("it ends inside a header segment")
    return data[at + 2 : at + length], at + length


def _huffman_tables(payload: bytes) -> dict[tuple[int, int], bytes]:
    """(class, number) -> 16 counts and the symbols (T.81 B.2.4.2)."""
    tables = {}
    while payload:
        if len(payload) < 17:
            raise damaged("a Huffman table is cut")
        size_bytes = 17 + sum(payload[1:17])
        if len(payload) < size_bytes:
            raise damaged("a Huffman table is cut")
        tables[(payload[0] >> 4, payload[0] & 15)] = payload[1:size_bytes]
        payload = payload[size_bytes:]
    return tables


def _check_restarts(data: bytes, structure: JpegStructure, scan: Scan) -> None:
    """Restart markers must all be there, in the order RST0..RST7, RST0.. (T.81 E.2.4)."""
    found = [code[0] & 7 for code in RESTART.findall(data, scan.begin, scan.end)]
    across, down = structure.units(scan)
    expected = -(-across * down // scan.restart_interval) - 1 if scan.restart_interval else 0
    if len(found) != expected or any(code != index & 7 for index, code in enumerate(found)):
        raise damaged(f"{len(found)} restart markers, {expected} expected in order: a part is missing")


def _check_coverage(structure: JpegStructure) -> None:
    """Every component needs its coefficients: once when sequential, down to the last bit when progressive."""
    for component in structure.components:
        mine = [s for s in structure.scans if any(p[0] == component.identifier for p in s.components)]
        if not mine:
            raise damaged("a colour component is missing")
        if structure.start_marker != PROGRESSIVE:
            continue
        if not any(s.spectral[0] == 0 and s.approximation[1] == 0 for s in mine):
            raise damaged("a progressive picture without its last scans")
        fine: set[int] = set()
        for scan in mine:
            if scan.approximation[1] == 0:
                fine |= set(range(scan.spectral[0], scan.spectral[1] + 1))
        if len(fine) < 64:
            raise damaged("a progressive picture without its last scans")
