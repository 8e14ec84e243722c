"""Vectors that are exactly a factor times another vector of the same file, as bias scales are. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.elements import BY_NAME
from vedette.delta.execute import product
from vedette.delta.layout import Operation, Predictor
from vedette_fleet.delta.choose import Choice

if TYPE_CHECKING:
    from vedette.delta.elements import Array
    from vedette_fleet.delta.tensors import Tensor

MIN_LENGTH = 16
MAX_LENGTH = 1 << 18
NEAR = 1e-5
_STEPS = 8  # units in the last place to either side of the median ratio
_FLOAT = BY_NAME["float32"]


def find_products(data: bytes, tensors: list[Tensor]) -> dict[int, Choice]:
    """Index of a tensor -> the operation that makes it from another; none of those is a product itself."""
    alike: dict[int, list[int]] = defaultdict(list)
    for index, tensor in enumerate(tensors):
        length = tensor.size_bytes // 4
        if tensor.element is _FLOAT and len(tensor.shape) == 1 and MIN_LENGTH <= length <= MAX_LENGTH:
            alike[length].append(index)
    found: dict[int, Choice] = {}
    sources: set[int] = set()
    for indices in alike.values():
        vectors = np.array([tensors[index].values(data).view("<f4") for index in indices])
        for row, index in enumerate(indices):
            if index in sources:
                continue
            match = _find(vectors, row, [other not in found for other in indices])
            if match is not None:
                source, factor = match
                found[index] = _choice(tensors[index], tensors[indices[source]], factor)
                sources.add(indices[source])
    return found


def _find(vectors: Array, row: int, free: list[bool]) -> tuple[int, np.float32] | None:
    wanted = vectors[row]
    with np.errstate(all="ignore"):
        first = wanted[0] / vectors[:, 0]
        near = np.abs(vectors[:, -1] * first - wanted[-1]) <= NEAR * np.abs(wanted[-1])
        near &= np.isfinite(first) & (first != 0) & free
    near[row] = False
    for source in np.flatnonzero(near):
        factor = _factor(vectors[source], wanted)
        if factor is not None:
            return int(source), factor
    return None


def _factor(vector: Array, wanted: Array) -> np.float32 | None:
    """The float32 whose product is the wanted vector bit for bit."""
    if not np.isfinite(wanted).all() or not np.isfinite(vector).all():
        return None
    ratios = wanted.astype(np.float64) / np.where(vector == 0, 1, vector)
    low = high = np.float32(np.median(ratios))
    tried = [low]
    for _ in range(_STEPS):
        low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
        tried += [low, high]
    factor: np.float32
    for factor in tried:
        if np.isfinite(factor) and product(vector, factor).tobytes() == wanted.tobytes():
            return factor
    return None


def _choice(tensor: Tensor, source: Tensor, factor: np.float32) -> Choice:
    op = Operation(tensor.offset, 1, tensor.size_bytes // 4, _FLOAT, Predictor.PRODUCT)
    return Choice(replace(op, scale_target=source.offset), np.array([factor], np.float32))
