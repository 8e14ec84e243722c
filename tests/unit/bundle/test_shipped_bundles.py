"""The bundles in `models/`: whole, readable, and right about themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from vedette.bundle.compatibility import check_runtime
from vedette.bundle.folder import load_bundle
from vedette.bundle.golden import load_golden
from vedette.wire.bundle import EngineName, OutputLayout, Task

MODELS = Path(__file__).parents[3] / "models"
SHIPPED = sorted(path.parent for path in MODELS.glob("*/model.yaml"))
MAX_REPOSITORY_BYTES = 22 << 20


def test_the_promised_bundles_are_there() -> None:
    """Names that the documentation uses."""
    names = {path.name for path in SHIPPED}
    assert names >= {"imagenet", "imagenet-onnx", "imagenet-large", "person", "face", "cifar"}


@pytest.mark.parametrize("root", SHIPPED, ids=lambda path: path.name)
def test_each_bundle_loads_with_its_golden_inputs(root: Path) -> None:
    """All checks pass; three or more frames of the model's own size, and one output shape throughout."""
    bundle = load_bundle(root)
    golden = load_golden(bundle)
    width, height = bundle.spec.input.size
    assert len(golden.cases) >= 3
    for case in golden.cases:
        assert case.frame.shape == (height, width, 3)
        assert case.frame.std() > 10, "a flat frame proves nothing"
        assert all(tolerance > 0 for tolerance in case.tolerances)


@pytest.mark.parametrize("root", SHIPPED, ids=lambda path: path.name)
def test_each_bundle_says_where_it_comes_from(root: Path) -> None:
    """Origin and licence are inside, and the notice that Apache-2.0 asks for travels along."""
    bundle = load_bundle(root)
    assert bundle.spec.provenance is not None
    assert "Apache-2.0" in bundle.spec.provenance.licence
    assert "NOTICE" in bundle.files
    assert "Apache License, Version 2.0" in (root / "NOTICE").read_text()


@pytest.mark.parametrize("root", SHIPPED, ids=lambda path: path.name)
def test_coreutils_agrees_with_each_list(root: Path) -> None:
    """`sha256sum -c` is what a person will use."""
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("coreutils is not installed")
    done = subprocess.run(
        [tool, "-c", "--strict", "SHA256SUMS"], cwd=root, check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("root", SHIPPED, ids=lambda path: path.name)
def test_golden_winners_have_a_clear_margin(root: Path) -> None:
    """Where a top-1 is demanded, it stays the winner when every score moves by the tolerance."""
    bundle = load_bundle(root)
    if bundle.spec.task is not Task.CLASSIFY:
        pytest.skip("detectors have no top-1")
    demanded = [(case, case.top1) for case in load_golden(bundle).cases if case.top1 is not None]
    assert len(demanded) >= 2
    for case, top1 in demanded:
        row = case.outputs[0].ravel()
        assert row[top1] - np.delete(row, top1).max() > 2 * case.tolerances[0]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("imagenet", {285: "Egyptian Mau", 967: "espresso", 872: "tripod"}),
        ("imagenet-onnx", {285: "Egyptian Mau", 967: "espresso"}),
        ("imagenet-large", {285: "Egyptian Mau", 967: "espresso"}),
        ("person", {0: "person"}),
        ("cifar", {0: "airplane", 3: "cat", 8: "ship", 9: "truck"}),
        ("face", {0: "face"}),
    ],
)
def test_names_stand_at_the_indices_of_real_pictures(name: str, known: dict[int, str]) -> None:
    """Case 25: the golden frames are a cat, an espresso, a person …; their winners carry these names."""
    bundle = load_bundle(MODELS / name)
    assert {index: bundle.labels[index] for index in known} == known


def test_the_two_edge_classifiers_are_one_model_for_two_engines() -> None:
    """Same name and version, same class names, other engine."""
    tflite, onnx = load_bundle(MODELS / "imagenet"), load_bundle(MODELS / "imagenet-onnx")
    assert (tflite.spec.name, tflite.spec.version) == (onnx.spec.name, onnx.spec.version)
    assert tflite.labels == onnx.labels
    assert (tflite.spec.engine, onnx.spec.engine) == (EngineName.LITERT, EngineName.ONNX)


def test_the_face_detector_has_as_many_anchors_as_candidates() -> None:
    """16x16 cells of 2 and 8x8 cells of 6 are the 896 rows of its golden outputs."""
    bundle = load_bundle(MODELS / "face")
    assert bundle.spec.output.layout is OutputLayout.SSD_ANCHORS
    anchors = bundle.spec.output.anchors
    assert anchors is not None
    side = bundle.spec.input.size[0]
    count = sum(
        (side // stride) ** 2 * per_cell
        for stride, per_cell in zip(anchors.strides, anchors.per_cell, strict=True)
    )
    boxes, scores = load_golden(bundle).cases[0].outputs
    assert boxes.shape == (1, count, 4 + 2 * anchors.keypoints)
    assert scores.shape == (1, count, 1)


@pytest.mark.parametrize("root", SHIPPED, ids=lambda path: path.name)
def test_each_bundle_suits_the_oldest_supported_runtime(root: Path) -> None:
    """What ships runs on the lowest versions that the packaging allows."""
    bundle = load_bundle(root)
    if bundle.spec.engine is EngineName.ONNX:
        check_runtime(bundle, "onnxruntime", "1.18.0")
    else:
        check_runtime(bundle, "tflite-runtime", "2.14.0")


def test_the_bundles_stay_small() -> None:
    """A clone of the repository must stay below 40 MB."""
    total = sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file())
    assert total < MAX_REPOSITORY_BYTES
