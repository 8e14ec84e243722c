"""Unsigned and zigzag integers of variable length (LEB128), read within bounds. Pure."""

from __future__ import annotations

from vedette.errors import BadInputError

MAX_BITS = 63
CURE = "fetch the patch again; if it fails again, the release was published damaged"


def damaged(what: str) -> BadInputError:
    """The error for a patch that breaks its format."""
    return BadInputError(f"damaged patch: {what}", cure=CURE)


def write(out: bytearray, value: int) -> None:
    """Append an unsigned integer."""
    if value < 0:
        raise ValueError("a negative number needs write_signed")
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_signed(out: bytearray, value: int) -> None:
    """Append an integer; small magnitudes take few bytes."""
    write(out, value << 1 if value >= 0 else (-value << 1) - 1)


class Cursor:
    """Reads forward through bytes.

    Every read raises BadInputError where the bytes end or a number exceeds its limit.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.at = 0

    def number(self, what: str, limit: int = 1 << MAX_BITS) -> int:
        """An unsigned integer of at most `limit`."""
        value = shift = 0
        while True:
            if self.at >= len(self._raw) or shift > MAX_BITS:
                raise damaged(f"{what}: a number without an end")
            byte = self._raw[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value > limit:
            raise damaged(f"{what} is {value}; at most {limit} is possible here")
        return value

    def signed(self, what: str) -> int:
        """A zigzag integer."""
        value = self.number(what, (1 << MAX_BITS + 1) - 1)
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes."""
        if size > len(self._raw) - self.at:
            raise damaged(f"{what}: {size} bytes where {len(self._raw) - self.at} are left")
        self.at += size
        return self._raw[self.at - size : self.at]

    def finish(self, what: str) -> None:
        """Insist that everything was read."""
        if self.at != len(self._raw):
            raise damaged(f"{what}: {len(self._raw) - self.at} bytes too many")
