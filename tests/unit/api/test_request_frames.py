"""From a request to a frame, and from a result to outputs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from PIL import Image

from vedette.api.body import copy_pieces
from vedette.api.datatypes import pack_bytes
from vedette.api.messages import ModelDescription
from vedette.api.oip import Floats, InferenceRequest, InputTensor
from vedette.api.refusal import RequestRefusedError
from vedette.api.request_frames import frame_of
from vedette.api.result_tensors import RETRY, metadata_of, output_names, outputs_of
from vedette.vision.picture import picture_from_buffer, to_bgr
from vedette.vision.tensors import TensorInfo
from vedette.wire.causes import DropCause, FailCause
from vedette.wire.messages import Detection, Failure, Label, ModelRef, RawTensor, Result
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.api.request_frames import RequestFrame

SLOT_BYTES = 3 * 64 * 48
REF = ModelRef("m", "1", "00" * 32)
MODEL = ModelDescription(
    ready=True,
    model=REF,
    task="detect",
    inputs=(TensorInfo("input", (1, 8, 8, 3), "int8"),),
    outputs=(TensorInfo("raw_boxes", (1, 4), "float32"),),
)


def one(tensor: InputTensor) -> InferenceRequest:
    return InferenceRequest("", {}, (tensor,), (), binary_outputs=False)


def encoded(data: bytes) -> InferenceRequest:
    return one(InputTensor("image", "BYTES", (1,), {}, (memoryview(pack_bytes([data])),)))


def pixels_of(frame: RequestFrame) -> NDArray[np.uint8]:
    """The frame as the worker sees it, upright."""
    slot = memoryview(bytearray(SLOT_BYTES))
    copy_pieces(frame.pieces, slot)
    return to_bgr(picture_from_buffer(slot, frame.format))


def packed(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def scene() -> Image.Image:
    """40 by 24, red where x < 10 and y < 6, else blue."""
    picture = Image.new("RGB", (40, 24), (0, 0, 255))
    picture.paste((255, 0, 0), (0, 0, 10, 6))
    return picture


# How a camera that was held so stores the upright scene.
TURNS = {
    1: None,
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", TURNS)
def test_exif_turns_the_picture_exactly_once(orientation: int) -> None:
    """Case 19: one scene, four ways to hold the camera, one upright picture."""
    stored = scene() if TURNS[orientation] is None else scene().transpose(TURNS[orientation])  # type: ignore[arg-type]
    exif = Image.Exif()
    exif[0x0112] = orientation
    frame = frame_of(encoded(packed(stored, "PNG", exif=exif)), MODEL, SLOT_BYTES)
    assert frame.format.orientation == orientation
    assert (pixels_of(frame) == np.asarray(scene())[:, :, ::-1]).all()


def test_alpha_grey_sixteen_bits_and_palette_follow_the_written_rules() -> None:
    """Case 19: alpha over black, 16 bits scaled, grey as one channel, palettes as colour."""
    clear = Image.new("RGBA", (4, 2), (200, 100, 50, 0))
    clear.putpixel((0, 0), (200, 100, 50, 255))
    over_black = pixels_of(frame_of(encoded(packed(clear, "PNG")), MODEL, SLOT_BYTES))
    assert over_black[0, 0].tolist() == [50, 100, 200]
    assert not over_black[1].any()
    deep = Image.fromarray(np.array([[0, 32896, 65535]], np.uint16))
    frame = frame_of(encoded(packed(deep, "PNG")), MODEL, SLOT_BYTES)
    assert frame.format.pixel is PixelFormat.GRAY8
    assert pixels_of(frame)[0, :, 0].tolist() == [0, 128, 255]
    palette = scene().convert("P", palette=Image.Palette.ADAPTIVE)
    coloured = pixels_of(frame_of(encoded(packed(palette, "PNG")), MODEL, SLOT_BYTES))
    assert np.abs(coloured.astype(int) - np.asarray(scene())[:, :, ::-1]).max() <= 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no bytes"),
        (b"GIF89a", "damaged"),
        (b"\xff\xd8\xff\xe0 cut", "inside a header"),
        (packed(Image.effect_noise((64, 48), 50), "JPEG", quality=95)[:-1000], "ends inside"),
    ],
    ids=["empty", "no picture", "no jpeg", "half a jpeg"],
)
def test_what_is_no_whole_picture_is_refused(data: bytes, words: str) -> None:
    """400 with the decoder's reason; never a grey half."""
    with pytest.raises(RequestRefusedError) as error:
        frame_of(encoded(data), MODEL, SLOT_BYTES)
    assert error.value.status == 400
    assert words in error.value.text()


@pytest.mark.parametrize("shape", [(2, 4, 3), (1, 2, 4, 3)])
def test_raw_pixels_are_rgb_unless_they_say_bgr(shape: tuple[int, ...]) -> None:
    """The first channel is red, with or without a batch axis; the parameter `colour` turns it round."""
    values = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    tensor = InputTensor("image", "UINT8", shape, {}, (memoryview(values.tobytes()),))
    assert (pixels_of(frame_of(one(tensor), MODEL, SLOT_BYTES)) == values[:, :, ::-1]).all()
    turned = tensor._replace(parameters={"colour": "bgr"})
    assert (pixels_of(frame_of(one(turned), MODEL, SLOT_BYTES)) == values).all()
    with pytest.raises(RequestRefusedError, match="colour is 'cmyk'"):
        frame_of(one(tensor._replace(parameters={"colour": "cmyk"})), MODEL, SLOT_BYTES)


def test_the_models_own_input_goes_through_untouched() -> None:
    """Name, type and shape of the model's tensor: its bytes are the frame."""
    data = bytes(range(192))
    tensor = InputTensor("input", "INT8", (1, 8, 8, 3), {}, (memoryview(data[:50]), memoryview(data[50:])))
    frame = frame_of(one(tensor), MODEL, SLOT_BYTES)
    assert frame.format.tensor
    assert frame.format.frame_bytes == 192
    assert b"".join(frame.pieces) == data


OWN = InputTensor("input", "INT8", (1, 8, 8, 3), {}, (memoryview(bytes(192)),))
PICTURE = InputTensor("image", "UINT8", (2, 4, 3), {}, (memoryview(bytes(24)),))


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (OWN._replace(name="inputs"), "'inputs' as INT8"),
        (OWN._replace(datatype="UINT8"), "is not taken"),
        (OWN._replace(shape=(1, 8, 24)), "[1, 8, 24]"),
        (
            PICTURE._replace(datatype="FP32"),
            "send 'image' as BYTES [1] or UINT8 [height, width, 3], or 'input'",
        ),
        (PICTURE._replace(shape=(2, 4, 4)), "not the shape of a picture"),
        (PICTURE._replace(shape=(2, 2, 4, 3)), "not the shape of a picture"),
        (PICTURE._replace(shape=(0, 4, 3)), "not the shape of a picture"),
        (PICTURE._replace(shape=(1 << 30, 1 << 30, 3)), "not the shape of a picture"),
        (PICTURE._replace(shape=(3, 4, 3)), "has 36 bytes"),
        (InputTensor("image", "BYTES", (2,), {}, (memoryview(pack_bytes([b"a", b"b"])),)), "one picture"),
    ],
)
def test_anything_else_is_refused_with_what_is_taken(tensor: InputTensor, words: str) -> None:
    """400, and the message says what the model takes."""
    with pytest.raises(RequestRefusedError) as error:
        frame_of(one(tensor), MODEL, SLOT_BYTES)
    assert error.value.status == 400
    assert words in error.value.text()


def test_two_inputs_are_refused() -> None:
    """One picture a request; a second one would be lost silently."""
    with pytest.raises(RequestRefusedError, match="one input is taken, 2 were given"):
        frame_of(InferenceRequest("", {}, (OWN, PICTURE), (), binary_outputs=False), MODEL, SLOT_BYTES)


def test_what_fits_no_slot_is_refused_with_the_setting() -> None:
    """413 and the key of the configuration, for files and for raw pixels."""
    large = InputTensor("image", "UINT8", (64, 64, 3), {}, (memoryview(bytes(12288)),))
    for request in (one(large), encoded(packed(Image.new("RGB", (64, 64)), "PNG"))):
        with pytest.raises(RequestRefusedError) as error:
            frame_of(request, MODEL, SLOT_BYTES)
        assert error.value.status == 413
        assert "http.max_picture" in error.value.text()


def test_a_detection_becomes_tensors() -> None:
    """Labels, scores and boxes row by row, and the whole result as the JSON line of `run`."""
    found = (Detection("cat", 0, 0.9, (1.0, 2.0, 3.0, 4.0)), Detection("dög", 1, 0.5, (5.0, 6.0, 7.0, 8.0)))
    result = Result(1, "http", 7, 1, REF, "detect", detections=found, confidence=0.9)
    outputs = {tensor.name: tensor.values for tensor in outputs_of(result, tensor=False)}
    assert tuple(outputs) == output_names(MODEL, tensor=False)
    assert outputs["labels"] == (b"cat", "dög".encode())
    assert outputs["boxes"] == Floats([1, 2, 3, 4, 5, 6, 7, 8], (2, 4))
    line = next(iter(outputs["result"]))
    assert isinstance(line, bytes)
    assert msgspec.json.decode(line, type=Result) == result


def test_nothing_found_is_an_answer_of_empty_tensors() -> None:
    """Not an error, and boxes keep their second axis."""
    result = Result(1, "http", 7, 1, REF, "detect", detections=(), confidence=0.0)
    outputs = {tensor.name: tensor.values for tensor in outputs_of(result, tensor=False)}
    assert outputs["boxes"] == Floats([], (0, 4))
    assert outputs["labels"] == ()


def test_a_classification_and_raw_tensors() -> None:
    """Labels and scores, surest first; a raw tensor comes back in its own type and shape."""
    top = (Label("cat", 3, 0.75), Label("dog", 4, 0.25))
    result = Result(1, "http", 7, 1, REF, "classify", top=top, confidence=0.75)
    outputs = {tensor.name: tensor.values for tensor in outputs_of(result, tensor=False)}
    assert outputs["labels"] == (b"cat", b"dog")
    assert outputs["scores"] == Floats([0.75, 0.25], (2,))
    raw = RawTensor("raw_boxes", (1, 4), "int8", bytes([1, 2, 3, 255]))
    answered = Result(1, "http", 8, 1, REF, "raw", tensors=(raw,))
    (output,) = outputs_of(answered, tensor=True)
    assert np.asarray(output.values).tolist() == [[1, 2, 3, -1]]


@pytest.mark.parametrize("cause", [*DropCause, *FailCause])
def test_every_outcome_of_a_frame_has_a_status(cause: DropCause | FailCause) -> None:
    """503 where the same request may succeed later, 500 where it will not; never an empty answer."""
    result = Result(1, "http", 7, 1, REF, "detect", failed=Failure(cause.value, "why"))
    with pytest.raises(RequestRefusedError, match="why") as error:
        outputs_of(result, tensor=False)
    assert error.value.status == (503 if cause.value in RETRY else 500)
    assert (error.value.retry_after_s is not None) == (cause.value in RETRY)
    assert cause.value in str(error.value)


def test_metadata_names_the_picture_and_the_engines_tensors() -> None:
    """A client can see what may be sent, and what comes back for it."""
    described = metadata_of(MODEL)
    assert described["inputs"] == [
        {"name": "image", "datatype": "BYTES", "shape": [1]},
        {"name": "image", "datatype": "UINT8", "shape": [-1, -1, 3]},
        {"name": "input", "datatype": "INT8", "shape": [1, 8, 8, 3]},
    ]
    outputs = described["outputs"]
    assert isinstance(outputs, list)
    assert [output["name"] for output in outputs] == ["result", "labels", "scores", "boxes", "raw_boxes"]
