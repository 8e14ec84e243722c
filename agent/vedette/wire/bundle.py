"""The schema of a model bundle's `model.yaml`. Pure; reading the folder is `vedette.bundle`."""

from __future__ import annotations

from enum import Enum

import msgspec


class Task(str, Enum):
    """What the answers mean."""

    CLASSIFY = "classify"
    DETECT = "detect"
    RAW = "raw"


class EngineName(str, Enum):
    """Which runtime reads the model file."""

    LITERT = "litert"
    ONNX = "onnx"


class TensorLayout(str, Enum):
    """Axis order of the image tensor; the batch is always 1."""

    NHWC = "nhwc"
    NCHW = "nchw"


class Colour(str, Enum):
    """Channel order the model was trained with."""

    RGB = "rgb"
    BGR = "bgr"
    GRAY = "gray"


class ResizeMode(str, Enum):
    """How a frame of another aspect ratio gets into the model's input."""

    STRETCH = "stretch"
    LETTERBOX = "letterbox"
    CENTER_CROP = "center-crop"


class Interpolation(str, Enum):
    """Pixel sampling of the resize."""

    LINEAR = "linear"
    AREA = "area"
    NEAREST = "nearest"


class Quantisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """real = scale * (stored - zero_point); given only where the model file does not carry it."""

    scale: float
    zero_point: int = 0


class InputSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The image input. Real values are (pixel - mean) / std, or `range` mapped linearly from 0..255.

    `size` is width, height in pixels. `pad` is the grey level (or R, G, B levels) of letterbox borders.
    `mean` and `std` are in pixel units 0..255, one value or one per channel in the order of `colour`.
    """

    size: tuple[int, int]
    layout: TensorLayout
    colour: Colour = Colour.RGB
    resize: ResizeMode = ResizeMode.STRETCH
    interpolation: Interpolation = Interpolation.LINEAR
    pad: tuple[int, ...] = (114,)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    range: tuple[float, float] | None = None
    name: str | None = None
    quantisation: Quantisation | None = None


class Activation(str, Enum):
    """What turns the output's real values into scores."""

    GIVEN = "given"  # already probabilities
    SOFTMAX = "softmax"  # logits of exclusive classes
    SIGMOID = "sigmoid"  # logits of independent scores


class OutputLayout(str, Enum):
    """How a detector's tensors are to be read; never guessed from a shape (casebook 22).

    N candidates, C classes, boxes in model-input pixels unless `normalised_boxes`:

    - `yolov5`: [1, N, 5+C] xywh centre, objectness, class scores; score = objectness x class
    - `yolov8`: [1, 4+C, N] xywh centre, class scores
    - `yolov8-transposed`: [1, N, 4+C]
    - `end-to-end`: [1, N, 6] x1 y1 x2 y2 score class, NMS already done
    - `ssd-anchors`: boxes [1, N, >=4] relative to anchors, scores [1, N, C]
    """

    SCORES = "scores"  # classification: one row of C values
    YOLOV5 = "yolov5"
    YOLOV8 = "yolov8"
    YOLOV8_TRANSPOSED = "yolov8-transposed"
    END_TO_END = "end-to-end"
    SSD_ANCHORS = "ssd-anchors"
    RAW = "raw"


class Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`labels.txt`: class index i has the name in line i + offset; `count` is the number of classes.

    offset 1 skips a leading background row. `count` + `offset` must be the number of lines.
    """

    count: int
    offset: int = 0
    file: str = "labels.txt"


class Nms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Non-maximum suppression, per class by default (casebook 24)."""

    iou: float = 0.45
    class_agnostic: bool = False
    max_candidates: int = 3000
    max_detections: int = 300


class SsdAnchors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular anchor grid, centres in the middle of the cells, one fixed anchor size of the whole input.

    `strides` in model-input pixels; `per_cell` anchors for each stride. `box_scale` divides the raw offsets
    (MediaPipe: the input size). `keypoints` pairs follow the four box values. `score_clip` bounds raw scores.
    """

    strides: tuple[int, ...]
    per_cell: tuple[int, ...]
    box_scale: float
    keypoints: int = 0
    score_clip: float = 100.0


class OutputSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the output tensors become answers. `names` orders them: for `ssd-anchors` boxes, then scores."""

    layout: OutputLayout
    activation: Activation = Activation.GIVEN
    names: tuple[str, ...] = ()
    quantisation: tuple[Quantisation, ...] = ()
    labels: Labels | None = None
    score_threshold: float = 0.25
    top_k: int = 5
    normalised_boxes: bool = False
    nms: Nms = Nms()
    anchors: SsdAnchors | None = None


class Requires(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the bundle needs of the box; checked before anything is loaded.

    `runtime` is the lowest version of the engine's package; `opset` the inclusive range of the default ONNX
    domain the file uses; `memory_mb` a measured peak. `accelerators` empty means any.
    """

    runtime: str = "0"
    opset: tuple[int, int] | None = None
    memory_mb: int = 0
    accelerators: tuple[str, ...] = ()


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the weights come from and under which licence they are shipped."""

    origin: str
    licence: str
    notes: str = ""


class EscalationSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a large model is asked when this one is unsure, and how its words are read.

    `prompt` is the question; empty: a plain one made of task and labels. `aliases` is a JSON file of the
    bundle, `{"their word": "our label", ...}`; words are compared case-folded, a label is its own alias.
    """

    prompt: str = ""
    aliases: str | None = None


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of `model.yaml`."""

    schema: int
    name: str
    version: str
    task: Task
    engine: EngineName
    file: str
    input: InputSpec
    output: OutputSpec
    sidecars: tuple[str, ...] = ()
    requires: Requires = Requires()
    golden: str | None = "golden.npz"
    calibration: str | None = None
    provenance: Provenance | None = None
    escalation: EscalationSpec = EscalationSpec()
    batch: int = 1
