"""Numbers as a stream of bits that costs what they surprise: an adaptive binary range coder. Pure.

Source: G. N. N. Martin, "Range encoding", Video & Data Recording Conference, Southampton 1979; each yes or no
is coded with odds counted from those before it (Krichevsky and Trofimov, 1981), a number as its length in
unary, then its bits (Elias, 1975). All arithmetic is on whole numbers, so both ends always agree.
"""

from __future__ import annotations

from vedette.errors import BadInputError

MAX_NUMBER_BITS = 128

_TOP = 1 << 24
_FULL = 0xFFFFFFFF
_STEP = 2
_LIMIT = 1 << 11  # counts above this are halved, so that old ones weigh less
_RAW_BITS = 16  # bits of even odds that are coded in one go
_LEARNT_BITS = 2  # of a number's bits, the first that have odds of their own

Odds = list[int]  # how often no, how often yes


class NumberOdds:
    """What is known about the numbers of one kind so far."""

    __slots__ = ("bits", "length")

    def __init__(self) -> None:
        self.length: list[Odds] = []
        self.bits: list[list[Odds]] = []

    def reach(self, width: int) -> None:
        """Make odds for numbers of up to `width` bits."""
        while len(self.length) <= width:
            self.length.append([1, 1])
            self.bits.append([[1, 1] for _ in range(1 << _LEARNT_BITS)])


class RangeEncoder:
    """Writes; `finish` gives the bytes."""

    def __init__(self) -> None:
        self._low = 0
        self._range = _FULL
        self._held = 0  # the last byte, which a carry may still change; the first of all stays 0
        self._held_count = 1  # it and the 0xff bytes behind it
        self._out = bytearray()

    def bit(self, odds: Odds, value: int) -> None:
        """A yes or no, and what it teaches."""
        no, yes = odds
        bound = self._range // (no + yes) * no
        if value:
            self._low += bound
            self._range -= bound
            odds[1] = yes + _STEP
        else:
            self._range = bound
            odds[0] = no + _STEP
        if no + yes > _LIMIT:
            odds[0] = odds[0] + 1 >> 1
            odds[1] = odds[1] + 1 >> 1
        while self._range < _TOP:
            self._range <<= 8
            self._shift()

    def raw(self, value: int, width: int) -> None:
        """`width` bits of even odds."""
        while width > _RAW_BITS:
            width -= _RAW_BITS
            self._raw(value >> width & (1 << _RAW_BITS) - 1, _RAW_BITS)
        if width:
            self._raw(value & (1 << width) - 1, width)

    def number(self, odds: NumberOdds, value: int) -> None:
        """A number >= 0, and what it teaches."""
        value += 1
        width = value.bit_length() - 1
        odds.reach(width)
        for known in odds.length[:width]:
            self.bit(known, 1)
        self.bit(odds.length[width], 0)
        learnt = min(width, _LEARNT_BITS)
        node = 1
        for shift in range(width - 1, width - 1 - learnt, -1):
            one = value >> shift & 1
            self.bit(odds.bits[width][node], one)
            node = 2 * node + one
        self.raw(value, width - learnt)

    def finish(self) -> bytes:
        """The bytes; zeros at the end are left out, since the reader goes on with zeros."""
        for clear in range(31, -1, -1):
            short = self._low + (1 << clear) - 1 >> clear << clear
            if short < self._low + self._range:
                self._low = short
                break
        for _ in range(5):
            self._shift()
        return bytes(self._out[1:]).rstrip(b"\0")

    def _raw(self, value: int, width: int) -> None:
        self._range >>= width
        self._low += self._range * value
        while self._range < _TOP:
            self._range <<= 8
            self._shift()

    def _shift(self) -> None:
        """Give out the top byte of `_low` once no carry can reach it."""
        low = self._low
        if low < 0xFF000000 or low > _FULL:
            carry = low >> 32
            self._out.append(self._held + carry & 0xFF)
            self._out.extend((0xFF + carry & 0xFF,) * (self._held_count - 1))
            self._held = low >> 24 & 0xFF
            self._held_count = 0
        self._held_count += 1
        self._low = (low & 0x00FFFFFF) << 8


class RangeDecoder:
    """Reads what a RangeEncoder wrote; damaged bytes give wrong numbers, but always an end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4
        self._range = _FULL
        self._code = int.from_bytes(data[:4].ljust(4, b"\0"), "big")

    def bit(self, odds: Odds) -> int:
        """The next yes (1) or no (0)."""
        no, yes = odds
        bound = self._range // (no + yes) * no
        if self._code >= bound:
            self._code -= bound
            self._range -= bound
            odds[1] = yes + _STEP
            value = 1
        else:
            self._range = bound
            odds[0] = no + _STEP
            value = 0
        if no + yes > _LIMIT:
            odds[0] = odds[0] + 1 >> 1
            odds[1] = odds[1] + 1 >> 1
        if self._range < _TOP:
            self._fill()
        return value

    def raw(self, width: int) -> int:
        """`width` bits."""
        value = 0
        while width > _RAW_BITS:
            width -= _RAW_BITS
            value = value << _RAW_BITS | self._raw(_RAW_BITS)
        return value << width | self._raw(width) if width else value

    def number(self, odds: NumberOdds) -> int:
        """A number >= 0.

        Raises:
            BadInputError: It is longer than anything that is ever written.
        """
        width = 0
        while True:
            odds.reach(width)
            if not self.bit(odds.length[width]):
                break
            width += 1
            if width > MAX_NUMBER_BITS:
                raise BadInputError("a sketch with a number without an end")
        learnt = min(width, _LEARNT_BITS)
        node = 1
        for _ in range(learnt):
            node = 2 * node + self.bit(odds.bits[width][node])
        rest = width - learnt
        return (node << rest | self.raw(rest)) - 1

    def finish(self) -> None:
        """Insist that everything was read.

        Raises:
            BadInputError: There is more.
        """
        if self._at < len(self._data):
            raise BadInputError("a sketch with something behind its end")

    def _raw(self, width: int) -> int:
        self._range >>= width
        value = min(self._code // self._range, (1 << width) - 1)
        self._code -= value * self._range
        if self._range < _TOP:
            self._fill()
        return value

    def _fill(self) -> None:
        while self._range < _TOP:
            self._range <<= 8
            byte = self._data[self._at] if self._at < len(self._data) else 0
            self._code = (self._code << 8 | byte) & _FULL
            self._at += 1
