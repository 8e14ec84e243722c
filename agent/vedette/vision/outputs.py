"""Which output tensor is which, and what its stored values mean. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.errors import BundleError, FrameError
from vedette.vision.quantisation import Affine, affine_of, to_real
from vedette.vision.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.wire.bundle import OutputSpec


# Elements below which a mask is quicker than a sum with its warnings switched off.
_SMALL = 10_000


class BoundOutput(msgspec.Struct, frozen=True):
    """One output in the manifest's order: where the engine puts it, and how it is quantised.

    Axes of 0 or less in `info.shape` are not known before the first run.
    """

    position: int
    info: TensorInfo
    dtype: np.dtype[Any]
    affine: Affine | None

    @property
    def step(self) -> float:
        """The size of one stored step in real units; 0 for floats."""
        return 0.0 if self.affine is None else self.affine.scale

    def take(self, outputs: tuple[NDArray[Any], ...], *, finite: bool = True) -> NDArray[Any]:
        """Pick this tensor out of a run's outputs, as stored, and make sure that it can be read.

        Args:
            outputs: What the engine gave.
            finite: Look for NaN and infinity here; a caller that sums all values anyway sees them there.

        Raises:
            FrameError: `bad_output`: it is missing, of another shape or type, or holds NaN or infinity.
        """
        if self.position >= len(outputs):
            raise bad_output(f"the engine gave {len(outputs)} outputs, {self.info.name!r} is missing")
        stored = outputs[self.position]
        if stored.dtype != self.dtype or not _shape_fits(stored.shape, self.info.shape):
            raise bad_output(
                f"the output {self.info.name!r} is {stored.dtype} {stored.shape}, "
                f"declared is {self.info.dtype} {self.info.shape}"
            )
        if finite and self.dtype.kind == "f" and not _finite(stored):
            raise self.not_finite()
        return stored

    def not_finite(self) -> FrameError:
        """Build the error for NaN and infinity."""
        return bad_output(f"the output {self.info.name!r} holds NaN or infinity")

    def real_value(self, stored: float) -> float:
        """`real` for a single value that is already a Python number."""
        return stored if self.affine is None else self.affine.scale * (stored - self.affine.zero_point)

    def real(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Turn any part of the tensor into real values, with this tensor's own parameters."""
        return to_real(stored, self.affine)


def bind_outputs(spec: OutputSpec, outputs: tuple[TensorInfo, ...]) -> tuple[BoundOutput, ...]:
    """Put the engine's outputs into the manifest's order; without names, the engine's.

    Raises:
        BundleError: A name does not exist or repeats, or there is not one quantisation for each output.
    """
    positions = {info.name: position for position, info in enumerate(outputs)}
    unknown = [name for name in spec.names if name not in positions]
    if unknown or len(set(spec.names)) != len(spec.names):
        raise BundleError(
            f"output.names {list(spec.names)} are not all different outputs of the model; "
            f"it has {list(positions)}",
            cure="correct output.names",
        )
    order = [positions[name] for name in spec.names] or list(range(len(outputs)))
    if spec.quantisation and len(spec.quantisation) != len(order):
        raise BundleError(
            f"output.quantisation has {len(spec.quantisation)} entries for {len(order)} outputs",
            cure="give one entry for each of output.names, scale 0 for those that are not quantised",
        )
    overrides = spec.quantisation or (None,) * len(order)
    return tuple(
        BoundOutput(
            position,
            outputs[position],
            np.dtype(outputs[position].dtype),
            affine_of(outputs[position], override, "output.quantisation"),
        )
        for position, override in zip(order, overrides, strict=True)
    )


def only_output(bound: tuple[BoundOutput, ...], layout: str) -> BoundOutput:
    """Give the one output of a layout that has one tensor.

    Raises:
        BundleError: There are several and the manifest does not say which.
    """
    if len(bound) != 1:
        raise BundleError(
            f"layout {layout} reads one tensor; the model has {[output.info.name for output in bound]}",
            cure="name the one to read in output.names",
        )
    return bound[0]


def matrix_shape(output: BoundOutput) -> tuple[int, int]:
    """Give the last two axes of a [1, rows, columns] or [rows, columns] tensor; 0 where not known.

    Raises:
        BundleError: The tensor has other axes.
    """
    shape = output.info.shape
    if len(shape) not in {2, 3} or (len(shape) == 3 and shape[0] > 1):
        raise BundleError(f"the output {output.info.name!r} has shape {shape}; [1, rows, columns] is needed")
    return max(0, shape[-2]), max(0, shape[-1])


def bad_output(cause: str) -> FrameError:
    """Build the error for outputs that are no answer."""
    return FrameError(cause, kind="bad_output")


def _shape_fits(actual: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    if actual == declared:
        return True
    return len(actual) == len(declared) and all(
        want in {have, 0} or want < 0 for have, want in zip(actual, declared, strict=True)
    )


def _finite(values: NDArray[Any]) -> bool:
    """Look at every element; in a large tensor the sum is several times faster, and enough nearly always."""
    if values.size < _SMALL:
        return bool(np.isfinite(values).all())
    accumulator = np.float32 if values.dtype == np.float16 else values.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(values, axis=None, dtype=accumulator))
    return math.isfinite(total) or bool(np.isfinite(values).all())
