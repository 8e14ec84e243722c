"""From a result to the outputs of the Open Inference Protocol. Pure.

A picture's answer is `result` (the JSON line of `run`), `labels` and `scores`, surest first, and for a
detection `boxes`, [n, 4], x1, y1, x2, y2 in pixels of the upright picture. The answer to a raw tensor is the
engine's outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vedette.api.datatypes import BYTES, datatype_of
from vedette.api.oip import Floats, OutputTensor
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.wire.bundle import Task
from vedette.wire.causes import DropCause, FailCause

if TYPE_CHECKING:
    from collections.abc import Collection

    from vedette.api.messages import ModelDescription
    from vedette.wire.messages import Detection, Label, RawTensor, Result

RETRY = frozenset(
    {
        *(cause.value for cause in DropCause if cause is not DropCause.DAMAGED),
        FailCause.OUT_OF_MEMORY.value,
        FailCause.WORKER_CRASHED.value,
        FailCause.WORKER_HUNG.value,
    }
)
_RESULT, _LABELS, _SCORES, _BOXES = "result", "labels", "scores", "boxes"


def output_names(model: ModelDescription, *, tensor: bool) -> tuple[str, ...]:
    """The outputs of a model for a raw tensor, or for a picture."""
    own = tuple(output.name for output in model.outputs)
    if tensor:
        return own
    of_task = {Task.CLASSIFY.value: (_LABELS, _SCORES), Task.DETECT.value: (_LABELS, _SCORES, _BOXES)}
    return (_RESULT, *of_task.get(model.task, own))


def outputs_of(
    result: Result, *, tensor: bool, wanted: Collection[str] | None = None
) -> tuple[OutputTensor, ...]:
    """The outputs of an answered frame.

    Args:
        result: What became of it.
        tensor: The frame was the model's own input.
        wanted: Names of those that are asked for, None for all; others may be left out.

    Raises:
        RequestRefusedError: 500 or 503: the frame failed; the cause is the ledger's word and its detail.
    """
    if result.failed:
        text = f"the frame was not answered: {result.failed.cause}"
        text += f" ({result.failed.detail})" if result.failed.detail else ""
        if result.failed.cause in RETRY:
            raise not_now(text)
        raise RequestRefusedError(500, text)
    if tensor:
        return tuple(_array(raw) for raw in result.tensors or ())
    whole = (
        (OutputTensor(_RESULT, (msgspec.json.encode(result),)),)
        if wanted is None or _RESULT in wanted
        else ()
    )
    if result.task == Task.CLASSIFY.value:
        return (*whole, *_ranked(result.top or ()))
    if result.task == Task.DETECT.value:
        found = result.detections or ()
        corners = [corner for detection in found for corner in detection.box]
        return (*whole, *_ranked(found), OutputTensor(_BOXES, Floats(corners, (len(found), 4))))
    return (*whole, *(_array(raw) for raw in result.tensors or ()))


def _ranked(found: tuple[Label, ...] | tuple[Detection, ...]) -> tuple[OutputTensor, OutputTensor]:
    return (
        OutputTensor(_LABELS, tuple(entry.label.encode() for entry in found)),
        OutputTensor(_SCORES, Floats([entry.score for entry in found], (len(found),))),
    )


def _array(raw: RawTensor) -> OutputTensor:
    return OutputTensor(raw.name, np.frombuffer(raw.data, np.dtype(raw.dtype)).reshape(raw.shape))


def metadata_of(model: ModelDescription) -> dict[str, object]:
    """The model's metadata: the picture forms first, then the engine's own tensors."""
    name = "" if model.model is None else model.model.name
    version = "" if model.model is None else model.model.version
    pictures = [
        {"name": "image", "datatype": BYTES, "shape": [1]},
        {"name": "image", "datatype": "UINT8", "shape": [-1, -1, 3]},
    ]
    own_inputs = [
        {"name": tensor.name, "datatype": datatype_of(tensor.dtype), "shape": list(tensor.shape)}
        for tensor in model.inputs
    ]
    forms: dict[str, tuple[str, list[int]]] = {
        _RESULT: (BYTES, [1]),
        _LABELS: (BYTES, [-1]),
        _SCORES: ("FP32", [-1]),
        _BOXES: ("FP32", [-1, 4]),
    }
    of_pictures = [
        {"name": output, "datatype": forms[output][0], "shape": forms[output][1]}
        for output in output_names(model, tensor=False)
        if output in forms
    ]
    own_outputs = [
        {"name": tensor.name, "datatype": datatype_of(tensor.dtype), "shape": list(tensor.shape)}
        for tensor in model.outputs
    ]
    return {
        "name": name,
        "versions": [version],
        "platform": model.platform,
        "inputs": [*pictures, *own_inputs],
        "outputs": [*of_pictures, *own_outputs],
    }
