"""One scene, every output layout, the same detections (cases 10, 22, 23 and 25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tests.unit.vision.manifest import FRAME, PLACEMENT, detector, info

from vedette.errors import BundleError, FrameError
from vedette.vision.anchors import anchor_centres
from vedette.vision.geometry import place
from vedette.vision.postprocess import build_postprocessor
from vedette.wire.bundle import (
    Activation,
    Labels,
    ModelSpec,
    Nms,
    OutputLayout,
    OutputSpec,
    ResizeMode,
    SsdAnchors,
)
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.messages import Detection

    Encode = Callable[..., "Encoded"]


class Thing(NamedTuple):
    """An object in the scene: corners in upright frame pixels."""

    box: tuple[float, float, float, float]
    class_index: int
    score: float


# In a 1300x481 frame; the first two overlap with different classes (case 24).
SCENE = (
    Thing((100.0, 50.0, 300.0, 250.0), 0, 0.9),
    Thing((100.0, 60.0, 300.0, 260.0), 1, 0.8),
    Thing((1000.0, 300.0, 1280.0, 470.0), 79, 0.6),
)
NAMES = tuple(f"name {index}" for index in range(80))
COCO = Labels(80)


class Encoded(NamedTuple):
    """What one model would say of the scene."""

    spec: ModelSpec
    tensors: tuple[TensorInfo, ...]
    outputs: tuple[NDArray[Any], ...]
    placement: Placement = PLACEMENT


def model_boxes(scene: tuple[Thing, ...], placement: Placement) -> NDArray[np.float64]:
    return placement.to_model(np.array([thing.box for thing in scene]).reshape(-1, 4))


def centred(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)


def dense_rows(
    scene: tuple[Thing, ...], count: int, classes: int, *, objectness: bool, placement: Placement
) -> NDArray[np.float32]:
    """(N, 4 [+ 1] + C) rows full of weak noise, with the scene in rows far apart, each twice."""
    random = np.random.default_rng(7)
    leading = 5 if objectness else 4
    rows = random.uniform(0, 0.1, (count, leading + classes)).astype(np.float32)
    rows[:, :4] = random.uniform(5, 300, (count, 4))
    for place_index, (thing, box) in enumerate(
        zip(scene, centred(model_boxes(scene, placement)), strict=True)
    ):
        for repeat, share in ((0, 1.0), (1, 0.9)):
            row = rows[(place_index + 1) * count // (len(scene) + 2) + repeat]
            row[:4] = box
            row[leading + thing.class_index] = thing.score * share / (0.95 if objectness else 1.0)
            if objectness:
                row[4] = 0.95
    return rows


def yolov5(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    rows = dense_rows(scene, 25200, 80, objectness=True, placement=PLACEMENT)
    spec = detector(OutputSpec(OutputLayout.YOLOV5, labels=COCO))
    return Encoded(spec, (info((1, 25200, 85)),), (rows[None],))


def yolov8(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    rows = dense_rows(scene, 8400, 80, objectness=False, placement=PLACEMENT)
    spec = detector(OutputSpec(OutputLayout.YOLOV8, labels=COCO))
    return Encoded(spec, (info((1, 84, 8400)),), (np.ascontiguousarray(rows.T)[None],))


def yolov8_transposed(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    rows = dense_rows(scene, 8400, 80, objectness=False, placement=PLACEMENT)
    spec = detector(OutputSpec(OutputLayout.YOLOV8_TRANSPOSED, labels=COCO))
    return Encoded(spec, (info((1, 8400, 84)),), (rows[None],))


def yolov8_320(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    small = place(FRAME, (320, 320), ResizeMode.LETTERBOX)
    rows = dense_rows(scene, 2100, 80, objectness=False, placement=small)
    spec = detector(OutputSpec(OutputLayout.YOLOV8, labels=COCO), (320, 320))
    return Encoded(spec, (info((1, 84, 2100)),), (np.ascontiguousarray(rows.T)[None],), small)


def yolov8_normalised(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    encoded = yolov8(scene)
    stored = encoded.outputs[0].copy()
    stored[0, :4] /= 640
    spec = detector(OutputSpec(OutputLayout.YOLOV8, labels=COCO, normalised_boxes=True))
    return encoded._replace(spec=spec, outputs=(stored,))


def yolov8_logits(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    encoded = yolov8(scene)
    stored = encoded.outputs[0].copy()
    stored[0, 4:] = np.log(stored[0, 4:] / (1 - stored[0, 4:]))
    spec = detector(OutputSpec(OutputLayout.YOLOV8, Activation.SIGMOID, labels=COCO))
    return encoded._replace(spec=spec, outputs=(stored,))


def end_to_end(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    rows = np.zeros((300, 6), np.float32)
    for row, thing, box in zip(rows[::-40], scene, model_boxes(scene, PLACEMENT), strict=False):
        row[:] = (*box, thing.score, thing.class_index)
    spec = detector(OutputSpec(OutputLayout.END_TO_END, labels=COCO))
    return Encoded(spec, (info((1, 300, 6)),), (rows[None],))


def ssd(scene: tuple[Thing, ...] = SCENE) -> Encoded:
    grid = SsdAnchors((8, 16), (2, 6), box_scale=640)
    centres = anchor_centres((640, 640), grid)
    boxes = np.random.default_rng(3).uniform(0, 200, (len(centres), 4)).astype(np.float32)
    scores = np.full((len(centres), 80), -5, np.float32)
    for thing, box in zip(scene, centred(model_boxes(scene, PLACEMENT)), strict=True):
        # The second of the anchors nearest to the object: they differ in nothing but the row.
        row = int(np.abs(centres - box[:2]).sum(axis=1).argmin()) + 1
        while scores[row].max() > 0:
            row += 1
        boxes[row] = (*(box[:2] - centres[row]), *box[2:])
        scores[row, thing.class_index] = np.log(thing.score / (1 - thing.score))
    output = OutputSpec(
        OutputLayout.SSD_ANCHORS, Activation.SIGMOID, names=("boxes", "scores"), labels=COCO, anchors=grid
    )
    tensors = info((1, *scores.shape), name="scores"), info((1, *boxes.shape), name="boxes")
    return Encoded(detector(output), tensors, (scores[None], boxes[None]))


ENCODINGS = [
    yolov5,
    yolov8,
    yolov8_transposed,
    yolov8_320,
    yolov8_normalised,
    yolov8_logits,
    end_to_end,
    ssd,
]


def detections_of(encoded: Encoded, names: tuple[str, ...] = NAMES) -> tuple[Detection, ...]:
    reader = build_postprocessor(encoded.spec, names, encoded.tensors)
    answer = reader.answer(encoded.outputs, encoded.placement)
    assert answer.top is UNSET
    assert answer.tensors is UNSET
    assert answer.detections is not UNSET
    assert answer.confidence == (answer.detections[0].score if answer.detections else 0.0)
    return answer.detections


def assert_scene(
    found: tuple[Detection, ...], scene: tuple[Thing, ...], *, pixels: float, score: float
) -> None:
    assert [(one.label, one.index) for one in found] == [
        (NAMES[thing.class_index], thing.class_index) for thing in scene
    ]
    for one, thing in zip(found, scene, strict=True):
        assert one.box == pytest.approx(thing.box, abs=pixels)
        assert one.score == pytest.approx(thing.score, abs=score)
        assert one.keypoints is UNSET


@pytest.mark.parametrize("encode", ENCODINGS)
def test_the_same_scene_from_every_layout(encode: Encode) -> None:
    """Case 22: identical detections, in upright frame pixels, from all encodings."""
    assert_scene(detections_of(encode()), SCENE, pixels=0.02, score=1e-5)


@pytest.mark.parametrize("encode", ENCODINGS)
def test_an_empty_scene_is_an_answer(encode: Encode) -> None:
    """Nothing found is confidence 0.0 and no detection, not an error."""
    assert detections_of(encode(())) == ()


@settings(max_examples=25, deadline=None)
@given(
    things=st.lists(
        st.tuples(
            st.floats(1, 900),
            st.floats(1, 300),
            st.floats(20, 300),
            st.floats(20, 150),
            st.integers(0, 79),
            st.floats(0.3, 0.99),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda thing: thing[4],
    )
)
def test_any_scene_from_every_layout(things: list[tuple[float, float, float, float, int, float]]) -> None:
    """Case 22: for any boxes, classes and scores; the layouts agree to a rounding error."""
    scene = tuple(
        sorted(
            (
                Thing((x, y, x + width, y + height), index, score)
                for x, y, width, height, index, score in things
            ),
            key=lambda thing: -thing.score,
        )
    )
    for encode in (yolov8_320, end_to_end, ssd):
        found = sorted(detections_of(encode(scene)), key=lambda one: one.index)
        assert_scene(
            tuple(found), tuple(sorted(scene, key=lambda thing: thing.class_index)), pixels=0.05, score=1e-5
        )


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point"),
    [("int8", 1 / 255, -128), ("uint8", 1 / 255, 0), ("uint8", 1 / 128, 128), ("int16", 1 / 32767, 0)],
)
@pytest.mark.parametrize("layout", [OutputLayout.YOLOV8, OutputLayout.YOLOV8_TRANSPOSED, OutputLayout.YOLOV5])
def test_quantised_outputs_give_the_same_boxes_within_a_step(
    dtype: str, scale: float, zero_point: int, layout: OutputLayout
) -> None:
    """Case 10 a, b: normalised boxes and scores in one quantised tensor; thresholds in real units."""
    encoded = {
        OutputLayout.YOLOV8: yolov8,
        OutputLayout.YOLOV8_TRANSPOSED: yolov8_transposed,
        OutputLayout.YOLOV5: yolov5,
    }[layout]()
    real = encoded.outputs[0].copy()
    if layout is OutputLayout.YOLOV8:
        real[0, :4] /= 640
    else:
        real[0, :, :4] /= 640
    limits = np.iinfo(dtype)
    stored = np.clip(np.rint(real / scale) + zero_point, limits.min, limits.max).astype(dtype)
    spec = detector(OutputSpec(layout, labels=COCO, normalised_boxes=True))
    tensor = info(stored.shape, dtype, scale, zero_point)
    found = detections_of(Encoded(spec, (tensor,), (stored,)))
    frame_step = 640 * scale * 1300 / 640
    assert_scene(found, SCENE, pixels=frame_step + 0.1, score=2 * scale)


def test_two_outputs_are_dequantised_each_by_its_own_parameters() -> None:
    """Case 10 e: boxes and scores with different scales; the manifest may give them in its own order."""
    encoded = ssd()
    scores, boxes = encoded.outputs
    stored_scores = np.clip(np.rint(scores / 0.05) + 20, -128, 127).astype(np.int8)
    shift = boxes.min()
    stored_boxes = np.clip(np.rint((boxes - shift) / 1.5), 0, 255).astype(np.uint8)
    tensors = (
        info(stored_scores.shape, "int8", 0.05, 20, name="scores"),
        info(stored_boxes.shape, "uint8", 1.5, round(-shift / 1.5), name="boxes"),
    )
    found = detections_of(Encoded(encoded.spec, tensors, (stored_scores, stored_boxes)))
    assert_scene(found, SCENE, pixels=4 * 1300 / 640, score=0.02)


def test_integer_in_and_float_out_need_no_parameters() -> None:
    """Case 10 c, d: a float output that reports (0.0, 0), or even a scale, is real already."""
    encoded = yolov8()
    for scale in (0.0, 0.5):
        tensors = (info((1, 84, 8400), "float32", scale, 3),)
        assert_scene(detections_of(encoded._replace(tensors=tensors)), SCENE, pixels=0.02, score=1e-5)


def test_half_precision_outputs_are_read() -> None:
    """GPU builds give float16; sums over a tensor of it must not overflow."""
    encoded = yolov8()
    tensors = (info((1, 84, 8400), "float16"),)
    outputs = (encoded.outputs[0].astype(np.float16),)
    assert_scene(
        detections_of(encoded._replace(tensors=tensors, outputs=outputs)), SCENE, pixels=1.1, score=1e-3
    )


TWO = Labels(2)


@pytest.mark.parametrize(
    ("layout", "shape", "labels"),
    [
        (OutputLayout.YOLOV8, (1, 8400, 84), COCO),
        (OutputLayout.YOLOV8_TRANSPOSED, (1, 84, 8400), COCO),
        (OutputLayout.YOLOV8, (1, 8400, 84), None),
        (OutputLayout.YOLOV8_TRANSPOSED, (1, 84, 8400), None),
        (OutputLayout.YOLOV5, (1, 85, 25200), None),
        (OutputLayout.YOLOV5, (1, 84, 8400), COCO),
        (OutputLayout.YOLOV8, (1, 85, 8400), COCO),
        (OutputLayout.YOLOV5, (1, 25200, 84), COCO),
        (OutputLayout.END_TO_END, (1, 84, 8400), COCO),
        (OutputLayout.END_TO_END, (1, 6, 8400), TWO),
        (OutputLayout.END_TO_END, (1, 8400, 6), TWO),
        (OutputLayout.END_TO_END, (1, 8400, 6), None),
        (OutputLayout.END_TO_END, (1, 25200, 6), None),
        (OutputLayout.YOLOV5, (1, 8400, 6), TWO),
        (OutputLayout.YOLOV8, (1, 300, 6), COCO),
        (OutputLayout.YOLOV8, (1, 4, 8400), None),
        (OutputLayout.YOLOV8, (1, 3, 80, 80, 85), None),
        (OutputLayout.YOLOV8, (2, 84, 8400), COCO),
    ],
)
def test_a_layout_that_the_shape_contradicts_is_refused(
    layout: OutputLayout, shape: tuple[int, ...], labels: Labels | None
) -> None:
    """Case 22: at load, the two-class trap included; never thousands of boxes or none."""
    spec = detector(OutputSpec(layout, labels=labels))
    names = () if labels is None else ("x",) * labels.count
    with pytest.raises(BundleError) as refused:
        build_postprocessor(spec, names, (info(shape),))
    assert str(shape) in refused.value.cause


def test_the_refusal_says_which_layout_would_fit() -> None:
    """Case 22: a hint for the person, not a guess by the program."""
    spec = detector(OutputSpec(OutputLayout.YOLOV8, labels=COCO))
    with pytest.raises(BundleError) as refused:
        build_postprocessor(spec, NAMES, (info((1, 8400, 84)),))
    assert "yolov8-transposed" in refused.value.diagnostics()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_two_class_model_is_read_as_declared(*, transposed: bool) -> None:
    """Case 22, the trap: [1, 8400, 6] is two classes when the manifest says so."""
    scene = (Thing((100.0, 50.0, 300.0, 250.0), 1, 0.9), Thing((700.0, 90.0, 900.0, 400.0), 0, 0.7))
    rows = dense_rows(scene, 8400, 2, objectness=False, placement=PLACEMENT)
    layout = OutputLayout.YOLOV8_TRANSPOSED if transposed else OutputLayout.YOLOV8
    stored = rows[None] if transposed else np.ascontiguousarray(rows.T)[None]
    for labels, names in ((TWO, NAMES[:2]), (None, NAMES)):
        spec = detector(OutputSpec(layout, labels=labels))
        found = detections_of(Encoded(spec, (info(stored.shape),), (stored,)), names)
        assert_scene(found, scene, pixels=0.02, score=1e-5)


def test_class_80_of_80_is_called_by_its_number() -> None:
    """Case 25: a model that emits an index beyond its labels costs a name, not the frame."""
    found = detections_of(end_to_end((Thing((10.0, 10.0, 60.0, 60.0), 80, 0.9),)))
    assert [(one.label, one.index) for one in found] == [("class_80", 80)]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (5, 0.37, "no class index"),
        (5, -1.0, "no class index"),
        (2, 1.0, "corners"),
        (4, np.nan, "NaN"),
        (4, 7.0, "given"),
    ],
)
def test_rows_that_cannot_be_end_to_end_fail_the_frame(column: int, value: float, words: str) -> None:
    """Case 22: centres read as corners, scores read as classes."""
    encoded = end_to_end()
    encoded.outputs[0][0, 299, column] = value
    with pytest.raises(FrameError, match=words) as failed:
        detections_of(encoded)
    assert failed.value.kind == "bad_output"


@pytest.mark.parametrize("encode", ENCODINGS)
def test_nan_anywhere_fails_the_frame(encode: Encode) -> None:
    """Even in a row that would not have counted: the model is broken, and "nothing seen" would be a lie."""
    for which in range(len(encode().outputs)):
        encoded = encode()
        encoded.outputs[which][0, -1, -1] = np.nan
        with pytest.raises(FrameError) as failed:
            detections_of(encoded)
        assert failed.value.kind == "bad_output"


def test_the_number_of_detections_is_bounded_and_the_best_stay() -> None:
    """An end-to-end model obeys max_detections too."""
    encoded = end_to_end()
    output = msgspec.structs.replace(encoded.spec.output, nms=Nms(max_detections=2))
    assert_scene(detections_of(encoded._replace(spec=detector(output))), SCENE[:2], pixels=0.02, score=1e-5)


def test_boxes_are_cut_at_the_frame_and_dropped_in_the_padding() -> None:
    """Case 23: nothing outside of the picture; what lies wholly in the pad is no object."""
    rows = np.zeros((300, 6), np.float32)
    rows[0] = (-50, 150, 100, 300, 0.9, 0)
    rows[1] = (10, 10, 200, 190, 0.8, 0)  # the picture begins at row 201
    spec = detector(OutputSpec(OutputLayout.END_TO_END, labels=COCO))
    found = detections_of(Encoded(spec, (info((1, 300, 6)),), (rows[None],)))
    assert len(found) == 1
    assert found[0].box == pytest.approx((0, 0, 203.12, 201.02), abs=0.5)


BLAZEFACE = SsdAnchors((8, 16), (2, 6), box_scale=128, keypoints=6)


def blazeface(*, named: bool, batch: bool = True) -> Encoded:
    """A face drawn by hand into MediaPipe's two tensors; the raw score of 300 is clipped to 100."""
    frame_placement = place(FRAME, (128, 128), ResizeMode.STRETCH)
    regressors, logits = np.zeros((896, 16), np.float32), np.full((896, 1), -200.0, np.float32)
    # Row 5 is of stride 8: the second anchor of cell 2, centre (20, 4).
    regressors[5, :4] = (30.0, 50.0, 40.0, 20.0)
    regressors[5, 4:] = np.arange(12)
    logits[5] = 300.0
    names = ("regressors", "classificators") if named else ()
    spec = detector(
        OutputSpec(OutputLayout.SSD_ANCHORS, Activation.SIGMOID, names, labels=Labels(1), anchors=BLAZEFACE),
        (128, 128),
    )
    lead = (1,) if batch else ()
    return Encoded(
        spec,
        (info((*lead, 896, 1), name="classificators"), info((*lead, 896, 16), name="regressors")),
        (logits.reshape(*lead, 896, 1), regressors.reshape(*lead, 896, 16)),
        frame_placement,
    )


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_a_blazeface_head_gives_a_box_and_its_key_points(*, named: bool, batch: bool) -> None:
    """Boxes and points relative to the anchor, in upright frame pixels; order by name or by shape."""
    (face,) = detections_of(blazeface(named=named, batch=batch), ("face",))
    across, down = 1300 / 128, 481 / 128
    assert face.label == "face"
    assert face.score == 1.0
    assert face.box == pytest.approx((30 * across, 44 * down, 70 * across, 64 * down), abs=0.01)
    assert face.keypoints is not UNSET
    expected = [((20 + 2 * point) * across, (4 + 2 * point + 1) * down) for point in range(6)]
    assert np.array(face.keypoints) == pytest.approx(np.array(expected), abs=0.01)


def test_anchor_centres_are_mediapipes() -> None:
    """896 of them: 16 x 16 cells twice, 8 x 8 cells six times, row by row."""
    centres = anchor_centres((128, 128), BLAZEFACE)
    assert centres.shape == (896, 2)
    assert centres[[0, 1, 2, 32, 511, 512, 517, 518, 895]].tolist() == [
        [4, 4],
        [4, 4],
        [12, 4],
        [4, 12],
        [124, 124],
        [8, 8],
        [8, 8],
        [24, 8],
        [120, 120],
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"anchors": None}, "needs output.anchors"),
        ({"anchors": SsdAnchors((8,), (2,), 128, 6)}, "512 anchors"),
        ({"anchors": SsdAnchors((8, 16), (2,), 128, 6)}, "strides"),
        ({"anchors": SsdAnchors((8, 16), (2, 6), 128, 5)}, "key points need 14"),
        ({"anchors": SsdAnchors((8, 16), (2, 6), 0, 6)}, "above 0"),
        ({"names": ("classificators", "regressors")}, "key points need 16"),
        ({"normalised_boxes": True}, "normalised_boxes"),
        ({"activation": Activation.SOFTMAX}, "always 1"),
        ({"labels": Labels(2)}, "2 classes"),
        ({"layout": OutputLayout.YOLOV8}, "yolov8"),
        ({"layout": OutputLayout.SCORES}, "no detection layout"),
        ({"score_threshold": 25.0}, "score_threshold"),
        ({"nms": Nms(iou=45)}, "output.nms"),
    ],
)
def test_a_head_that_does_not_fit_its_anchors_is_refused(change: dict[str, Any], words: str) -> None:
    """Case 22: at load, both sides named."""
    encoded = blazeface(named=True)
    output = msgspec.structs.replace(encoded.spec.output, **change)
    labels = () if output.labels is None else ("x",) * output.labels.count
    with pytest.raises(BundleError) as refused:
        build_postprocessor(detector(output, (128, 128)), labels, encoded.tensors)
    assert words in refused.value.cause


def test_tensors_that_could_be_either_must_be_named() -> None:
    """Case 22: four classes beside four box values; the shape decides nothing."""
    output = OutputSpec(
        OutputLayout.SSD_ANCHORS, Activation.SIGMOID, anchors=SsdAnchors((8,), (1,), box_scale=64)
    )
    tensors = info((1, 64, 4), name="a"), info((1, 64, 4), name="b")
    with pytest.raises(BundleError) as refused:
        build_postprocessor(detector(output, (64, 64)), (), tensors)
    assert "output.names" in refused.value.diagnostics()
    named = msgspec.structs.replace(output, names=("b", "a"))
    reader = build_postprocessor(detector(named, (64, 64)), (), tensors)
    scores, boxes = np.full((1, 64, 4), -9, np.float32), np.full((1, 64, 4), 2, np.float32)
    scores[0, 9, 3] = 9
    answer = reader.answer(
        (scores, boxes), place(describe(64, 64, PixelFormat.GRAY8), (64, 64), ResizeMode.STRETCH)
    )
    assert answer.detections is not UNSET
    assert [(one.index, one.box) for one in answer.detections] == [(3, (13.0, 13.0, 15.0, 15.0))]
