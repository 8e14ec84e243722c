"""Manifests and tensors for the postprocessor's stories."""

from __future__ import annotations

from vedette.vision.geometry import place
from vedette.vision.tensors import TensorInfo
from vedette.wire.bundle import (
    EngineName,
    InputSpec,
    ModelSpec,
    OutputSpec,
    ResizeMode,
    Task,
    TensorLayout,
)
from vedette.wire.pixels import PixelFormat, describe

FRAME = describe(1300, 481, PixelFormat.NV12)
PLACEMENT = place(FRAME, (640, 640), ResizeMode.LETTERBOX)


def info(
    shape: tuple[int, ...],
    dtype: str = "float32",
    scale: float = 0.0,
    zero_point: int = 0,
    *,
    name: str = "out",
) -> TensorInfo:
    return TensorInfo(name, shape, dtype, scale, zero_point)


def classifier(
    output: OutputSpec, task: Task = Task.CLASSIFY, size: tuple[int, int] = (640, 640)
) -> ModelSpec:
    return ModelSpec(
        schema=1,
        name="story",
        version="1",
        task=task,
        engine=EngineName.ONNX,
        file="model.onnx",
        input=InputSpec(size, TensorLayout.NCHW, resize=ResizeMode.LETTERBOX),
        output=output,
    )


def detector(output: OutputSpec, size: tuple[int, int] = (640, 640)) -> ModelSpec:
    return classifier(output, Task.DETECT, size)
