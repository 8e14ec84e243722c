"""Makes small bundles for the tests: real ONNX files of one operator, a list of checksums written by hand."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import onnx
import yaml
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path


def onnx_model(
    *,
    ir_version: int = 8,
    opset: int = 17,
    domain: str = "",
    imports: tuple[tuple[str, int], ...] = (),
) -> Any:  # noqa: ANN401 - the onnx package has no types
    """A ModelProto with one node."""
    node = helper.make_node("Relu", ["x"], ["y"], domain=domain)
    graph = helper.make_graph(
        [node],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*pair) for pair in imports)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="workshop", producer_version="2")
    model.ir_version = ir_version
    return model


def external_model(*locations: str) -> bytes:
    """An ONNX file whose weights lie in other files."""
    model = onnx_model()
    for index, location in enumerate(locations):
        tensor = TensorProto(name=f"weights{index}", data_type=TensorProto.FLOAT, dims=[4])
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", location
        model.graph.initializer.append(tensor)
    content: bytes = model.SerializeToString()
    return content


def spec_fields(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - a YAML value is anything
    """The keys of a valid `model.yaml`; dotted names reach inside (`output__top_k=3`), None deletes a key."""
    fields: dict[str, Any] = {
        "schema": 1,
        "name": "tiny",
        "version": "1",
        "task": "classify",
        "engine": "onnx",
        "file": "tiny.onnx",
        "input": {"size": [8, 8], "layout": "nchw", "range": [0, 1]},
        "output": {"layout": "scores", "labels": {"count": 3}},
        "golden": None,
    }
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        inner = fields
        for key in path:
            inner = inner.setdefault(key, {})
        if value is None and last != "golden":
            inner.pop(last, None)
        else:
            inner[last] = value
    return fields


def spec_yaml(**changes: Any) -> bytes:  # noqa: ANN401 - a YAML value is anything
    """A `model.yaml`, valid but for the changes."""
    return yaml.safe_dump(spec_fields(**changes), sort_keys=False).encode()


def write_bundle(root: Path, files: dict[str, bytes] | None = None, **changes: Any) -> Path:  # noqa: ANN401
    """A sealed bundle; `files` replaces or adds files, `changes` go into `model.yaml`."""
    contents = {
        "model.yaml": spec_yaml(**changes),
        "tiny.onnx": onnx_model().SerializeToString(),
        "labels.txt": b"cat\ndog\nowl\n",
        **(files or {}),
    }
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write_sums(root)
    return root


def write_sums(root: Path) -> None:
    """List every file of the folder as `sha256sum` does."""
    lines = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and name != "SHA256SUMS":
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
    (root / "SHA256SUMS").write_text("".join(lines))


def parsed(content: bytes) -> Any:  # noqa: ANN401 - the onnx package has no types
    """What the onnx package itself reads."""
    return onnx.load_model_from_string(content)
