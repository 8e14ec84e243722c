"""Build the bundles that ship; the same sources give the same bytes.

    python models/build.py --sources DIR --clips DIR --pictures DIR [--out models] [--only NAME]

`--sources` holds the model files, `--clips` and `--pictures` real pictures (see README.md). `model.yaml`,
`labels.txt` and `NOTICE` are written by hand and stand in the bundle's folder; the model file, `golden.npz`
and `SHA256SUMS` are made here. Each golden answer is computed twice, by different kernels of the bare engine,
and the build stops where they differ by more than the tolerance.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import golden_straight
import numpy as np
import pictures
import quantise
from golden_straight import Scaling

from vedette.bundle.folder import load_bundle, seal
from vedette.bundle.golden import GoldenCase, load_golden, write_golden

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
WRITTEN = ("model.yaml", "labels.txt", "NOTICE")
RAW = Scaling(1.0, 0.0)
LITE_ONNX = Scaling(1 / 128, -127 / 128)
# XNNPACK and the built-in kernels of TFLite differ by up to 10 steps of 1/256 on full int8 models.
INT8_STEPS = (10 / 256,)
# ONNX Runtime's fused int8 kernels against the graph as written: 0.21 at most on these models (logit steps of
# .07); swapped colours, a small but real fault, move a logit by 1.2 and more.
QDQ_LOGITS = (0.5,)
# Single precision in another order of sums: 0.0003 seen, on values of up to 300.
F32_SUMS = (0.01, 0.01)


@dataclass(frozen=True)
class Recipe:
    """What a bundle is made of. `photographs` are scikit-image's, all CC0 or public domain."""

    source: str
    side: int
    scaling: Scaling
    tolerances: tuple[float, ...]
    photographs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    model: str | None = None
    letterbox: bool = False


PHOTOGRAPHS = ("coffee", "camera", "chelsea", "astronaut")
RECIPES = {
    "imagenet": Recipe("effl0_int8.tflite", 224, RAW, INT8_STEPS, PHOTOGRAPHS),
    "imagenet-onnx": Recipe("effl0_int8.onnx", 224, LITE_ONNX, QDQ_LOGITS, PHOTOGRAPHS),
    "imagenet-large": Recipe(
        "effl2_f32.onnx", 260, LITE_ONNX, QDQ_LOGITS, PHOTOGRAPHS, model="effl2_int8.onnx"
    ),
    "person": Recipe(
        "person_vww_int8.tflite", 96, RAW, INT8_STEPS, ("astronaut", "chelsea", "coffee", "rocket")
    ),
    "face": Recipe(
        "face_blazeface_short_f32.tflite",
        128,
        Scaling(1 / 127.5, -1.0),
        F32_SUMS,
        ("astronaut", "camera", "chelsea"),
        outputs=("regressors", "classificators"),
        letterbox=True,
    ),
    "cifar": Recipe("cifar_resnet8_int8.tflite", 32, RAW, INT8_STEPS, ("chelsea", "rocket", "coffee")),
}


def build(name: str, recipe: Recipe, given: argparse.Namespace) -> None:
    """Make one bundle and read it back."""
    folder = given.out / name
    folder.mkdir(parents=True, exist_ok=True)
    for written in WRITTEN:
        if (HERE / name).resolve() != folder.resolve():
            shutil.copyfile(HERE / name / written, folder / written)
    model = folder / (recipe.model or recipe.source)
    if recipe.model is None:
        shutil.copyfile(given.sources / recipe.source, model)
        model.chmod(0o644)
    else:
        seen = pictures.mixture(given.clips, given.pictures, offset=0, cifar_count=100, crops=8)
        quantise.quantise(given.sources / recipe.source, seen, model)
    cases = golden_cases(model, recipe, given.pictures)
    write_golden(folder / "golden.npz", cases)
    digest = seal(folder)
    bundle = load_bundle(folder)
    load_golden(bundle)
    tops = ["-" if case.top1 is None or not bundle.labels else bundle.labels[case.top1] for case in cases]
    print(
        f"{name}: {digest[:16]} {sum(path.stat().st_size for path in folder.iterdir())} bytes; top-1 {tops}"
    )


def golden_cases(model: Path, recipe: Recipe, folder: Path) -> list[GoldenCase]:
    """Answers of the bare engine, each confirmed by its other kernels."""
    first, second = kernels(model, recipe)
    cases = []
    for photograph in recipe.photographs:
        frame = golden_frame(pictures.photograph(folder, photograph), recipe)
        outputs, others = first(frame), second(frame)
        for output, other, tolerance in zip(outputs, others, recipe.tolerances, strict=True):
            apart = float(np.abs(output - other).max())
            print(f"  {model.name} {photograph}: kernels {apart:.4f} apart, tolerance {tolerance:.4f}")
            if apart > tolerance:
                raise SystemExit(f"{model.name}: {photograph} is no golden input, kernels disagree on it")
        cases.append(GoldenCase(frame, outputs, recipe.tolerances, clear_top1(outputs, recipe)))
    return cases


def kernels(model: Path, recipe: Recipe) -> tuple[golden_straight.Bare, golden_straight.Bare]:
    """The engine as it ships, and with other kernels."""
    if model.suffix == ".onnx":
        return (
            golden_straight.onnx(model, recipe.scaling, recipe.outputs, optimised=True),
            golden_straight.onnx(model, recipe.scaling, recipe.outputs, optimised=False),
        )
    return (
        golden_straight.litert(model, recipe.scaling, recipe.outputs, xnnpack=True),
        golden_straight.litert(model, recipe.scaling, recipe.outputs, xnnpack=False),
    )


def golden_frame(picture: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """A frame of the model's own size."""
    if recipe.letterbox:
        return pictures.letterboxed(picture, recipe.side, 0)
    return pictures.resized(pictures.center_square(picture), recipe.side, recipe.side)


def clear_top1(outputs: golden_straight.Arrays, recipe: Recipe) -> int | None:
    """The winner, if it still wins when both it and the runner-up move by the tolerance."""
    if len(outputs) != 1:
        return None
    row = outputs[0].ravel()
    runner_up, winner = np.sort(row)[-2:]
    return int(row.argmax()) if winner - runner_up > 2 * recipe.tolerances[0] else None


def main() -> None:
    """Build all bundles, or one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("--sources", "--clips", "--pictures"):
        parser.add_argument(option, type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--only", choices=sorted(RECIPES))
    given = parser.parse_args()
    for name, recipe in RECIPES.items():
        if given.only in (None, name):
            build(name, recipe, given)


if __name__ == "__main__":
    main()
