"""Everything between an 8-bit pixel and a stored tensor element, as one table a channel. Pure.

real = (pixel - mean) / std, or `range` mapped from 0..255, or the pixel itself;
stored = clip(round(real / scale) + zero point), rounding halves away from zero as the runtimes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.quantisation import Affine, affine_of
from vedette.wire.bundle import Colour

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import InputSpec

INPUT_DTYPES = ("uint8", "int8", "int16", "uint16", "float16", "float32")
# A picture of fewer levels than this is not what any model was trained on: a unit is wrong.
_FEWEST_LEVELS = 8


def channels_of(spec: InputSpec) -> int:
    """Give the number of channels of the model's picture."""
    return 1 if spec.colour is Colour.GRAY else 3


def check_values(spec: InputSpec) -> None:
    """Refuse an input section whose numbers contradict each other.

    Raises:
        BundleError: Naming the field, what is wrong with it and what is right.
    """
    channels = channels_of(spec)
    if (spec.mean is None) != (spec.std is None):
        raise BundleError("input.mean and input.std go together; only one is given")
    if spec.range is not None and spec.mean is not None:
        raise BundleError(
            "input gives both range and mean/std", cure="keep the one that the model was trained with"
        )
    for field, values in (("mean", spec.mean), ("std", spec.std)):
        if values is not None and len(values) not in {1, channels}:
            raise BundleError(f"input.{field} has {len(values)} values; give 1 or {channels}")
    if spec.std is not None and not all(value > 0 for value in spec.std):
        raise BundleError(f"input.std is {spec.std}; every value must be above 0")
    if spec.range is not None and not spec.range[0] < spec.range[1]:
        raise BundleError(f"input.range is {spec.range}; the first value must be below the second")
    if len(spec.pad) not in {1, channels} or not all(0 <= level <= 255 for level in spec.pad):
        raise BundleError(f"input.pad is {spec.pad}; give 1 or {channels} grey levels 0..255")
    if min(spec.size) < 1:
        raise BundleError(f"input.size is {spec.size}; width and height must be above 0")


def build_tables(spec: InputSpec, tensor: TensorInfo) -> NDArray[Any]:
    """Fold normalisation and quantisation into tables.

    Returns:
        (1, 256) when all channels are alike, else (channels, 256), of the tensor's type.

    Raises:
        BundleError: The values do not fit the tensor's type.
    """
    if tensor.dtype not in INPUT_DTYPES:
        raise BundleError(
            f"the model's input {tensor.name!r} is {tensor.dtype}; a picture can be {', '.join(INPUT_DTYPES)}"
        )
    affine = affine_of(tensor, spec.quantisation, "input.quantisation")
    real = _real_values(spec)
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            table = real.astype(dtype)
        if not np.isfinite(table).all():
            raise BundleError(f"input values up to {np.abs(real).max():g} do not fit {tensor.dtype}")
        return table
    return _stored_values(real, affine, dtype)


def _real_values(spec: InputSpec) -> NDArray[np.float64]:
    """Give the (1 or channels, 256) real values of the 256 pixel levels."""
    pixels = np.arange(256, dtype=np.float64)[None, :]
    if spec.range is not None:
        low, high = spec.range
        return low + pixels * ((high - low) / 255.0)
    if spec.mean is None or spec.std is None:
        return pixels
    mean = np.array(spec.mean, np.float64)[:, None]
    std = np.array(spec.std, np.float64)[:, None]
    real = (pixels - mean) / std
    return real[:1] if np.array_equal(real, np.broadcast_to(real[:1], real.shape)) else real


def _stored_values(real: NDArray[np.float64], affine: Affine | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    steps = real if affine is None else real / affine.scale
    exact = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + (0 if affine is None else affine.zero_point)
    stored = np.asarray(np.clip(exact, limits.min, limits.max), dtype)
    span = f"real input values {real.min():g}..{real.max():g}"
    if affine is None and not np.array_equal(stored, exact):
        raise BundleError(
            f"{span} do not fit {dtype.name}, and the model carries no quantisation",
            cure="give input.quantisation (scale and zero_point), or the right range or mean/std",
        )
    if any(len(np.unique(row)) < _FEWEST_LEVELS for row in stored):
        how = "rounding" if affine is None else f"scale {affine.scale:g}, zero point {affine.zero_point}"
        raise BundleError(
            f"{span} become fewer than {_FEWEST_LEVELS} levels of {dtype.name} by {how}",
            cure="state the range or mean/std that the model was trained with",
        )
    return stored
