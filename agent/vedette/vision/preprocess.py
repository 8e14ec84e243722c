"""From a frame to the model's input tensor, in place and without allocating. Pure.

The order is: resize the planes, convert the small picture, turn it upright, pad it, and look the stored
values up in one table that holds the whole normalisation and quantisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from vedette.errors import BundleError, InternalError, OutOfMemoryError
from vedette.vision.geometry import Placement, place
from vedette.vision.normalise import build_tables, channels_of, check_values
from vedette.vision.sampling import Sampler
from vedette.wire.bundle import Colour, TensorLayout

if TYPE_CHECKING:
    from vedette.vision.picture import Picture
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import InputSpec
    from vedette.wire.pixels import FrameFormat

# Formats remembered with their scratch memory: one for each camera, and a few for clients' pictures.
_PLANS = 16
# Scale 1 and zero point -128 only flip this bit of a pixel; an exclusive-or beats any table.
_SIGN_BIT = 0x80


class _Plan(msgspec.Struct, frozen=True, eq=False):
    """What is computed once for a frame format; `canvas` is padded already, `region` is a view into it."""

    placement: Placement
    sampler: Sampler
    canvas: NDArray[np.uint8]
    region: NDArray[np.uint8]
    swapped: bool


class Preprocessor:
    """Fills the input tensor of one model; owns its scratch memory, so one thread only.

    Raises:
        BundleError: The input section contradicts itself or the model's tensor.
    """

    def __init__(self, spec: InputSpec, tensor: TensorInfo) -> None:
        check_values(spec)
        self._spec = spec
        self._channels = channels_of(spec)
        self._shape = _expected_shape(spec, self._channels)
        if tensor.shape != self._shape:
            raise BundleError(
                f"model.yaml says the input is {spec.layout.value} {spec.size[0]}x{spec.size[1]} "
                f"{spec.colour.value}, shape {self._shape}; the model's input {tensor.name!r} has shape "
                f"{tensor.shape}",
                cure="correct input.size, input.layout or input.colour, or fix the model's symbolic axes",
            )
        self._writer = _TensorWriter(spec, build_tables(spec, tensor))
        self._plans: dict[FrameFormat, _Plan] = {}

    def prepare(self, picture: Picture, out: NDArray[Any]) -> Placement:
        """Write the picture into the engine's input.

        Args:
            picture: Any supported format; it is only read.
            out: C-contiguous, of the tensor's shape and type; every element is written.

        Returns:
            Where the frame lies in the input, for the way back.

        Raises:
            OutOfMemoryError: Scratch memory could not be allocated; the next frame may work.
            InternalError: `out` is not the tensor that this preprocessor was built for.
        """
        try:
            plan = self._plans.get(picture.format) or self._remember(picture.format)
            plan.sampler.sample(picture, plan.region)
            self._writer.write(plan.canvas, out, swapped=plan.swapped)
        except MemoryError as error:
            raise OutOfMemoryError("no memory to preprocess a frame") from error
        except cv2.error as error:
            if error.code == cv2.Error.StsNoMem:
                raise OutOfMemoryError("no memory to preprocess a frame") from error
            raise InternalError(f"preprocessing {picture.format} failed: {error}") from error
        return plan.placement

    def _remember(self, frame: FrameFormat) -> _Plan:
        while len(self._plans) >= _PLANS:
            del self._plans[next(iter(self._plans))]
        plan = self._plans[frame] = self._plan(frame)
        return plan

    def _plan(self, frame: FrameFormat) -> _Plan:
        spec = self._spec
        placement = place(frame, spec.size, spec.resize)
        sampler = Sampler(frame, placement, spec.interpolation, spec.colour)
        width, height = spec.size
        canvas = np.empty((height, width) if self._channels == 1 else (height, width, 3), np.uint8)
        # The manifest gives R, G, B; the canvas has the order that the sampler writes.
        canvas[...] = spec.pad[::-1] if sampler.order is Colour.BGR else spec.pad
        x, y, region_width, region_height = placement.region
        region = canvas[y : y + region_height, x : x + region_width]
        return _Plan(placement, sampler, canvas, region, sampler.order is not spec.colour)


def _expected_shape(spec: InputSpec, channels: int) -> tuple[int, ...]:
    width, height = spec.size
    if spec.layout is TensorLayout.NHWC:
        return (1, height, width, channels)
    return (1, channels, height, width)


class _TensorWriter:
    """The last step: swap channels, change the layout and look up stored values."""

    def __init__(self, spec: InputSpec, tables: NDArray[Any]) -> None:
        width, height = spec.size
        self._planar = spec.layout is TensorLayout.NCHW
        self._gray = channels_of(spec) == 1
        self._dtype = tables.dtype
        # A look-up moves bits and never reads them: float16 and signed bytes travel as unsigned integers.
        self._bits = _bits_of(tables.dtype)
        bits = tables.view(self._bits)
        self._identity = tables.dtype == np.uint8 and bool(np.array_equal(bits, np.arange(256)[None, :]))
        self._sign_flip = tables.dtype == np.int8 and bool(
            np.array_equal(bits, (np.arange(256) ^ _SIGN_BIT)[None, :])
        )
        self._tables = [np.ascontiguousarray(row[None, :]) for row in bits]
        self._interleaved = np.ascontiguousarray(bits.T[None, :, :])
        self._canvas = np.empty((height, width, 3), np.uint8)
        self._pixels = np.empty((3, height, width), np.uint8)
        self._rows = self._pixels.reshape(3 * height, width)
        self._out: NDArray[Any] | None = None

    def write(self, canvas: NDArray[np.uint8], out: NDArray[Any], *, swapped: bool) -> None:
        """Fill `out` from the padded 8-bit picture; `swapped` says that its channels are in reverse."""
        if out is not self._out:
            self._bind(out)
        if self._gray:
            self._look_up(canvas, self._target)
        elif self._planar:
            self._write_planes(canvas, swapped=swapped)
        elif not swapped:
            self._look_up(canvas, self._target)
        elif self._identity:
            cv2.cvtColor(canvas, cv2.COLOR_BGR2RGB, dst=self._target)
        else:
            cv2.cvtColor(canvas, cv2.COLOR_BGR2RGB, dst=self._canvas)
            self._look_up(self._canvas, self._target)

    def _bind(self, out: NDArray[Any]) -> None:
        """Make the views of an output once; an engine keeps its input array for life."""
        height, width = self._canvas.shape[:2]
        channels = 1 if self._gray else 3
        shape = (1, channels, height, width) if self._planar else (1, height, width, channels)
        if out.shape != shape or out.dtype != self._dtype or not out.flags.c_contiguous:
            raise InternalError(
                f"the engine's input array is {out.dtype} {out.shape}, "
                f"the preprocessor was built for contiguous {self._dtype} {shape}"
            )
        bits = out.view(self._bits)
        if self._gray:
            self._target = bits.reshape(height, width)
        elif self._planar:
            self._target = bits.reshape(3 * height, width)
        else:
            self._target = bits[0]
        planes = list(bits[0] if self._identity else self._pixels) if self._planar else []
        self._planes_out = list(bits[0]) if self._planar else []
        self._planes_straight = planes
        self._planes_swapped = planes[::-1]
        self._out = out

    def _write_planes(self, canvas: NDArray[np.uint8], *, swapped: bool) -> None:
        cv2.split(canvas, self._planes_swapped if swapped else self._planes_straight)
        if self._identity:
            return
        if len(self._tables) == 1:
            self._look_up(self._rows, self._target)
            return
        for plane, table, target in zip(self._pixels, self._tables, self._planes_out, strict=True):
            cv2.LUT(plane, table, dst=target)

    def _look_up(self, pixels: NDArray[np.uint8], target: NDArray[Any]) -> None:
        if self._identity:
            np.copyto(target, pixels)
        elif self._sign_flip:
            np.bitwise_xor(pixels, _SIGN_BIT, out=target)
        elif len(self._tables) == 1:
            cv2.LUT(pixels, self._tables[0], dst=target)
        else:
            cv2.LUT(pixels, self._interleaved, dst=target)


def _bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Give the type OpenCV looks up: its own for float32, an unsigned integer of the same size otherwise."""
    return dtype if dtype == np.float32 else np.dtype(f"u{dtype.itemsize}")
