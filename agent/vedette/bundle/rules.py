"""Does a well-formed `model.yaml` make sense? Pure; every problem is reported, none stops the others."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from vedette.wire.bundle import Colour, EngineName, OutputLayout, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.wire.bundle import InputSpec, Labels, ModelSpec, Nms, OutputSpec, Quantisation, SsdAnchors

SCHEMA = 1
MAX_SIDE_PX = 8192
MAX_CLASSES = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_LAYOUTS = {
    Task.CLASSIFY: (OutputLayout.SCORES,),
    Task.DETECT: (
        OutputLayout.YOLOV5,
        OutputLayout.YOLOV8,
        OutputLayout.YOLOV8_TRANSPOSED,
        OutputLayout.END_TO_END,
        OutputLayout.SSD_ANCHORS,
    ),
    Task.RAW: (OutputLayout.RAW,),
}

Problem = tuple[tuple[str, ...], str]


def find_problems(spec: ModelSpec) -> list[Problem]:
    """List (key path, what is wrong and what would be right) for a parsed spec; empty when all is well."""
    return [*_identity(spec), *_files(spec), *_input(spec.input), *_output(spec), *_requires(spec)]


def _identity(spec: ModelSpec) -> Iterator[Problem]:
    if spec.schema != SCHEMA:
        yield (
            ("schema",),
            f"this agent reads schema {SCHEMA}, not {spec.schema}; update the agent or the bundle",
        )
    for key, value in (("name", spec.name), ("version", spec.version)):
        if _NAME.fullmatch(value) is None:
            yield (
                (key,),
                f"{value!r} is not for topics; use a letter or digit, then A-Z a-z 0-9 . _ - (64 in all)",
            )
    if spec.batch != 1:
        yield ("batch",), f"must be 1, not {spec.batch}; frames are inferred one at a time"


def _files(spec: ModelSpec) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for key, name in named_files(spec):
        if name in seen:
            yield tuple(key.split(".")), f"{name!r} is already used as `{seen[name]}`"
        elif name in ("model.yaml", "SHA256SUMS"):
            yield tuple(key.split(".")), f"{name!r} cannot serve as this file too"
        seen.setdefault(name, key)


def named_files(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, file name) for every file that the spec refers to."""
    yield "file", spec.file
    for index, name in enumerate(spec.sidecars):
        yield f"sidecars.{index}", name
    if spec.output.labels is not None:
        yield "output.labels.file", spec.output.labels.file
    if spec.golden is not None:
        yield "golden", spec.golden
    if spec.calibration is not None:
        yield "calibration", spec.calibration
    if spec.escalation.aliases is not None:
        yield "escalation.aliases", spec.escalation.aliases


def _input(given: InputSpec) -> Iterator[Problem]:
    if not all(1 <= side <= MAX_SIDE_PX for side in given.size):
        yield ("input", "size"), f"width and height must be 1..{MAX_SIDE_PX} pixels, not {list(given.size)}"
    channels = 1 if given.colour is Colour.GRAY else 3
    if len(given.pad) not in (1, channels) or not all(0 <= level <= 255 for level in given.pad):
        yield ("input", "pad"), f"needs 1 or {channels} levels in 0..255"
    yield from _normalisation(given, channels)
    if given.quantisation is not None:
        yield from _quantisation(given.quantisation, ("input", "quantisation"))


def _normalisation(given: InputSpec, channels: int) -> Iterator[Problem]:
    shifted = given.mean is not None or given.std is not None
    if shifted and given.range is not None:
        yield ("input", "range"), "two normalisations; give either `range`, or `mean` and `std`"
    elif not shifted and given.range is None:
        yield ("input",), "no normalisation; give `range` (`[0, 255]` for raw pixels), or `mean` and `std`"
    elif shifted and (given.mean is None or given.std is None):
        missing = "mean" if given.mean is None else "std"
        yield (
            ("input", "std" if missing == "mean" else "mean"),
            f"`{missing}` is missing; the two go together",
        )
    for key, values in (("mean", given.mean), ("std", given.std)):
        if values is not None and len(values) not in (1, channels):
            yield (
                ("input", key),
                f"needs 1 or {channels} values for colour `{given.colour.value}`, not {len(values)}",
            )
        if values is not None and not all(map(math.isfinite, values)):
            yield ("input", key), "must be finite numbers"
    if given.std is not None and not all(value > 0 for value in given.std):
        yield ("input", "std"), "every value must be above 0"
    if given.range is not None and not (
        all(map(math.isfinite, given.range)) and given.range[0] < given.range[1]
    ):
        yield ("input", "range"), f"must be finite and rise, not {list(given.range)}"


def _quantisation(given: Quantisation, path: tuple[str, ...]) -> Iterator[Problem]:
    if not (math.isfinite(given.scale) and given.scale > 0):
        yield (*path, "scale"), f"must be above 0, not {given.scale}; leave quantisation out if there is none"
    if not -(1 << 31) <= given.zero_point < 1 << 31:
        yield (*path, "zero_point"), "must fit in 32 bits"


def _output(spec: ModelSpec) -> Iterator[Problem]:
    given = spec.output
    allowed = _LAYOUTS[spec.task]
    if given.layout not in allowed:
        names = ", ".join(layout.value for layout in allowed)
        yield ("output", "layout"), f"task `{spec.task.value}` needs one of: {names}"
    if given.labels is not None:
        yield from _labels(given.labels)
    elif spec.task is not Task.RAW:
        yield ("output",), f"key `labels` is missing; task `{spec.task.value}` needs names for its classes"
    yield from _output_names(given)
    yield from _limits(given)
    yield from _nms(given.nms)
    yield from _anchors(spec)


def _labels(given: Labels) -> Iterator[Problem]:
    if not 1 <= given.count <= MAX_CLASSES:
        yield ("output", "labels", "count"), f"must be 1..{MAX_CLASSES}, not {given.count}"
    if not 0 <= given.offset <= MAX_CLASSES:
        yield ("output", "labels", "offset"), f"must be 0 or more, not {given.offset}"


def _output_names(given: OutputSpec) -> Iterator[Problem]:
    if len(set(given.names)) != len(given.names) or "" in given.names:
        yield ("output", "names"), "must be different and not empty"
    if given.names and given.quantisation and len(given.names) != len(given.quantisation):
        yield (
            ("output", "quantisation"),
            f"{len(given.quantisation)} entries for {len(given.names)} `names`; give one for each, in order",
        )
    for index, quantisation in enumerate(given.quantisation):
        yield from _quantisation(quantisation, ("output", "quantisation", str(index)))


def _limits(given: OutputSpec) -> Iterator[Problem]:
    if not 0 <= given.score_threshold <= 1:
        yield ("output", "score_threshold"), f"must be 0..1, not {given.score_threshold}"
    if given.top_k < 1:
        yield ("output", "top_k"), f"must be 1 or more, not {given.top_k}"


def _nms(given: Nms) -> Iterator[Problem]:
    if not 0 <= given.iou <= 1:
        yield ("output", "nms", "iou"), f"must be 0..1, not {given.iou}"
    for key, value in (("max_candidates", given.max_candidates), ("max_detections", given.max_detections)):
        if value < 1:
            yield ("output", "nms", key), f"must be 1 or more, not {value}"


def _anchors(spec: ModelSpec) -> Iterator[Problem]:
    given = spec.output
    wanted = given.layout is OutputLayout.SSD_ANCHORS
    if wanted and len(given.names) != 2:
        yield ("output", "names"), "layout `ssd-anchors` needs two: the boxes' output, then the scores'"
    if wanted and given.anchors is None:
        yield ("output",), "key `anchors` is missing; layout `ssd-anchors` needs it"
    elif not wanted and given.anchors is not None:
        yield ("output", "anchors"), f"layout `{given.layout.value}` has no anchors; delete it"
    elif given.anchors is not None:
        yield from _anchor_grid(given.anchors, min(spec.input.size))


def _anchor_grid(given: SsdAnchors, side_px: int) -> Iterator[Problem]:
    path = ("output", "anchors")
    if not given.strides or not all(1 <= stride <= max(side_px, 1) for stride in given.strides):
        yield (*path, "strides"), "needs at least one, each from 1 to the input's shorter side"
    if len(given.per_cell) != len(given.strides):
        yield (*path, "per_cell"), f"{len(given.per_cell)} values for {len(given.strides)} strides"
    if not all(1 <= count <= 64 for count in given.per_cell):
        yield (*path, "per_cell"), "every value must be 1..64"
    for key, value in (("box_scale", given.box_scale), ("score_clip", given.score_clip)):
        if not (math.isfinite(value) and value > 0):
            yield (*path, key), f"must be above 0, not {value}"
    if not 0 <= given.keypoints <= 1024:
        yield (*path, "keypoints"), f"must be 0..1024, not {given.keypoints}"


def _requires(spec: ModelSpec) -> Iterator[Problem]:
    given = spec.requires
    if _VERSION.fullmatch(given.runtime) is None:
        yield (
            ("requires", "runtime"),
            f"{given.runtime!r} is no version; write numbers with dots, such as `1.18`",
        )
    if given.opset is not None and not 1 <= given.opset[0] <= given.opset[1]:
        yield ("requires", "opset"), f"must be lowest, highest, not {list(given.opset)}"
    if given.opset is not None and spec.engine is not EngineName.ONNX:
        yield ("requires", "opset"), f"only ONNX files have opsets; the engine here is `{spec.engine.value}`"
    if given.memory_mb < 0:
        yield ("requires", "memory_mb"), f"must be 0 or more, not {given.memory_mb}"
    for index, name in enumerate(given.accelerators):
        if _NAME.fullmatch(name) is None or name != name.lower():
            yield (
                ("requires", "accelerators", str(index)),
                f"{name!r} is no accelerator; use lower case, such as `cuda`",
            )
