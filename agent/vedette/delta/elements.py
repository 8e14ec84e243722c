"""Element types, their order-preserving integer image, and residuals as tokens with raw low bits. Pure.

A float's image is its magnitude's bits, complemented where it is negative, so that close values have close
images and a difference of images is exact. A residual becomes a token of at most 255: small ones stand for
themselves, larger ones name their bit length, the two bits below the leading one, and their sign; the bits
further down follow raw. (The split is that of the hybrid integers of JPEG XL.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette.delta.varint import damaged

Array = NDArray[Any]
DIRECT = 16  # magnitudes below it are tokens of their own
_FIRST_SPLIT = 2 * DIRECT - 1
_SPLIT_BITS = 5  # bit length of DIRECT


@dataclass(frozen=True)
class Element:
    """One element type; `exponent_bits` is 0 for integers."""

    code: int
    name: str
    size: int
    signed: bool
    exponent_bits: int = 0

    @property
    def is_float(self) -> bool:
        """Sign and magnitude instead of two's complement."""
        return self.exponent_bits > 0

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 8 * self.size

    @property
    def mantissa_bits(self) -> int:
        """Bits below the exponent."""
        return self.bits - 1 - self.exponent_bits

    @property
    def integer(self) -> np.dtype[Any]:
        """The NumPy integer of this width that shows the values of integers, or the bits of floats."""
        return np.dtype(f"<{'i' if self.signed and not self.is_float else 'u'}{self.size}")


ELEMENTS = (
    Element(0, "int8", 1, signed=True),
    Element(1, "uint8", 1, signed=False),
    Element(2, "int16", 2, signed=True),
    Element(3, "uint16", 2, signed=False),
    Element(4, "int32", 4, signed=True),
    Element(5, "uint32", 4, signed=False),
    Element(6, "float16", 2, signed=True, exponent_bits=5),
    Element(7, "bfloat16", 2, signed=True, exponent_bits=8),
    Element(8, "float32", 4, signed=True, exponent_bits=8),
)
BY_NAME = {element.name: element for element in ELEMENTS}
BYTES = BY_NAME["uint8"]


def to_image(values: Array, element: Element, shift: int) -> Array:
    """Order-preserving int64 image; `shift` low bits of a float's magnitude are dropped."""
    wide = values.astype(np.int64)
    if not element.is_float:
        return wide
    magnitude = (wide & ((1 << element.bits - 1) - 1)) >> shift
    return np.where(wide >> (element.bits - 1), ~magnitude, magnitude)


def from_image(image: Array, element: Element, shift: int) -> Array:
    """Values (floats as their bits) of an image, taken modulo the width."""
    wrapped = image.astype(np.dtype(f"<i{element.size}"))
    if not element.is_float:
        return wrapped.view(element.integer)
    wide = wrapped.astype(np.int64)
    negative = wide < 0
    magnitude = (np.where(negative, ~wide, wide) << shift) & ((1 << element.bits - 1) - 1)
    return (magnitude | negative.astype(np.int64) << (element.bits - 1)).astype(element.integer)


def residual_of(image: Array, predicted: Array, element: Element) -> Array:
    """Difference modulo the width, centred on 0."""
    return (image - predicted).astype(np.dtype(f"<i{element.size}")).astype(np.int64)


def split(residual: Array) -> tuple[Array, Array, Array]:
    """Tokens (uint8), and for each element how many raw bits follow and what they are."""
    magnitude = np.abs(residual)
    negative = (residual < 0).astype(np.int64)
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)  # exact: magnitudes are below 2^53
    raw_bits = np.where(magnitude < DIRECT, 0, length - 3)
    top = (magnitude >> raw_bits) & 3
    large = _FIRST_SPLIT + (((length - _SPLIT_BITS) * 4 + top) << 1) + negative
    small = 2 * magnitude - negative
    tokens = np.where(magnitude < DIRECT, small, large).astype(np.uint8)
    return tokens, raw_bits, magnitude & ((1 << raw_bits) - 1)


def raw_widths(tokens: Array) -> Array:
    """How many raw bits follow each token (int64)."""
    widths: Array = RAW_WIDTHS.take(tokens)
    return widths


def join(tokens: Array, raw: Array) -> Array:
    """Residuals from tokens and raw bits."""
    residual: Array = _SIGNS.take(tokens)
    residual *= raw
    residual += _BASES.take(tokens)
    return residual


def split_top(values: Array, element: Element) -> tuple[Array, Array, Array]:
    """Tokens of floats that have no prediction: the sign is moved to the end, the top byte is the token."""
    wide = values.astype(np.int64)
    turned = (wide << 1 | wide >> (element.bits - 1)) & ((1 << element.bits) - 1)
    low = element.bits - 8
    return (turned >> low).astype(np.uint8), np.full(values.shape, low, np.int64), turned & ((1 << low) - 1)


def join_top(tokens: Array, raw: Array, element: Element) -> Array:
    """Bits of floats from their top byte and the rest."""
    turned = tokens.astype(np.int64) << (element.bits - 8) | raw
    wide = turned >> 1 | (turned & 1) << (element.bits - 1)
    return wide.astype(element.integer)


def _token_tables() -> tuple[Array, Array, Array]:
    """Of each token: the width of its raw bits, the residual without them, and their sign."""
    widths = np.zeros(256, np.int64)
    bases = np.zeros(256, np.int64)
    signs = np.ones(256, np.int64)
    for token in range(256):
        rest = token - _FIRST_SPLIT
        if rest < 0:
            signs[token] = -1 if token & 1 else 1
            bases[token] = int(signs[token]) * (token + 1 >> 1)
            continue
        signs[token] = -1 if rest & 1 else 1
        widths[token] = (rest >> 3) + _SPLIT_BITS - 3
        bases[token] = int(signs[token]) * ((4 + (rest >> 1 & 3)) << int(widths[token]))
    return widths, bases, signs


RAW_WIDTHS, _BASES, _SIGNS = _token_tables()


class BitReader:
    """Raw bits, little-endian, of widths known only as tokens arrive."""

    def __init__(self, raw: bytes) -> None:
        self._bits = 8 * len(raw)
        padded = np.frombuffer(raw + bytes(8), np.uint8)
        # Every byte starts a 64-bit window, so that one gather reads a value of up to 57 bits.
        self._windows: Array = np.ndarray((len(raw) + 1,), "<u8", padded, strides=(1,))
        self._at = 0

    def read(self, widths: Array) -> Array:
        """One value a width (int64).

        Raises:
            BadInputError: The bits end early.
        """
        values = np.zeros(widths.shape, np.int64)
        (wide,) = widths.nonzero()  # of small residuals, few have raw bits
        if wide.size:
            values[wide] = self._gather(widths[wide])
        return values

    def _gather(self, widths: Array) -> Array:
        ends = np.cumsum(widths)
        if self._at + int(ends[-1]) > self._bits:
            raise damaged("raw bits end early")
        starts = ends - widths + self._at
        self._at += int(ends[-1])
        window = self._windows[starts >> 3] >> (starts & 7).astype(np.uint64)
        mask = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
        values: Array = (window & mask).astype(np.int64)
        return values

    def finish(self) -> None:
        """Insist that only padding is left."""
        if self._bits - self._at >= 8:
            raise damaged("raw bits are left over")
