"""The Open Inference Protocol as a client speaks it: a picture file in, named tensors out. Pure.

Source: KServe, "Open Inference Protocol", version 2, and its binary tensor data extension; a request's bytes
are those of Triton's own client. Nothing of a reply is believed: lengths, counts and kinds have to add up.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Tensor = list[str] | NDArray[np.float64]

LENGTH_HEADER = "inference-header-content-length"
MAX_OUTPUTS = 64
MAX_ELEMENTS = 200_000
MAX_WORD_BYTES = 1024
_WORD = struct.Struct("<I")
_FLOATS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
_WHOLES = {
    f"{sign}INT{bits}": f"<{'u' if sign else 'i'}{bits // 8}"
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}


class _Output(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class _Reply(msgspec.Struct, frozen=True):
    outputs: tuple[_Output, ...]


def build_json_request(jpeg: bytes, input_name: str, outputs: tuple[str, ...]) -> bytes:
    """The same for servers without the binary extension, such as MLServer: JSON, the picture in base64."""
    picture = {
        "name": input_name,
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"content_type": "base64"},
        "data": [base64.b64encode(jpeg).decode()],
    }
    return msgspec.json.encode({"inputs": [picture], "outputs": [{"name": name} for name in outputs]})


def build_request(jpeg: bytes, input_name: str, outputs: Sequence[str]) -> tuple[int, bytes]:
    """The size of the JSON part, and the whole body, for one picture file as a BYTES element."""
    inputs = {
        "name": input_name,
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(jpeg) + _WORD.size},
    }
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": [inputs], "outputs": wanted}, separators=(",", ":")).encode()
    return len(head), head + _WORD.pack(len(jpeg)) + jpeg


def parse_reply(headers: Mapping[str, str], body: bytes) -> dict[str, Tensor]:
    """The outputs by name; numbers become float64 of the shape that was said.

    Args:
        headers: By lower-case name.
        body: All of it.

    Raises:
        BadInputError: It is no such reply, or does not add up.
    """
    json_bytes = _json_length(headers, len(body))
    try:
        reply = msgspec.json.decode(body[:json_bytes], type=_Reply)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInputError(f"no reply of the Open Inference Protocol: {str(error)[:160]}") from error
    if len(reply.outputs) > MAX_OUTPUTS:
        raise BadInputError(f"{len(reply.outputs)} outputs; {MAX_OUTPUTS} is the most")
    found: dict[str, Tensor] = {}
    at = json_bytes
    for output in reply.outputs:
        count = _elements(output)
        if output.name in found:
            raise BadInputError(f"the output {output.name[:64]!r} comes twice")
        if output.data is not None:
            found[output.name] = _from_json(output, count)
            continue
        size = output.parameters.get("binary_data_size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(body) - at:
            raise BadInputError(f"the output {output.name[:64]!r} has no data, or more than came")
        found[output.name] = _from_binary(output, body[at : at + size], count)
        at += size
    if at != len(body):
        raise BadInputError(f"{len(body) - at} bytes belong to no output")
    return found


def _json_length(headers: Mapping[str, str], body_bytes: int) -> int:
    text = headers.get(LENGTH_HEADER)
    if text is None:
        return body_bytes
    if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) > body_bytes:
        raise BadInputError(f"the length of the JSON part is said to be {text[:32]!r}")
    return int(text)


def _elements(output: _Output) -> int:
    if len(output.shape) > 8 or not all(0 <= length <= MAX_ELEMENTS for length in output.shape):
        raise BadInputError(f"the output {output.name[:64]!r} has the shape {output.shape[:8]}")
    count = math.prod(output.shape)
    if count > MAX_ELEMENTS:
        raise BadInputError(
            f"the output {output.name[:64]!r} has {count} elements; {MAX_ELEMENTS} is the most"
        )
    return count


def _from_json(output: _Output, count: int) -> Tensor:
    flat: list[Any] = []
    pending = list(reversed(output.data or []))
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending.extend(reversed(one))
        else:
            flat.append(one)
    if len(flat) != count:
        raise BadInputError(f"the output {output.name[:64]!r} has {len(flat)} elements, not {count}")
    if output.datatype == "BYTES":
        if not all(isinstance(word, str) for word in flat):
            raise BadInputError(f"the output {output.name[:64]!r} holds what is no text")
        return flat
    _dtype(output)
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in flat):
        raise BadInputError(f"the output {output.name[:64]!r} holds what is no number")
    try:
        return np.array(flat, np.float64).reshape(output.shape)
    except OverflowError as error:
        raise BadInputError(f"the output {output.name[:64]!r} holds a number beyond all bounds") from error


def _from_binary(output: _Output, data: bytes, count: int) -> Tensor:
    if output.datatype == "BYTES":
        return _words(output.name, data, count)
    dtype = np.dtype(_dtype(output))
    if len(data) != count * dtype.itemsize:
        raise BadInputError(f"the output {output.name[:64]!r} has {len(data)} bytes for {count} elements")
    return np.frombuffer(data, dtype).astype(np.float64).reshape(output.shape)


def _dtype(output: _Output) -> str:
    dtype = _FLOATS.get(output.datatype) or _WHOLES.get(output.datatype)
    if dtype is None:
        raise BadInputError(f"the output {output.name[:64]!r} has the datatype {output.datatype[:32]!r}")
    return dtype


def _words(name: str, data: bytes, count: int) -> list[str]:
    words, at = [], 0
    for _ in range(count):
        if at + _WORD.size > len(data):
            raise BadInputError(f"the output {name[:64]!r} ends early")
        (size,) = _WORD.unpack_from(data, at)
        at += _WORD.size
        if size > MAX_WORD_BYTES or at + size > len(data):
            raise BadInputError(f"the output {name[:64]!r} has an element of {size} bytes")
        words.append(data[at : at + size].decode("utf-8", "replace"))
        at += size
    if at != len(data):
        raise BadInputError(f"the output {name[:64]!r} has bytes left over")
    return words
