"""A model ready to answer: bundle, engine, and the vision steps around it. For worker and `probe`."""

from __future__ import annotations

from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.bundle.compatibility import check_runtime
from vedette.bundle.folder import load_bundle
from vedette.engine.messages import Ready
from vedette.engine.port import EngineRequest
from vedette.engine.registry import installed_runtime, resolve
from vedette.engine.selftest import open_proven, self_test
from vedette.errors import BundleError, FrameError
from vedette.frame.channel import MAX_MESSAGE_BYTES
from vedette.vision.answers import Answer
from vedette.vision.picture import picture_from_buffer
from vedette.vision.postprocess import build_postprocessor
from vedette.vision.preprocess import Preprocessor
from vedette.wire.bundle import Task, TensorLayout
from vedette.wire.messages import ModelRef, RawTensor
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.bundle.folder import Bundle
    from vedette.engine.messages import WorkerSpec
    from vedette.engine.port import Engine, Progress
    from vedette.vision.picture import Picture
    from vedette.wire.bundle import InputSpec
    from vedette.wire.messages import SelfTest


FLOAT_BYTES = 4
RESULT_ROOM_BYTES = 4096  # names, times and shapes beside the tensors


class Model:
    """One loaded model; one thread owns it."""

    def __init__(self, bundle: Bundle, engine: Engine, test: SelfTest) -> None:
        spec = bundle.spec
        self.bundle = bundle
        self.engine = engine
        self.self_test = test
        self.ref = ModelRef(spec.name, spec.version, bundle.sha256)
        self.task = spec.task.value
        self.preprocessor = Preprocessor(spec.input, engine.inputs[0])
        self.postprocessor = build_postprocessor(spec, bundle.labels, engine.outputs)

    def answer(self, picture: Picture) -> Answer:
        """The whole way for one picture; the worker runs the same steps with a stopwatch between them.

        Raises:
            FrameError: The picture cannot be used, or the output is no answer.
            UnavailableError: The engine failed.
        """
        placement = self.preprocessor.prepare(picture, self.engine.input_array)
        return self.postprocessor.answer(self.engine.run(), placement)

    def take_tensor(self, packed: memoryview) -> None:
        """Put somebody's own input tensor before the engine, byte for byte.

        Raises:
            FrameError: It has another size than the model's input.
        """
        target = self.engine.input_array
        if len(packed) != target.nbytes:
            info = self.engine.inputs[0]
            raise FrameError(
                f"a tensor of {len(packed):,} bytes is no input of this model: {info.name!r} is {info.dtype} "
                f"{list(target.shape)}, {target.nbytes:,} bytes",
                kind="format",
            )
        target.reshape(-1).view(np.uint8)[:] = np.frombuffer(packed, np.uint8)

    def raw_answer(self, outputs: tuple[NDArray[Any], ...]) -> Answer:
        """The engine's outputs as they are: in their own type, not dequantised, NaN included."""
        infos = self.engine.outputs
        return Answer(
            tensors=tuple(_as_it_is(info.name, values) for info, values in zip(infos, outputs, strict=True))
        )

    def describe(self, *, can_serve: bool) -> Ready:
        """What the daemon is told once it is loaded."""
        bundle, engine = self.bundle, self.engine
        return Ready(
            self.ref,
            self.task,
            engine.report,
            self.self_test,
            can_serve,
            engine=bundle.spec.engine.value,
            inputs=engine.inputs,
            outputs=engine.outputs,
            bundle_bytes=sum((bundle.root / name).stat().st_size for name in bundle.files),
            model_sha256=bundle.model_sha256,
        )

    def warm_up(self, runs: int) -> None:
        """Make the first real frame as quick as the next: lazy allocations happen here."""
        width, height = self.bundle.spec.input.size
        frame_format = describe(width, height, PixelFormat.BGR24)
        picture = picture_from_buffer(memoryview(bytes(frame_format.frame_bytes)), frame_format)
        for _ in range(runs):
            self.preprocessor.prepare(picture, self.engine.input_array)
            self.engine.run()

    def close(self) -> None:
        """Give the engine's memory back."""
        self.engine.close()


def _as_it_is(name: str, values: NDArray[Any]) -> RawTensor:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return RawTensor(name, tuple(values.shape), values.dtype.name, little.tobytes())


def input_shape(spec: InputSpec, *, channels: int, batch: int = 1) -> tuple[int, ...]:
    """The tensor shape that a bundle's input declares."""
    width, height = spec.size
    if spec.layout is TensorLayout.NHWC:
        return (batch, height, width, channels)
    return (batch, channels, height, width)


def engine_request(spec: WorkerSpec, bundle: Bundle, *, batch: int = 1) -> EngineRequest:
    """How an adapter is to open a bundle's model."""
    channels = 1 if bundle.spec.input.colour.value == "gray" else 3
    return EngineRequest(
        model_path=bundle.model_path,
        model_sha256=bundle.model_sha256,
        accelerators=spec.accelerators,
        on_fallback=spec.on_fallback,
        threads=spec.threads,
        cache_dir=None if spec.cache_dir is None else Path(spec.cache_dir),
        input_shape=input_shape(bundle.spec.input, channels=channels, batch=batch),
        options=spec.options,
    )


def check_answer_size(bundle: Bundle, engine: Engine) -> None:
    """Refuse raw tensors that no result could carry: every single frame would fail.

    Raises:
        BundleError: Task `raw` and outputs above the limit of a message.
    """
    if bundle.spec.task is not Task.RAW:
        return
    answer_bytes = sum(FLOAT_BYTES * prod(output.shape) for output in engine.outputs)
    limit_bytes = MAX_MESSAGE_BYTES - RESULT_ROOM_BYTES
    if answer_bytes > limit_bytes:
        raise BundleError(
            f"task `raw` would put {answer_bytes:,} bytes of tensors into every result; {limit_bytes:,} is "
            "the most",
            cure="use task `classify` or `detect`, or a model with smaller outputs",
        )


def load_model(spec: WorkerSpec, progress: Progress) -> Model:
    """Check a bundle, load it on the best accelerator it really has, and prove it on its golden inputs.

    Raises:
        BundleError: The bundle is damaged, does not fit, or fails its golden inputs.
        EngineUnavailableError: The runtime or a required accelerator is not to be had.
    """
    root = Path(spec.bundle)
    progress(f"checking bundle {root.name}")
    bundle = load_bundle(root)
    engine_name = bundle.spec.engine.value
    runtime = None if engine_name in spec.plugins else installed_runtime(engine_name)
    if runtime is not None:
        check_runtime(bundle, *runtime)
    request = engine_request(spec, bundle)
    open_engine = resolve(engine_name, spec.plugins)
    progress(f"loading {bundle.spec.name} {bundle.spec.version} with {engine_name}")
    engine, test = open_proven(open_engine, request, progress, partial(self_test, bundle))
    try:
        check_answer_size(bundle, engine)
        model = Model(bundle, engine, test)
        progress("warming up")
        model.warm_up(spec.warmup_runs)
    except BaseException:
        engine.close()
        raise
    return model
