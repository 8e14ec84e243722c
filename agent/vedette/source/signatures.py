"""What the first bytes of an input announce: what can be read, and known things that cannot. Pure."""

from __future__ import annotations

from vedette.source.jpegstream import START
from vedette.source.y4m import STREAM_MAGIC

PACKET_BYTES = 188  # of an MPEG transport stream
# Name, offset, bytes there.
FOREIGN = (
    ("an MP4 or MOV file", 4, b"ftyp"),
    ("a Matroska or WebM file", 0, b"\x1a\x45\xdf\xa3"),
    ("an AVI file", 8, b"AVI "),
    ("a FLV file", 0, b"FLV\x01"),
    ("an MPEG program stream", 0, b"\x00\x00\x01\xba"),
    *(
        ("an H.264 or H.265 stream", 0, b"\x00\x00\x00\x01" + unit)
        for unit in (b"\x67", b"\x27", b"\x09", b"\x40")
    ),
    ("a PNG picture", 0, b"\x89PNG\r\n\x1a\n"),
    ("a GIF picture", 0, b"GIF8"),
    ("a gzip file", 0, b"\x1f\x8b\x08"),
)


def guess_container(head: bytes) -> str:
    """Tell y4m and JPEG, which announce themselves; everything else is taken for raw video."""
    if head.startswith(STREAM_MAGIC):
        return "y4m"
    if head.startswith(START) or b"\r\n\r\n" + START in head or head.lstrip(b"\r\n").startswith(b"--"):
        return "mjpeg"
    return "rawvideo"


def known_foreign(head: bytes) -> str:
    """Name a known thing that cannot be read from a pipe, such as `an MP4 or MOV file`; empty if unknown."""
    for name, offset, magic in FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            return name
    if len(head) > 2 * PACKET_BYTES and head[0] == head[PACKET_BYTES] == head[2 * PACKET_BYTES] == 0x47:
        return "an MPEG transport stream"
    text = head[:512]
    if b"\n" in text and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in text):
        return "text"
    return ""
