"""Case 5: a bundle too new for the runtime is refused before anything is loaded, naming both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime
import pytest
from onnx import helper
from tests.unit.bundle.workshop import onnx_model, write_bundle

from vedette.bundle.compatibility import check_runtime
from vedette.bundle.folder import Bundle, load_bundle
from vedette.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path


def bundle_of(root: Path, model: Any, **changes: Any) -> Bundle:  # noqa: ANN401 - the onnx package has no types
    """A loaded bundle around a model."""
    return load_bundle(write_bundle(root, {"tiny.onnx": model.SerializeToString()}, **changes))


def test_ir_version_99_is_refused(tmp_path: Path) -> None:
    """Case 5: both numbers and the runtime's version are in the message."""
    bundle = bundle_of(tmp_path, onnx_model(ir_version=99))
    with pytest.raises(BundleError) as caught:
        check_runtime(bundle, "onnxruntime", "1.23.2")
    assert "IR version 99" in caught.value.cause
    assert "onnxruntime 1.23.2 reads up to IR version 11" in caught.value.cause


def test_opset_99_is_refused(tmp_path: Path) -> None:
    """Case 5: old runtimes loaded newer opsets and could give wrong numbers."""
    bundle = bundle_of(tmp_path, onnx_model(opset=99))
    with pytest.raises(BundleError, match=r"opset 99; onnxruntime 1\.18\.1 reads up to opset 21"):
        check_runtime(bundle, "onnxruntime", "1.18.1")


def test_an_unknown_operator_domain_is_refused(tmp_path: Path) -> None:
    """Case 5: at load, whatever the runtime."""
    model = onnx_model(domain="com.acme", imports=(("com.acme", 1),))
    with pytest.raises(BundleError, match=r"unknown domain 'com\.acme'"):
        bundle_of(tmp_path, model)


def test_an_unknown_domain_that_no_node_uses_is_harmless(tmp_path: Path) -> None:
    """Exporters leave such imports behind, and ONNX Runtime loads them."""
    model = onnx_model(imports=(("pkg.onnxscript.torch_lib", 1),))
    assert bundle_of(tmp_path, model).onnx is not None


def test_a_domain_that_the_file_defines_itself_is_known(tmp_path: Path) -> None:
    """Functions local to the model bring their own domain."""
    model = onnx_model(ir_version=9, domain="mine", imports=(("mine", 1),))
    body = helper.make_node("Relu", ["a"], ["b"])
    model.functions.append(
        helper.make_function("mine", "Relu", ["a"], ["b"], [body], [helper.make_opsetid("", 17)])
    )
    assert bundle_of(tmp_path, model).onnx is not None


def test_a_domain_without_an_opset_is_refused(tmp_path: Path) -> None:
    """A contrib operator whose domain is not imported cannot be resolved."""
    with pytest.raises(BundleError, match=r"'com\.microsoft' but imports no opset"):
        bundle_of(tmp_path, onnx_model(domain="com.microsoft"))


@pytest.mark.parametrize(
    ("version", "ir_version", "opset", "fits"),
    [
        ("1.18.0", 10, 21, True),
        ("1.18.0", 11, 21, False),
        ("1.20.1", 10, 22, False),
        ("1.21.0", 10, 22, True),
        ("1.23.2", 11, 23, True),
        ("1.23.2", 12, 23, False),
        ("1.24.4", 13, 25, True),
        ("1.24.4", 13, 26, False),
        ("1.31.1", 13, 26, True),
        ("1.31.1", 14, 26, False),
        ("1.32.0", 14, 28, True),
        ("1.32.0", 15, 28, False),
        ("1.32.1+cu12", 14, 29, False),
        ("1.33.0", 99, 99, True),
        ("2.0", 99, 99, True),
    ],
)
def test_the_limits_of_each_runtime(
    tmp_path: Path, version: str, ir_version: int, opset: int, *, fits: bool
) -> None:
    """The table's borders; a runtime newer than all measured ones is trusted."""
    bundle = bundle_of(tmp_path, onnx_model(ir_version=ir_version, opset=opset))
    if fits:
        check_runtime(bundle, "onnxruntime-gpu", version)
    else:
        with pytest.raises(BundleError, match=version.replace("+", r"\+")):
            check_runtime(bundle, "onnxruntime-gpu", version)


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "low", "high"), [("ir_version", 8, 20), ("opset", 17, 40)])
def test_the_table_agrees_with_the_installed_runtime(tmp_path: Path, kind: str, low: int, high: int) -> None:
    """What the table lets pass loads in the ONNX Runtime at hand, and the next number is refused by both."""
    version = onnxruntime.__version__
    for number in range(low, high):
        model = onnx_model(ir_version=number) if kind == "ir_version" else onnx_model(opset=number)
        bundle = bundle_of(tmp_path, model)
        loads = _loads(model)
        try:
            check_runtime(bundle, "onnxruntime", version)
        except BundleError:
            assert not loads, f"{kind} {number} is refused, but onnxruntime {version} loads it"
            return
        assert loads, f"{kind} {number} passes, but onnxruntime {version} does not load it"
    pytest.skip(f"onnxruntime {version} is newer than the table")


def _loads(model: onnx.ModelProto) -> bool:
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the runtime has an own class for each status
        return not ("Unsupported model IR version" in str(error) or "opset" in str(error))
    return True


def test_the_promised_opset_range_is_held_to(tmp_path: Path) -> None:
    """`requires.opset` in model.yaml and the file must agree."""
    with pytest.raises(BundleError, match=r"uses opset 17, but model\.yaml says requires\.opset 9\.\.13"):
        bundle_of(tmp_path, onnx_model(), requires={"opset": [9, 13]})


def test_opsets_before_seven_are_refused(tmp_path: Path) -> None:
    """ONNX Runtime promises nothing below."""
    with pytest.raises(BundleError, match="starts at 7"):
        bundle_of(tmp_path, onnx_model(opset=6))


@pytest.mark.parametrize(
    ("installed", "required", "fits"),
    [
        ("1.18.0", "1.18", True),
        ("1.18", "1.18.0", True),
        ("1.9.0", "1.18", False),
        ("1.18.0", "1.18.1", False),
        ("1.20.0rc1", "1.20", True),
        ("1.32.0", "2", False),
    ],
)
def test_the_lowest_runtime_is_compared_as_numbers(
    tmp_path: Path, installed: str, required: str, *, fits: bool
) -> None:
    """1.9 is older than 1.18; missing parts count as zero."""
    bundle = bundle_of(tmp_path, onnx_model(), requires={"runtime": required})
    if fits:
        check_runtime(bundle, "onnxruntime", installed)
    else:
        with pytest.raises(BundleError) as caught:
            check_runtime(bundle, "onnxruntime", installed)
        assert required in caught.value.cause
        assert installed in caught.value.cause


def tflite_bundle(root: Path, **changes: Any) -> Bundle:  # noqa: ANN401 - a YAML value is anything
    """A loaded bundle around the head of a TFLite file."""
    head = b"\x10\0\0\0TFL3\0\0" + b"\x06\0\x08\0\x04\0" + b"\x06\0\0\0" + b"\x03\0\0\0"
    changes = {"engine": "litert", "file": "tiny.tflite", **changes}
    return load_bundle(write_bundle(root, {"tiny.tflite": head}, **changes))


def test_the_old_tflite_package_counts_as_older_than_every_litert(tmp_path: Path) -> None:
    """tflite-runtime ended at 2.14, before LiteRT began at 1.0: its number must not pass for a newer one."""
    bundle = tflite_bundle(tmp_path / "a", requires={"runtime": "2.1"})
    check_runtime(bundle, "ai-edge-litert", "2.3.0")
    with pytest.raises(BundleError, match=r"tflite_runtime 2\.14\.0 is installed"):
        check_runtime(bundle, "tflite_runtime", "2.14.0")
    check_runtime(tflite_bundle(tmp_path / "b"), "tflite-runtime", "2.14.0")


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx", "torch", ""])
def test_a_runtime_of_the_other_engine_is_refused(tmp_path: Path, runtime: str) -> None:
    """The cure names the extra to install."""
    with pytest.raises(BundleError) as caught:
        check_runtime(tflite_bundle(tmp_path), runtime, "1.0")
    assert caught.value.cure == "install vedette[litert]"


def test_a_runtime_older_than_all_supported_ones_is_refused(tmp_path: Path) -> None:
    """Below 1.18 nothing was measured."""
    with pytest.raises(BundleError, match=r"older than 1\.18"):
        check_runtime(bundle_of(tmp_path, onnx_model()), "onnxruntime", "1.17.3")


def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    """A broken installation reports odd things."""
    with pytest.raises(BundleError, match="not a version"):
        check_runtime(bundle_of(tmp_path, onnx_model()), "onnxruntime", "unknown")
