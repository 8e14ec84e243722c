"""The tensors of a model file of either kind. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_fleet.delta.onnx_tensors import NotOnnxError, locate_onnx
from vedette_fleet.delta.tensors import inside, usable
from vedette_fleet.delta.tflite_tensors import IDENTIFIER, NotTfliteError, locate_tflite

if TYPE_CHECKING:
    from vedette_fleet.delta.tensors import Tensor


def locate(data: bytes) -> list[Tensor]:
    """Tensors in file order; none where the file is no model that we know, which then is plain bytes."""
    try:
        found = locate_tflite(data) if data[4:8] == IDENTIFIER else locate_onnx(data)
    except (NotTfliteError, NotOnnxError):
        return []
    return [
        tensor
        for tensor in usable(found, len(data))
        if tensor.scales is None or inside(tensor.scales, len(data))
    ]
