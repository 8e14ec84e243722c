"""Finds JPEG pictures in a byte stream, bare or multipart/x-mixed-replace as HTTP cameras send it. Pure.

Segments are stepped over by their length, so thumbnails and EXIF blocks that hold FF D8 and FF D9 do not
split a picture. Inside picture data the next picture's start means that this one is cut.
"""

from __future__ import annotations

import re

import msgspec

from vedette.source.jpeg import DHT, DNL, DRI, ENTROPY_END, SOS, STANDALONE

MAX_PICTURE_BYTES = 32 << 20
MAX_GAP_BYTES = 64 << 10
# A few stray bytes between pictures are a quirk of cheap cameras; more is something that should be a picture.
HARMLESS_GAP_BYTES = 16
START = b"\xff\xd8\xff"
MULTIPART = re.compile(
    rb"(?:\r?\n)*--[^\r\n]{1,200}\r?\n(?:[A-Za-z0-9-]{1,64}:[^\r\n]{0,500}\r?\n){0,20}(?:\r?\n)?"
)
PADDING = b"\x00\xff\r\n\t -"
DQT = 0xDB
COMMENT = 0xFE
APPLICATION = frozenset(range(0xE0, 0xF0))
BETWEEN_SCANS = frozenset({SOS, DHT, DQT, DRI, DNL, COMMENT}) | APPLICATION


class Chunk(msgspec.Struct, frozen=True):
    """One picture, SOI to EOI; or, with a `fault`, bytes that should have been one.

    `cut` says that the stream ended inside it.
    """

    data: bytes
    fault: str = ""
    cut: bool = False


class JpegScanner:
    """Bytes in, pictures out; never holds more than one picture, a gap and what was fed last."""

    def __init__(self, *, max_picture_bytes: int = MAX_PICTURE_BYTES) -> None:
        self._max_picture_bytes = max_picture_bytes
        self._buffer = bytearray()
        self._at = 0
        self._step = self._seek
        self._segment: tuple[int, int] | None = None
        self._after_damage = False

    def feed(self, data: bytes | memoryview) -> None:
        """Take more of the stream; call `pull` until it gives None before feeding again."""
        self._buffer += data

    def pull(self) -> Chunk | None:
        """The next picture or damaged piece, or None until more is fed."""
        while True:
            before = (self._step, self._at, len(self._buffer))
            chunk = self._step()
            if chunk is not None:
                return chunk
            if before == (self._step, self._at, len(self._buffer)):
                return None

    def finish(self) -> Chunk | None:
        """At the end of the stream: what is left of a picture, or of something that is none."""
        rest = bytes(self._buffer)
        seeking = self._step == self._seek
        self._buffer.clear()
        self._at, self._step = 0, self._seek
        if seeking:
            return Chunk(rest, "bytes that are no picture") if self._is_foreign(rest) else None
        return Chunk(rest, "the stream ended inside a picture", cut=True)

    def _seek(self) -> Chunk | None:
        begin = self._buffer.find(START, self._at)
        if begin < 0:
            self._at = max(0, len(self._buffer) - len(START) + 1)
            if len(self._buffer) <= MAX_GAP_BYTES:
                return None
            gap = self._cut_off(self._at)
            foreign = self._is_foreign(gap)
            self._after_damage = True  # the rest of this gap is the same trouble, not another
            return Chunk(gap, "bytes that are no picture") if foreign else None
        gap = self._cut_off(begin)
        foreign = self._is_foreign(gap)
        self._at, self._step, self._segment, self._after_damage = 2, self._markers, None, False
        return Chunk(gap, "bytes that are no picture") if foreign else None

    def _markers(self) -> Chunk | None:
        buffer, at = self._buffer, self._at
        if at >= len(buffer):
            return None
        while at < len(buffer) and buffer[at] == 0xFF:
            at += 1
        fill_bytes = at - self._at
        if not 0 < fill_bytes <= MAX_GAP_BYTES:
            return self._astray()
        return self._marker(buffer[at], at + 1) if at < len(buffer) else None

    def _marker(self, code: int, at: int) -> Chunk | None:
        if code == 0xD9:
            return self._picture(at)
        if code in (0x00, 0xD8):
            return self._astray()
        if code in STANDALONE:
            self._at = at
            return None
        return self._step_over(code, at)

    def _step_over(self, code: int, at: int) -> Chunk | None:
        buffer = self._buffer
        if at + 2 > len(buffer):
            return None
        length = int.from_bytes(buffer[at : at + 2], "big")
        if length < 2:
            return self._astray()
        if at + length > len(buffer):
            return None
        if at + length > self._max_picture_bytes:
            return self._broken("larger than a picture may be", at)
        self._segment = (at, code)
        self._at = at + length
        if code == SOS:
            self._step = self._entropy
        return None

    def _entropy(self) -> Chunk | None:
        match = ENTROPY_END.search(self._buffer, self._at)
        if match is None:
            self._at = max(self._at, len(self._buffer) - 1)
            if len(self._buffer) > self._max_picture_bytes:
                return self._broken("larger than a picture may be", len(self._buffer) - 1)
            return None
        code = self._buffer[match.start() + 1]
        if code == 0xD9:
            return self._picture(match.end())
        if code == 0xD8:
            return self._broken("cut: the next picture starts inside it", match.start())
        if code not in BETWEEN_SCANS:
            return self._broken(f"marker {code:02X} inside picture data", match.end())
        self._at, self._step = match.start(), self._markers
        return None

    def _astray(self) -> Chunk:
        """No marker where one must be: a segment was cut, and its length led into what follows.

        The next picture may then have started inside the segment, so the search goes back into it; not into
        application data, where a thumbnail would be taken for a picture.
        """
        resume = self._at
        if self._segment is not None and self._segment[1] not in APPLICATION and self._segment[1] != COMMENT:
            resume = self._segment[0]
        return self._broken("its header is broken", max(2, resume))

    def _picture(self, end: int) -> Chunk:
        chunk = Chunk(self._cut_off(end))
        self._at, self._step = 0, self._seek
        return chunk

    def _broken(self, fault: str, resume: int) -> Chunk:
        chunk = Chunk(self._cut_off(resume), fault)
        self._at, self._step, self._after_damage = 0, self._seek, True
        return chunk

    def _cut_off(self, end: int) -> bytes:
        piece = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._at = 0
        return piece

    def _is_foreign(self, gap: bytes) -> bool:
        if self._after_damage or len(gap) <= HARMLESS_GAP_BYTES:
            return False
        return len(MULTIPART.sub(b"", gap).strip(PADDING)) > HARMLESS_GAP_BYTES
