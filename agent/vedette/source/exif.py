"""EXIF orientation from JPEG, PNG and WebP bytes. Pure.

TIFF structure: Exif 2.32, section 4.5; tag 0x0112. Damaged EXIF says nothing: the picture is then taken as
upright, as every viewer does.
"""

from __future__ import annotations

ORIENTATION_TAG = 0x0112
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
MAX_ENTRIES = 1024


def orientation_of(tiff: bytes) -> int:
    """The EXIF orientation 1..8 of a TIFF block; 1 where there is none."""
    if tiff[:4] == b"II*\x00":
        order = "little"
    elif tiff[:4] == b"MM\x00*":
        order = "big"
    else:
        return 1

    def number(at: int, size_bytes: int) -> int:
        # The two byte orders are what `order` can be; mypy wants literals.
        return int.from_bytes(tiff[at : at + size_bytes], "little" if order == "little" else "big")

    directory = number(4, 4)
    for index in range(min(number(directory, 2), MAX_ENTRIES)):
        entry = directory + 2 + 12 * index
        if entry + 12 > len(tiff):
            return 1
        if number(entry, 2) == ORIENTATION_TAG:
            value = number(entry + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1


def png_orientation(data: bytes) -> int:
    """Orientation of a PNG's eXIf chunk."""
    at = len(PNG_MAGIC)
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind == b"eXIf":
            return orientation_of(data[at + 8 : at + 8 + length])
        at += 12 + length
    return 1


def webp_orientation(data: bytes) -> int:
    """Orientation of a WebP's EXIF chunk; some writers put the JPEG prefix in front."""
    at = 12
    while at + 8 <= len(data):
        kind, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if kind == b"EXIF":
            block = data[at + 8 : at + 8 + length]
            return orientation_of(block[6:] if block.startswith(b"Exif\x00\x00") else block)
        at += 8 + length + (length & 1)
    return 1
