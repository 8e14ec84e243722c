"""Requests and responses of the Open Inference Protocol v2, JSON with the binary tensor extension. Pure.

Source: KServe, "Open Inference Protocol", version 2 (HTTP/REST), and "Binary Tensor Data Extension": with the
header `Inference-Header-Content-Length` the body is that much JSON, then the bytes of the tensors in their
order.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from vedette.api.datatypes import (
    BYTES,
    bytes_elements,
    datatype_of,
    dtype_of,
    element_count,
    json_array,
    json_bytes,
    pack_bytes,
)
from vedette.api.refusal import RequestRefusedError, bad_request, too_large

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vedette.api.body import Body
    from vedette.wire.messages import ModelRef

JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"
LENGTH_HEADER = "inference-header-content-length"
MAX_JSON_BYTES = 8 << 20

_Name = Annotated[str, Meta(max_length=256)]
_Length = Annotated[int, Meta(ge=0, le=1 << 31)]
_Shape = Annotated[list[_Length], Meta(max_length=8)]
_Parameters = Annotated[dict[str, Any], Meta(max_length=64)]


class _InputPart(msgspec.Struct, frozen=True):
    name: _Name
    shape: _Shape
    datatype: Annotated[str, Meta(max_length=16)]
    parameters: _Parameters = {}
    data: msgspec.Raw | UnsetType = UNSET


class _OutputPart(msgspec.Struct, frozen=True):
    name: _Name
    parameters: _Parameters = {}


class _RequestPart(msgspec.Struct, frozen=True):
    inputs: Annotated[list[_InputPart], Meta(min_length=1, max_length=16)]
    id: _Name = ""
    parameters: _Parameters = {}
    outputs: Annotated[list[_OutputPart], Meta(max_length=64)] = []


class InputTensor(NamedTuple):
    """One input: its bytes in `pieces`, or JSON in `json`."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any]
    pieces: tuple[memoryview, ...] = ()
    json: bytes | None = None

    @property
    def where(self) -> str:
        """For messages."""
        return f"the input {self.name!r}"

    def elements(self) -> list[bytes]:
        """The elements of a BYTES tensor.

        Raises:
            RequestRefusedError: 400: they are not what the shape says.
        """
        count = element_count(self.shape)
        if self.json is not None:
            return json_bytes(self.json, count, self.where)
        return bytes_elements(b"".join(self.pieces), count, self.where)

    def memory(self) -> tuple[memoryview, ...]:
        """The row-major bytes of any other tensor.

        Raises:
            RequestRefusedError: 400: they are not what shape and datatype say.
        """
        if self.json is not None:
            array = json_array(self.json, self.datatype, self.shape, self.where)
            return (memoryview(array.tobytes()),)
        wanted_bytes = element_count(self.shape) * dtype_of(self.datatype, self.where).itemsize
        size_bytes = sum(len(piece) for piece in self.pieces)
        if size_bytes != wanted_bytes:
            raise bad_request(
                f"{self.where}: {self.datatype} of shape {list(self.shape)} has {wanted_bytes} bytes, "
                f"binary_data_size says {size_bytes}"
            )
        return self.pieces


class WantedOutput(NamedTuple):
    """An output that was asked for by name; `binary` None: as the request says for all."""

    name: str
    binary: bool | None


class InferenceRequest(NamedTuple):
    """What a client asks; without `outputs` it gets all of them."""

    id: str
    parameters: dict[str, Any]
    inputs: tuple[InputTensor, ...]
    outputs: tuple[WantedOutput, ...]
    binary_outputs: bool


class Floats(NamedTuple):
    """A few numbers of type FP32, row by row; NumPy would take longer to begin than they take."""

    values: list[float]
    shape: tuple[int, ...]


class OutputTensor(NamedTuple):
    """One output: numbers, or the elements of a BYTES tensor of one axis."""

    name: str
    values: NDArray[Any] | Floats | Sequence[bytes]


class ResponseBody(NamedTuple):
    """`pieces` one after the other; the first `json_bytes` are JSON, None where all are."""

    pieces: tuple[bytes, ...]
    json_bytes: int | None


def parse_request(body: Body, header_length: str | None) -> InferenceRequest:
    """Read a request.

    Args:
        body: All of it.
        header_length: The value of `Inference-Header-Content-Length`, if that header came.

    Raises:
        RequestRefusedError: 400 or 413, with the cause.
    """
    json_size = _json_size(body.size_bytes, header_length)
    try:
        part = _REQUESTS.decode(body.take(0, json_size))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the request's JSON is not an inference request: {error}") from error
    inputs: list[InputTensor] = []
    at = json_size
    for entry in part.inputs:
        tensor, used = _input(entry, body, at)
        inputs.append(tensor)
        at += used
    if at != body.size_bytes:
        raise bad_request(
            f"the inputs claim {at - json_size} bytes of binary data, "
            f"the body has {body.size_bytes - json_size}",
            cure=f"see binary_data_size and {LENGTH_HEADER}",
        )
    return InferenceRequest(
        part.id,
        part.parameters,
        tuple(inputs),
        tuple(WantedOutput(o.name, _flag(o.parameters, "binary_data")) for o in part.outputs),
        bool(_flag(part.parameters, "binary_data_output")),
    )


_REQUESTS = msgspec.json.Decoder(_RequestPart)


def _json_size(size_bytes: int, header_length: str | None) -> int:
    if header_length is None:
        if size_bytes > MAX_JSON_BYTES:
            raise too_large(
                f"a request in JSON may have {MAX_JSON_BYTES} bytes, this one has {size_bytes}",
                cure="send tensors in binary form",
            )
        return size_bytes
    if not header_length.isascii() or not header_length.isdigit() or len(header_length) > 12:
        raise bad_request(f"{LENGTH_HEADER} is not a number of bytes: {header_length[:32]!r}")
    json_size = int(header_length)
    if not 0 < json_size <= size_bytes:
        raise bad_request(f"{LENGTH_HEADER} says {json_size} bytes, the body has {size_bytes}")
    if json_size > MAX_JSON_BYTES:
        raise too_large(f"the JSON of a request may have {MAX_JSON_BYTES} bytes, this one has {json_size}")
    return json_size


def _input(part: _InputPart, body: Body, at: int) -> tuple[InputTensor, int]:
    """The tensor, and how many bytes of the body are its own."""
    where = f"the input {part.name!r}"
    size_bytes = part.parameters.get("binary_data_size")
    shape = tuple(part.shape)
    if "shared_memory_region" in part.parameters:
        raise bad_request(f"{where}: shared memory is not offered here", cure="send the bytes")
    if size_bytes is None:
        if part.data is UNSET:
            raise bad_request(f"{where} has neither data nor binary_data_size")
        return InputTensor(part.name, part.datatype, shape, part.parameters, json=bytes(part.data)), 0
    if part.data is not UNSET:
        raise bad_request(f"{where} has both data and binary_data_size")
    if not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or size_bytes < 0:
        raise bad_request(f"{where}: binary_data_size is not a number of bytes")
    if size_bytes > body.size_bytes - at:
        raise bad_request(
            f"{where}: binary_data_size says {size_bytes} bytes, {body.size_bytes - at} are left in the body"
        )
    pieces = body.slices(at, size_bytes)
    return InputTensor(part.name, part.datatype, shape, part.parameters, pieces), size_bytes


def _flag(parameters: dict[str, Any], name: str) -> bool | None:
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"the parameter {name} is neither true nor false")
    return value


def build_response(
    request: InferenceRequest, model: ModelRef, outputs: Sequence[OutputTensor]
) -> ResponseBody:
    """Write the outputs that were asked for, each in the form that was asked for.

    Raises:
        RequestRefusedError: 400: one that does not exist was asked for.
    """
    entries: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for tensor, as_bytes in _chosen(request, outputs):
        entry, packed = _output(tensor, as_bytes=as_bytes)
        entries.append(entry)
        if packed is not None:
            binary.append(packed)
    head: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    if request.id:
        head["id"] = request.id
    head["outputs"] = entries
    encoded = msgspec.json.encode(head)
    return ResponseBody((encoded, *binary), len(encoded) if any("parameters" in e for e in entries) else None)


def check_outputs(request: InferenceRequest, names: Sequence[str]) -> None:
    """Refuse a request for outputs that do not exist, before any work is done for it.

    Raises:
        RequestRefusedError: 400, naming those that do.
    """
    unknown = [wanted.name for wanted in request.outputs if wanted.name not in names]
    if unknown:
        raise bad_request(f"there is no output {unknown[0]!r}; there are {', '.join(names)}")


def _chosen(request: InferenceRequest, outputs: Sequence[OutputTensor]) -> list[tuple[OutputTensor, bool]]:
    if not request.outputs:
        return [(tensor, request.binary_outputs) for tensor in outputs]
    named = {tensor.name: tensor for tensor in outputs}
    check_outputs(request, tuple(named))
    return [
        (named[wanted.name], request.binary_outputs if wanted.binary is None else wanted.binary)
        for wanted in request.outputs
    ]


def _output(tensor: OutputTensor, *, as_bytes: bool) -> tuple[dict[str, Any], bytes | None]:
    values = tensor.values
    if isinstance(values, Floats):
        entry = {"name": tensor.name, "datatype": "FP32", "shape": values.shape}
        if not as_bytes:
            return {**entry, "data": values.values}, None
        packed = struct.pack(f"<{len(values.values)}f", *values.values)
    elif isinstance(values, np.ndarray):
        entry = {"name": tensor.name, "datatype": datatype_of(values.dtype.str), "shape": list(values.shape)}
        if not as_bytes and values.dtype != np.float16:  # which JSON has no form for
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise RequestRefusedError(
                    500,
                    f"the output {tensor.name!r} holds NaN or infinity, which JSON has no form for",
                    cure="ask for it in binary form",
                )
            return {**entry, "data": values.reshape(-1).tolist()}, None
        packed = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    else:
        entry = {"name": tensor.name, "datatype": BYTES, "shape": [len(values)]}
        if not as_bytes:
            return {**entry, "data": [element.decode("utf-8", "replace") for element in values]}, None
        packed = pack_bytes(values)
    return {**entry, "parameters": {"binary_data_size": len(packed)}}, packed
