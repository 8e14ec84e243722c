"""Stub engines that play, on a CPU, the faults of real runtimes; chosen by `EngineRequest.options`.

Use through the configuration: ``engine: {plugins: {litert: "tests.stubs.engines:open_stub"}, options: {…}}``.
All options are strings; calls of `run` are counted from 1, the opening's own check run included where
`check_runs` asks for one (0 by default).

========================  ===========================================================================
input                     shape and type of the input, "1x28x28x1:uint8"; default: the request's, uint8
outputs                   shapes and types, "1x10:float32,1x4:int8"; default "1x10:float32"
quantisation              scale and zero point of the outputs, "0.00390625,-128"; default none
input_quantisation        the same of the input
fill                      the value of every output element; default: the first is 1, the others are 0
answer                    "constant" (default), "echo" (outputs hold the input's mean), "nan", "maximum"
run_s                     seconds that each run takes
leak_mb                   megabytes that each run keeps for ever
hang_on                   call that never returns (sleeps an hour at a time)
oom_on                    call that raises OutOfMemoryError; "7+" means every call from 7
raise_on                  call that raises UnavailableError
crash_on                  call that kills the process by a write to address 0
load_s, load_steps        seconds that opening takes, and progress lines within them
load_hang                 "yes": opening never returns
load_fail                 "bundle" or "engine": opening raises that error
effective                 the accelerator really in effect; default: the first asked
check_runs                runs made while opening
========================  ===========================================================================
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import numpy as np

from vedette.engine.accelerator import Climb, Placement, announce, compose_report, ladder, satisfies
from vedette.errors import (
    BundleError,
    ConfigError,
    EngineUnavailableError,
    OutOfMemoryError,
    UnavailableError,
)
from vedette.vision.tensors import TensorInfo
from vedette.wire.messages import Skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from vedette.engine.port import EngineRequest, Progress
    from vedette.wire.messages import AcceleratorReport

HOUR_S = 3600.0
OPTIONS = frozenset(
    {
        "answer",
        "check_runs",
        "crash_on",
        "effective",
        "fill",
        "hang_on",
        "input",
        "input_quantisation",
        "leak_mb",
        "load_fail",
        "load_hang",
        "load_s",
        "load_steps",
        "oom_on",
        "outputs",
        "quantisation",
        "raise_on",
        "run_s",
    }
)


def open_stub(request: EngineRequest, progress: Progress) -> StubEngine:
    """The factory: never reads the model file, obeys the options."""
    options = request.options
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise ConfigError(f"engine.options: the stub engine does not know {', '.join(unknown)}")
    _play_loading(options, progress)
    asked = ladder(request.accelerators)
    effective = options.get("effective", asked[0])
    refused = [rung for rung in asked if not satisfies(effective, rung)]
    skipped = tuple(
        Skipped(rung, "the stub was told to use another") for rung in refused[: _position(asked, effective)]
    )
    engine = StubEngine(request)
    for _ in range(int(options.get("check_runs", "0"))):
        engine.run()
    engine.report = compose_report(
        Climb(Placement(engine, effective, {effective: 1}, "the stub was told so"), skipped),
        runtime="stub 1.0",
        asked=asked,
        on_fallback=request.on_fallback,
        threads=request.threads,
        check_ms=0.0,
        load_ms=0.0,
    )
    announce(engine.report, progress)
    return engine


class StubEngine:
    """Answers without a model."""

    report: AcceleratorReport

    def __init__(self, request: EngineRequest) -> None:
        options = request.options
        scale, zero_point = _quantisation(options.get("quantisation", "0"))
        given = options.get("input")
        shape, dtype = (request.input_shape or (1, 4, 4, 3), "uint8") if given is None else _tensor(given)
        self.inputs: tuple[TensorInfo, ...] = (
            TensorInfo("stub_input", shape, dtype, *_quantisation(options.get("input_quantisation", "0"))),
        )
        self.outputs: tuple[TensorInfo, ...] = tuple(
            TensorInfo(f"stub_output_{index}", *_tensor(text), scale, zero_point)
            for index, text in enumerate(options.get("outputs", "1x10:float32").split(","))
        )
        self.input_array: NDArray[np.generic] = np.zeros(shape, np.dtype(dtype))
        self._options = options
        self._calls = 0
        self._closed = False
        self._leaked: list[bytes] = []

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Play this call's fault, or answer."""
        if self._closed:
            raise UnavailableError("the engine is closed")
        self._calls += 1
        time.sleep(float(self._options.get("run_s", "0")))
        if "leak_mb" in self._options:
            self._leaked.append(b"\1" * (int(self._options["leak_mb"]) << 20))
        while self._is_on("hang_on"):
            time.sleep(HOUR_S)
        if self._is_on("oom_on"):
            raise OutOfMemoryError("the runtime could not allocate memory: the stub was told so")
        if self._is_on("raise_on"):
            raise UnavailableError("the inference run failed: the stub was told so")
        if self._is_on("crash_on"):
            ctypes.memset(0, 0, 1)
        return tuple(self._answer(output) for output in self.outputs)

    def close(self) -> None:
        """Nothing to give back; runs fail from now on."""
        self._closed = True

    def _is_on(self, option: str) -> bool:
        text = self._options.get(option)
        if text is None:
            return False
        return self._calls >= int(text[:-1]) if text.endswith("+") else self._calls == int(text)

    def _answer(self, output: TensorInfo) -> NDArray[np.generic]:
        dtype = np.dtype(output.dtype)
        answer = self._options.get("answer", "constant")
        if answer == "nan":
            return np.full(output.shape, np.nan, dtype)
        if answer == "maximum":
            most = 1.0 if dtype.kind == "f" else np.iinfo(dtype).max
            return np.full(output.shape, most, dtype)
        if answer == "echo":
            return np.full(output.shape, self.input_array.astype(np.float64).mean()).astype(dtype)
        if "fill" in self._options:
            return np.full(output.shape, float(self._options["fill"])).astype(dtype)
        values = np.zeros(output.shape, dtype)
        values.reshape(-1)[0] = 1
        return values


def _play_loading(options: Mapping[str, str], progress: Progress) -> None:
    while options.get("load_hang") == "yes":
        time.sleep(HOUR_S)
    steps = int(options.get("load_steps", "1"))
    for step in range(steps):
        time.sleep(float(options.get("load_s", "0")) / steps)
        progress(f"stub: step {step + 1} of {steps}")
    fault = options.get("load_fail")
    if fault == "bundle":
        raise BundleError("the stub does not take this model")
    if fault == "engine":
        raise EngineUnavailableError("the stub's runtime is not installed", cure="tell it otherwise")


def _position(asked: tuple[str, ...], effective: str) -> int:
    """How many rungs stand above the one in effect."""
    for index, rung in enumerate(asked):
        if satisfies(effective, rung):
            return index
    return len(asked)


def _tensor(text: str) -> tuple[tuple[int, ...], str]:
    shape, _, dtype = text.partition(":")
    return tuple(int(size) for size in shape.split("x")), dtype or "float32"


def _quantisation(text: str) -> tuple[float, int]:
    scale, _, zero_point = text.partition(",")
    return float(scale), int(zero_point or "0")
