"""Where an ONNX file keeps its tensors, by walking the protobuf wire format. Pure and bounded.

Source: the protobuf encoding guide and the field numbers of `onnx.proto`. Weights outside the file are not
looked for: a bundle lists them as files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vedette.delta.elements import BY_NAME
from vedette_fleet.delta.tensors import Scales, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.delta.elements import Element

MAX_FIELDS = 2_000_000
MAX_DEPTH = 12
Span = tuple[int, int]

# TensorProto.DataType
_TYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 10: "float16", 12: "uint32", 16: "bfloat16"}  # fmt: skip  # noqa: E501 - one row a table
# Operators and which of their inputs are (weight, its scale); only DequantizeLinear says the axis.
_QUANTISED = {
    "DequantizeLinear": ((0, 1),), "QLinearConv": ((3, 4),), "QLinearMatMul": ((0, 1), (3, 4)),
    "QGemm": ((0, 1), (3, 4)),
}  # fmt: skip
_FIXED_AXIS = {"QLinearConv": 0, "QLinearMatMul": 1, "QGemm": 1}


class NotOnnxError(ValueError):
    """The bytes are not an ONNX file."""


def locate_onnx(data: bytes) -> list[Tensor]:
    """Every tensor that stands in the file, with its scales where a dequantising node names them.

    Raises:
        NotOnnxError: The wire format is broken, or too deep or too long to be a model.
    """
    walk = _Walk(data)
    walk.model((0, len(data)))
    return walk.result()


@dataclass
class _Walk:
    """Collects tensors; each method reads one message, given its span."""

    data: bytes
    left: int = MAX_FIELDS
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scale_of: dict[str, tuple[str, int]] = field(default_factory=dict)

    def result(self) -> list[Tensor]:
        found = []
        for key, tensor in self.tensors.items():
            name, axis = self.scale_of.get(key, ("", 0))
            scale = self.tensors.get(name)
            if scale is not None and scale.element is BY_NAME["float32"]:
                axis = axis if axis >= 0 else axis + len(tensor.shape)
                scales = Scales(scale.offset, scale.size_bytes // 4, axis)
                tensor = replace(tensor, scales=scales)  # noqa: PLW2901 - the same tensor, now complete
            found.append(tensor)
        return found

    def model(self, span: Span) -> None:
        for number, value in self.fields(span):
            if number == 7 and not isinstance(value, int):
                self.graph(value, "", 0)

    def graph(self, span: Span, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotOnnxError("graphs nested too deep")
        nodes = 0
        for number, value in self.fields(span):
            if isinstance(value, int):
                continue
            if number == 5:
                self.tensor(value, prefix)
            elif number == 1:
                self.node(value, prefix, nodes, depth)
                nodes += 1

    def node(self, span: Span, prefix: str, index: int, depth: int) -> None:
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: list[Span] = []
        operator = ""
        for number, value in self.fields(span):
            if isinstance(value, int):
                continue
            if number == 1:
                inputs.append(self.text(value))
            elif number == 2:
                outputs.append(self.text(value))
            elif number == 4:
                operator = self.text(value)
            elif number == 5:
                attributes.append(value)
        label = outputs[0] if outputs else str(index)
        axis = 1
        for attribute in attributes:
            axis = self.attribute(attribute, f"{prefix}{label}/", depth, axis)
        self.note_scales(operator, [prefix + name for name in inputs], axis)

    def note_scales(self, operator: str, inputs: list[str], axis: int) -> None:
        """Remember which weights of a node have which scales."""
        if operator in _FIXED_AXIS:
            axis = _FIXED_AXIS[operator]
        for weight, scale in _QUANTISED.get(operator, ()):
            if scale < len(inputs):
                self.scale_of[inputs[weight]] = (inputs[scale], axis)

    def attribute(self, span: Span, prefix: str, depth: int, axis: int) -> int:
        """Tensors and graphs inside; returns the axis, if this is the attribute that says it."""
        name, number_value = "", None
        for number, value in self.fields(span):
            if number == 1 and not isinstance(value, int):
                name = self.text(value)
            elif number == 3 and isinstance(value, int):
                number_value = value - (1 << 64) if value >> 63 else value
            elif number in {5, 10} and not isinstance(value, int):
                self.tensor(value, prefix)
            elif number in {6, 11} and not isinstance(value, int):
                self.graph(value, f"{prefix}{name}/", depth + 1)
        return number_value if name == "axis" and number_value is not None else axis

    def tensor(self, span: Span, prefix: str) -> None:
        name, kind, payload = "", 0, (0, 0)
        shape: list[int] = []
        for number, value in self.fields(span):
            if number == 1:
                shape += [value] if isinstance(value, int) else self.numbers(value)
            elif number == 2 and isinstance(value, int):
                kind = value
            elif isinstance(value, int):
                continue
            elif number == 8:
                name = self.text(value)
            elif number == 9 or (number == 4 and value[1] - value[0] > payload[1] - payload[0]):
                payload = value  # raw data, or packed floats, which lie in the file alike
        element: Element | None = BY_NAME.get(_TYPES.get(kind, ""))
        size = payload[1] - payload[0]
        if size:
            self.tensors[prefix + name] = Tensor(prefix + name, tuple(shape), element, payload[0], size)

    def numbers(self, span: Span) -> list[int]:
        at, end = span
        found = []
        while at < end:
            value, at = self.varint(at, end)
            found.append(value)
        return found

    def text(self, span: Span) -> str:
        return self.data[span[0] : min(span[1], span[0] + 4096)].decode("utf-8", "replace")

    def fields(self, span: Span) -> Iterator[tuple[int, int | Span]]:
        at, end = span
        while at < end:
            self.left -= 1
            if self.left < 0:
                raise NotOnnxError("too many fields")
            tag, at = self.varint(at, end)
            number, wire = tag >> 3, tag & 7
            if number == 0 or wire not in {0, 1, 2, 5}:
                raise NotOnnxError(f"byte {at}: no field of ONNX")
            if wire == 0:
                value, at = self.varint(at, end)
                yield number, value
                continue
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = self.varint(at, end)
            if size > end - at:
                raise NotOnnxError(f"byte {at}: a field longer than its message")
            if wire == 2:
                yield number, (at, at + size)
            at += size

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
        raise NotOnnxError(f"byte {at}: a number without an end")
