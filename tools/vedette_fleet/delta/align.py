"""Which old tensor a new one descends from. Pure.

In this order: same name, type and shape, unless the contents are strangers; identical content; same type and
shape, by likeness of a sample; same name and type with one axis of another length.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vedette.delta.elements import Array, Element
    from vedette_fleet.delta.tensors import Tensor

SAMPLE = 4096
MIN_COMPARED_BYTES = 2048
STRANGERS = 1.0  # a prediction that is no better than the median
LIKE = 0.95
MAX_CANDIDATES = 200
_USED_PENALTY = 0.02


def align(old: bytes, olds: list[Tensor], new: bytes, news: list[Tensor]) -> dict[int, Tensor]:
    """Index of a new tensor -> the old one."""
    matching = _Matching(old, olds, new)
    found: dict[int, Tensor] = {}
    for match in (matching.by_name, matching.by_content, matching.by_likeness, matching.by_growth):
        for index, tensor in enumerate(news):
            if index not in found:
                mate = match(tensor)
                if mate is not None:
                    found[index] = mate
                    matching.used.add(mate.offset)
    return found


class _Matching:
    def __init__(self, old: bytes, olds: list[Tensor], new: bytes) -> None:
        self._old, self._new = old, new
        self.used: set[int] = set()
        self._named = {tensor.name: tensor for tensor in reversed(olds)}
        self._alike: dict[object, list[Tensor]] = defaultdict(list)
        self._content: dict[bytes, Tensor] = {}
        self._samples: dict[int, Array] = {}
        for tensor in olds:
            self._alike[tensor.element, tensor.shape].append(tensor)
            self._content.setdefault(_digest(old, tensor), tensor)

    def by_name(self, tensor: Tensor) -> Tensor | None:
        mate = self._named.get(tensor.name)
        if mate is None or (mate.element, mate.shape, mate.size_bytes) != (
            tensor.element,
            tensor.shape,
            tensor.size_bytes,
        ):
            return None
        near = tensor.size_bytes < MIN_COMPARED_BYTES or self._distance(mate, tensor) < STRANGERS
        return mate if near else None

    def by_content(self, tensor: Tensor) -> Tensor | None:
        return self._content.get(_digest(self._new, tensor))

    def by_likeness(self, tensor: Tensor) -> Tensor | None:
        mates = self._alike[tensor.element, tensor.shape]
        if tensor.element is None or not 0 < len(mates) <= MAX_CANDIDATES:
            return None
        distances = [
            self._distance(mate, tensor) + _USED_PENALTY * (mate.offset in self.used) for mate in mates
        ]
        best = int(np.argmin(distances))
        return mates[best] if distances[best] < LIKE else None

    def by_growth(self, tensor: Tensor) -> Tensor | None:
        mate = self._named.get(tensor.name)
        if mate is None or tensor.element is None or mate.element is not tensor.element:
            return None
        return mate if grown_axis(mate.shape, tensor.shape) is not None else None

    def _distance(self, mate: Tensor, tensor: Tensor) -> float:
        """Sum of differences over that to the median: 0 is equal, above 1 the old one tells nothing."""
        if mate.offset not in self._samples:
            self._samples[mate.offset] = sample(self._old, mate)
        ours = sample(self._new, tensor)
        spread = np.abs(ours - np.median(ours)).sum() + 1e-12
        return float(np.abs(self._samples[mate.offset] - ours).sum() / spread)


def grown_axis(old: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The one axis whose length differs."""
    if len(old) != len(new):
        return None
    axes = [axis for axis, (before, after) in enumerate(zip(old, new, strict=True)) if before != after]
    return axes[0] if len(axes) == 1 and min(old[axes[0]], new[axes[0]]) > 0 else None


def sample(data: bytes, tensor: Tensor) -> Array:
    """Evenly spaced elements as float64; what is not finite counts as 0."""
    values = tensor.values(data)
    values = values[:: max(1, values.size // SAMPLE)]
    return np.nan_to_num(as_floats(values, tensor), posinf=0, neginf=0)


def as_floats(values: Array, tensor: Tensor) -> Array:
    """The numbers that a tensor's elements stand for, in float64."""
    return as_numbers(values, tensor.element)


def as_numbers(values: Array, element: Element | None) -> Array:
    """The numbers that elements stand for, in float64."""
    if element is None or not element.is_float:
        return values.astype(np.float64)
    if element.name == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return values.view(np.dtype(f"<f{element.size}")).astype(np.float64)


def _digest(data: bytes, tensor: Tensor) -> bytes:
    return hashlib.sha256(memoryview(data)[tensor.offset : tensor.end]).digest()
