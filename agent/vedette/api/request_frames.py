"""From an inference request to the frame that the worker takes. Pure.

Three forms are taken:

- `image` BYTES [1]: a picture file (JPEG, PNG, WebP, BMP, TIFF) by the rules of `vedette.source.decoding`;
- `image` UINT8 [height, width, 3] or [1, height, width, 3]: RGB, or BGR with the parameter `colour: bgr`;
- the model's own input by its name, type and shape: the engine gets it as it is, and its outputs come back
  as they are. A tensor that is both is the model's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.api.datatypes import BYTES, datatype_of, element_count
from vedette.api.refusal import bad_request, not_now, too_large
from vedette.errors import FrameError, OutOfMemoryError
from vedette.source.decoding import decode_picture
from vedette.wire.pixels import FrameFormat, PixelFormat, describe, tensor_format

if TYPE_CHECKING:
    from vedette.api.messages import ModelDescription
    from vedette.api.oip import InferenceRequest, InputTensor
    from vedette.vision.tensors import TensorInfo

IMAGE = "image"
MAX_SIDE = 1 << 15
PIXEL_LIMIT = "CV_IO_MAX_IMAGE_PIXELS"  # OpenCV's own words; `vedette.api.door` sets the limit
_COLOURS = {"rgb": PixelFormat.RGB24, "bgr": PixelFormat.BGR24}
_SMALLER_OR_LARGER = "send a smaller picture, or set http.max_picture in the agent's configuration"


class RequestFrame(NamedTuple):
    """What goes into a slot: a format, and the bytes in their order."""

    format: FrameFormat
    pieces: tuple[memoryview, ...]


def is_encoded(request: InferenceRequest) -> bool:
    """Whether making the frame takes the decoding of a picture, or of numbers in JSON."""
    return any(tensor.datatype == BYTES or tensor.json is not None for tensor in request.inputs)


def is_tensor(request: InferenceRequest, model: ModelDescription) -> bool:
    """Whether the one input is the model's own.

    Raises:
        RequestRefusedError: 400: several inputs, or one that is neither a picture nor the model's own.
    """
    if len(request.inputs) != 1:
        raise bad_request(f"one input is taken, {len(request.inputs)} were given")
    tensor = request.inputs[0]
    own = model.inputs[0] if model.inputs else None
    if own is not None and tensor.name == own.name and _is_own(tensor, own):
        return True
    if tensor.name == IMAGE and tensor.datatype in {BYTES, "UINT8"}:
        return False
    expected = f"{IMAGE!r} as BYTES [1] or UINT8 [height, width, 3]"
    if own is not None:
        expected += f", or {own.name!r} as {datatype_of(own.dtype)} {list(own.shape)}"
    raise bad_request(
        f"the input {tensor.name!r} as {tensor.datatype} {list(tensor.shape)} is not taken",
        cure=f"send {expected}",
    )


def _is_own(tensor: InputTensor, own: TensorInfo) -> bool:
    fits = len(tensor.shape) == len(own.shape) and all(
        have == want or want <= 0 for have, want in zip(tensor.shape, own.shape, strict=True)
    )
    return fits and tensor.datatype == datatype_of(own.dtype)


def frame_of(request: InferenceRequest, model: ModelDescription, slot_bytes: int) -> RequestFrame:
    """The frame of a request.

    Args:
        request: What was asked.
        model: What it is asked of.
        slot_bytes: The room for one frame.

    Raises:
        RequestRefusedError: 400: not an input of this model, or not a picture; 413: larger than a slot.
    """
    if is_tensor(request, model):
        return _tensor_frame(request.inputs[0], slot_bytes)
    tensor = request.inputs[0]
    if tensor.datatype == BYTES:
        return _encoded_frame(tensor, slot_bytes)
    return _pixel_frame(tensor, slot_bytes)


def _tensor_frame(tensor: InputTensor, slot_bytes: int) -> RequestFrame:
    pieces = tensor.memory()
    frame_format = tensor_format(sum(len(piece) for piece in pieces))
    _check_room(frame_format, slot_bytes, tensor.where)
    return RequestFrame(frame_format, pieces)


def _encoded_frame(tensor: InputTensor, slot_bytes: int) -> RequestFrame:
    if element_count(tensor.shape) != 1:
        raise bad_request(f"{tensor.where}: one picture a request, its shape says {list(tensor.shape)}")
    data = tensor.elements()[0]
    if not data:
        raise bad_request(f"{tensor.where}: the picture has no bytes")
    try:
        frame_format, pixels = decode_picture(data)
    except FrameError as error:
        if PIXEL_LIMIT in error.cause:
            raise too_large(
                f"{tensor.where}: it has more pixels than the engine's frame may have bytes",
                cure=_SMALLER_OR_LARGER,
            ) from error
        raise bad_request(f"{tensor.where}: {error.cause}", cure=error.cure) from error
    except OutOfMemoryError as error:
        raise not_now(f"{tensor.where}: {error.cause}", cure="send a smaller picture") from error
    _check_room(frame_format, slot_bytes, tensor.where)
    return RequestFrame(frame_format, (memoryview(pixels.data).cast("B"),))


def _pixel_frame(tensor: InputTensor, slot_bytes: int) -> RequestFrame:
    shape = tensor.shape[1:] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else tensor.shape
    if len(shape) != 3 or shape[2] != 3 or not all(0 < side <= MAX_SIDE for side in shape[:2]):
        raise bad_request(
            f"{tensor.where}: {list(tensor.shape)} is not the shape of a picture",
            cure="send [height, width, 3], or [1, height, width, 3]",
        )
    colour = tensor.parameters.get("colour", "rgb")
    if not isinstance(colour, str) or colour not in _COLOURS:
        raise bad_request(f"{tensor.where}: the parameter colour is {colour!r}", cure="it is rgb or bgr")
    frame_format = describe(shape[1], shape[0], _COLOURS[colour])
    _check_room(frame_format, slot_bytes, tensor.where)
    return RequestFrame(frame_format, tensor.memory())


def _check_room(frame_format: FrameFormat, slot_bytes: int, where: str) -> None:
    if frame_format.frame_bytes > slot_bytes:
        raise too_large(
            f"{where}: {frame_format.frame_bytes} bytes as the engine's frame, {slot_bytes} is the most",
            cure=_SMALLER_OR_LARGER,
        )
