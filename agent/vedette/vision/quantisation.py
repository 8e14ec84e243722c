"""real = scale * (stored - zero point), each tensor with its own parameters (casebook 10). Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vedette.errors import BundleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import Quantisation


class Affine(NamedTuple):
    """Parameters of one quantised tensor; the scale is above 0."""

    scale: float
    zero_point: int


def affine_of(tensor: TensorInfo, override: Quantisation | None, field: str) -> Affine | None:
    """Find how a tensor is quantised; None means that stored values are real values.

    A float tensor is never quantised, whatever its runtime reports; scale 0 means "not quantised".

    Args:
        tensor: What the engine reports.
        override: The manifest's word, which wins.
        field: The manifest's key, for messages.

    Raises:
        BundleError: The override cannot apply to this tensor.
    """
    stated = tensor if override is None else override
    scale, zero_point = stated.scale, stated.zero_point
    if not math.isfinite(scale) or scale < 0:
        raise BundleError(f"{field}: scale {scale} of {tensor.name!r} is not a scale")
    if scale == 0:
        return None
    if np.dtype(tensor.dtype).kind == "f":
        if override is not None:
            raise BundleError(
                f"{field} gives scale {scale:g}, but {tensor.name!r} is {tensor.dtype} and not quantised",
                cure=f"remove {field}",
            )
        return None
    return Affine(scale, zero_point)


def to_real(stored: NDArray[Any], affine: Affine | None) -> NDArray[np.float32]:
    """Turn stored values into real ones; a view where nothing is to be done."""
    if affine is None:
        return stored.astype(np.float32, copy=False)
    real = stored.astype(np.float32)
    real -= affine.zero_point
    real *= affine.scale
    return real
