"""The whole path against the bare engine call, for every bundle that ships: `python -m tests.bench.path`.

floor       OpenCV, NumPy and the engine, as a straight script in one process; outputs are not decoded
own floor   the agent's preprocessing and the engine in one process
own answer  the same and its decoding: the path less copying, waking another process, and accounting
path        a producer copies the frame into a ring, the worker process answers

wake        what waking a process and being woken by it costs alone, around as long a run (tests.bench.echo)

One thread, a 640x480 frame, one at a time. Bars: below SLOW_FLOOR_US the median overhead, path less floor, is
at most OVERHEAD_US, and the ratio that it makes on this model, or on one of MODEL_US where this one is
quicker, at most FAST_RATIO; from SLOW_FLOOR_US up the ratio is at most SLOW_RATIO.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.echo import Echo
from tests.bench.quiet import Figures, Rounds, compare, figures_of, time_calls
from tests.bench.verdict import Verdict, options, table

from vedette.engine.messages import WorkerSpec
from vedette.engine.model import load_model
from vedette.runtime.benchmark import PathClient, own_floor, straight_script, synthetic_frame
from vedette.vision.picture import picture_from_buffer
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from vedette.engine.model import Model

MODELS = Path(__file__).parents[2] / "models"
BUNDLES = ("cifar", "person", "face", "imagenet", "imagenet-onnx")
FRAME = (640, 480)
OVERHEAD_US = 100.0
MODEL_US = 330.0
FAST_RATIO = 1.25
SLOW_FLOOR_US = 1500.0
SLOW_RATIO = 1.05


def measure(bundle: str, rounds: int) -> Rounds:
    """All ways in turn."""
    spec = WorkerSpec(bundle=str(MODELS / bundle), threads=1)
    frame = synthetic_frame(*FRAME)
    model = load_model(spec, lambda _: None)
    with contextlib.ExitStack() as stack:
        stack.callback(model.close)
        client = PathClient(spec, frame, lambda _: None)
        stack.callback(client.close)
        floor = straight_script(model, frame)
        busy_us = round(figures_of(time_calls(floor, 50)).p50)
        echo = Echo(busy_us * 1000)
        stack.callback(echo.close)
        ways: dict[str, Callable[[], object]] = {
            "floor": floor,
            "own floor": own_floor(model, frame),
            "own answer": own_answer(model, frame),
            "path": client,
            "wake": echo,
        }
        found = compare(ways, rounds=rounds)
    found.figures["wake"] -= Figures(busy_us, busy_us, busy_us)
    return found


def own_answer(model: Model, frame: NDArray[np.uint8]) -> Callable[[], object]:
    """All that the worker does with a frame, in this process."""
    height, width = frame.shape[:2]
    picture = picture_from_buffer(frame.data.cast("B"), describe(width, height, PixelFormat.BGR24))
    return lambda: model.answer(picture)


def judge(verdict: Verdict, bundle: str, found: Rounds) -> None:
    """The bars that apply to a model of this cost."""
    floor, path = found.figures["floor"].p50, found.figures["path"].p50
    overhead = path - floor
    if floor >= SLOW_FLOOR_US:
        verdict.at_most(f"{bundle}: path / floor", path / floor, SLOW_RATIO, noisy=found.noisy)
        return
    verdict.at_most(f"{bundle}: path - floor", overhead, OVERHEAD_US, " us", noisy=found.noisy)
    model_us = max(floor, MODEL_US)
    ratio = 1 + overhead / model_us
    verdict.at_most(f"{bundle}: ratio on a model of {model_us:,.0f} us", ratio, FAST_RATIO, noisy=found.noisy)


def main() -> int:
    """Measure all bundles, then judge."""
    parser = options("the whole path against the bare engine call", rounds=12)
    parser.add_argument("bundles", nargs="*", default=BUNDLES, help="bundles to measure (default: all)")
    arguments = parser.parse_args()
    verdict = Verdict(f"Path: {FRAME[0]}x{FRAME[1]} bgr24, one frame at a time, microseconds")
    measured = {bundle: measure(bundle, arguments.rounds) for bundle in arguments.bundles}
    rows = []
    for bundle, found in measured.items():
        floor, path = found.figures["floor"], found.figures["path"]
        rows += [[f"{bundle}: {name}", *columns(figures), ""] for name, figures in found.figures.items()]
        rows.append([f"{bundle}: overhead", *columns(path - floor), f"{path.p50 / floor.p50:.3f}"])
    table(("", "p50", "p95", "p99", "path / floor"), rows)
    for bundle, found in measured.items():
        print(f"{bundle}: {found.noise}")
    for bundle, found in measured.items():
        judge(verdict, bundle, found)
    return verdict.exit_status(strict=arguments.strict)


def columns(figures: Figures) -> list[str]:
    """Three cells of a table."""
    return [f"{value:,.0f}" for value in (figures.p50, figures.p95, figures.p99)]


if __name__ == "__main__":
    sys.exit(main())
