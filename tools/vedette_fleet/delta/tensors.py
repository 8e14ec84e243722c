"""What both locators say of a model file: its tensors and where their bytes lie. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vedette.delta.elements import Array, Element

MIN_TENSOR_BYTES = 64
MAX_TENSORS = 8192


@dataclass(frozen=True)
class Scales:
    """Quantisation scales, float32, at a byte offset of the same file, along an axis of their tensor."""

    offset: int
    count: int
    axis: int


@dataclass(frozen=True)
class Tensor:
    """One tensor's payload; `element` is None for a type that is only ever copied."""

    name: str
    shape: tuple[int, ...]
    element: Element | None
    offset: int
    size_bytes: int
    scales: Scales | None = None

    @property
    def end(self) -> int:
        """Where its bytes end."""
        return self.offset + self.size_bytes

    def values(self, data: bytes) -> Array:
        """Its elements, flat; floats as their bits."""
        element = self.element
        kind = np.dtype(np.uint8) if element is None else element.integer
        return np.frombuffer(data, kind, self.size_bytes // kind.itemsize, self.offset)


def usable(tensors: list[Tensor], size_bytes: int) -> list[Tensor]:
    """Those whose bytes lie in the file, fit their shape, and overlap no other; in file order."""
    found: list[Tensor] = []
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, -tensor.size_bytes)):
        if tensor.size_bytes < MIN_TENSOR_BYTES or tensor.offset < end or tensor.end > size_bytes:
            continue
        if tensor.element is not None and math.prod(tensor.shape) * tensor.element.size != tensor.size_bytes:
            continue
        found.append(tensor)
        end = tensor.end
    return found[:MAX_TENSORS]


def inside(scales: Scales, size_bytes: int) -> bool:
    """Whether scales lie in the file."""
    return 0 <= scales.offset <= size_bytes - 4 * scales.count
