"""What an ONNX file says of itself, read by walking the protobuf wire format. Pure.

No onnx package is needed on the device, and weights are stepped over by their length, so that a file of any
size costs its number of nodes. Source: the protobuf encoding guide and the field numbers of `onnx.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedette.errors import BundleError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

MAX_FIELDS = 2_000_000
MAX_GRAPH_DEPTH = 12
MAX_STRING_BYTES = 1 << 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1  # TensorProto.DataLocation

Span = tuple[int, int]
Field = tuple[int, int | Span]
Axis = int | str | None


@dataclass(frozen=True)
class OnnxTensor:
    """A graph input or output: an axis is a number, a symbol, or None where nothing is said."""

    name: str
    element_type: int
    shape: tuple[Axis, ...] | None


@dataclass(frozen=True)
class OnnxModel:
    """The facts of an ONNX file that decide whether a runtime can read it.

    `opsets` is what the file imports for each operator domain (the default domain is ""), `node_domains` are
    those that nodes really use, `function_domains` those that the file itself defines.
    `external_files` are the locations of weights outside the file, as written, relative to the file's folder.
    """

    ir_version: int
    producer: str
    opsets: dict[str, int]
    node_domains: frozenset[str]
    function_domains: frozenset[str]
    external_files: tuple[str, ...]
    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]


def read_onnx(data: bytes | mmap.mmap, name: str) -> OnnxModel:
    """Walk a whole ONNX file.

    Args:
        data: The file's bytes, or a memory map of them.
        name: For messages.

    Raises:
        BundleError: Not ONNX, cut, or absurdly nested; the message says at which byte.
    """
    with memoryview(data) as view:  # released on the way out, or the map could not be closed
        walk = _Walk(view)
        try:
            walk.model((0, len(view)))
        except _DamagedError as error:
            raise BundleError(
                f"{name}: not a whole ONNX file: {error}",
                cure="check `file` and `engine` in model.yaml, and copy the file again",
            ) from error
        if walk.ir_version <= 0 or not walk.graphs:
            lacking = "graph" if walk.ir_version > 0 else "ir_version"
            raise BundleError(
                f"{name}: not an ONNX model: it has no {lacking}",
                cure="check `file` and `engine` in model.yaml, and copy the file again",
            )
        return walk.result()


class _DamagedError(ValueError):
    """The bytes break the wire format."""


@dataclass
class _Walk:
    """Collects the facts; each method reads one message type, given its span."""

    view: memoryview
    fields_left: int = MAX_FIELDS
    ir_version: int = 0
    graphs: int = 0
    producer: list[str] = field(default_factory=lambda: ["", ""])
    opsets: dict[str, int] = field(default_factory=dict)
    node_domains: set[str] = field(default_factory=set)
    function_domains: set[str] = field(default_factory=set)
    external: dict[str, None] = field(default_factory=dict)
    inputs: list[OnnxTensor] = field(default_factory=list)
    outputs: list[OnnxTensor] = field(default_factory=list)
    initialised: set[str] = field(default_factory=set)

    def result(self) -> OnnxModel:
        return OnnxModel(
            ir_version=self.ir_version,
            producer=" ".join(part for part in self.producer if part),
            opsets=dict(self.opsets),
            node_domains=frozenset(self.node_domains),
            function_domains=frozenset(self.function_domains),
            external_files=tuple(self.external),
            # Before IR 4 every initializer had to be listed as an input too; only the others are fed.
            inputs=tuple(tensor for tensor in self.inputs if tensor.name not in self.initialised),
            outputs=tuple(self.outputs),
        )

    def model(self, span: Span) -> None:
        for number, value in self.fields(span):
            if number == 1:
                self.ir_version = _signed(_int(value, number))
            elif number in (2, 3):
                self.producer[number - 2] = self.text(value, number)
            elif number == 7:
                self.graphs += 1
                self.graph(_span(value, number), 0)
            elif number == 8:
                self.opset(_span(value, number))
            elif number == 25:
                self.function(_span(value, number))

    def opset(self, span: Span) -> None:
        domain, version = "", 0
        for number, value in self.fields(span):
            if number == 1:
                domain = self.text(value, number)
            elif number == 2:
                version = _signed(_int(value, number))
        domain = _default_domain(domain)
        self.opsets[domain] = max(version, self.opsets.get(domain, version))

    def function(self, span: Span) -> None:
        for number, value in self.fields(span):
            if number == 7:
                self.node(_span(value, number), 0)
            elif number == 10:
                self.function_domains.add(_default_domain(self.text(value, number)))

    def graph(self, span: Span, depth: int) -> None:
        if depth > MAX_GRAPH_DEPTH:
            raise _DamagedError(f"byte {span[0]}: graphs nested more than {MAX_GRAPH_DEPTH} deep")
        for number, value in self.fields(span):
            if number == 1:
                self.node(_span(value, number), depth)
            elif number == 5:
                name = self.tensor(_span(value, number))
                if depth == 0:
                    self.initialised.add(name)
            elif number == 15:
                self.sparse_tensor(_span(value, number))
            elif number in (11, 12) and depth == 0:
                tensors = self.inputs if number == 11 else self.outputs
                tensors.append(self.value_info(_span(value, number)))

    def node(self, span: Span, depth: int) -> None:
        domain = ""
        for number, value in self.fields(span):
            if number == 5:
                self.attribute(_span(value, number), depth)
            elif number == 7:
                domain = self.text(value, number)
        self.node_domains.add(_default_domain(domain))

    def attribute(self, span: Span, depth: int) -> None:
        for number, value in self.fields(span):
            if number in (5, 10):
                self.tensor(_span(value, number))
            elif number in (6, 11):
                self.graph(_span(value, number), depth + 1)
            elif number in (22, 23):
                self.sparse_tensor(_span(value, number))

    def sparse_tensor(self, span: Span) -> None:
        for number, value in self.fields(span):
            if number in (1, 2):
                self.tensor(_span(value, number))

    def tensor(self, span: Span) -> str:
        name, location, external, described = "", "", False, False
        for number, value in self.fields(span):
            if number == 8:
                name = self.text(value, number)
            elif number == 13:
                described = True
                key, entry = self.entry(_span(value, number))
                location = entry if key == "location" else location
            elif number == 14:
                external = _int(value, number) == _EXTERNAL
        if external:
            if not described or not location:
                raise _DamagedError(
                    f"byte {span[0]}: tensor {name!r} lies outside the file but names no location"
                )
            self.external[location] = None
        return name

    def entry(self, span: Span) -> tuple[str, str]:
        key, text = "", ""
        for number, value in self.fields(span):
            if number == 1:
                key = self.text(value, number)
            elif number == 2:
                text = self.text(value, number)
        return key, text

    def value_info(self, span: Span) -> OnnxTensor:
        name, element_type, shape = "", 0, None
        for number, value in self.fields(span):
            if number == 1:
                name = self.text(value, number)
            elif number == 2:
                for kind, inner in self.fields(_span(value, number)):
                    if kind == 1:
                        element_type, shape = self.tensor_type(_span(inner, kind))
        return OnnxTensor(name, element_type, shape)

    def tensor_type(self, span: Span) -> tuple[int, tuple[Axis, ...] | None]:
        element_type, shape = 0, None
        for number, value in self.fields(span):
            if number == 1:
                element_type = _int(value, number)
            elif number == 2:
                dims = self.fields(_span(value, number))
                shape = tuple(self.axis(_span(dim, one)) for one, dim in dims if one == 1)
        return element_type, shape

    def axis(self, span: Span) -> Axis:
        axis: Axis = None
        for number, value in self.fields(span):
            if number == 1:
                axis = _signed(_int(value, number))
            elif number == 2:
                axis = self.text(value, number)
        return axis

    def text(self, value: int | Span, number: int) -> str:
        start, end = _span(value, number)
        if end - start > MAX_STRING_BYTES:
            raise _DamagedError(f"byte {start}: a name of {end - start} bytes")
        try:
            return bytes(self.view[start:end]).decode()
        except UnicodeDecodeError as error:
            raise _DamagedError(f"byte {start}: a name that is not UTF-8") from error

    def fields(self, span: Span) -> Iterator[Field]:
        """Yield number and value of each field: an int, or the span of a length-delimited one."""
        at, end = span
        while at < end:
            self.fields_left -= 1
            if self.fields_left < 0:
                raise _DamagedError(f"more than {MAX_FIELDS} fields")
            tag, at = self.varint(at, end)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise _DamagedError(f"byte {at}: field number 0")
            if wire == _VARINT:
                value, at = self.varint(at, end)
                yield number, value
                continue
            if wire == _BYTES:
                size, at = self.varint(at, end)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise _DamagedError(f"byte {at}: wire type {wire}, which ONNX does not use")
            if size > end - at:
                raise _DamagedError(f"byte {at}: a field of {size} bytes where {end - at} are left")
            if wire == _BYTES:
                yield number, (at, at + size)
            at += size

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.view[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
        raise _DamagedError(f"byte {at}: a number without an end")


def _default_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _span(value: int | Span, number: int) -> Span:
    if isinstance(value, int):
        raise _DamagedError(f"field {number} has the wrong wire type")
    return value


def _int(value: int | Span, number: int) -> int:
    if not isinstance(value, int):
        raise _DamagedError(f"field {number} has the wrong wire type")
    return value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
