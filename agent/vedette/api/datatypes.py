"""Data types of the Open Inference Protocol, and tensors in its two forms: JSON and binary. Pure.

Source: KServe, "Open Inference Protocol", version 2, "Tensor Data", and its binary tensor data extension:
elements in row-major order, little-endian; a BYTES element has its length in front, in four bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.api.refusal import bad_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

BYTES = "BYTES"
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = struct.Struct("<I")
# Nothing that an engine takes has more axes; deeper JSON is an attack on the stack.
MAX_AXES = 8
_JSON_TYPES: dict[str, type] = {"b": bool, "f": float}


def datatype_of(dtype: str) -> str:
    """The protocol's name for a NumPy type; the NumPy name itself where the protocol has none."""
    return _NAMES.get(np.dtype(dtype), dtype)


def element_count(shape: Sequence[int]) -> int:
    """How many elements a tensor of that shape has."""
    count = 1
    for length in shape:
        count *= length
    return count


def dtype_of(datatype: str, where: str) -> np.dtype[Any]:
    """The NumPy type of a datatype with elements of one size.

    Raises:
        RequestRefusedError: 400: unknown here.
    """
    dtype = DTYPES.get(datatype)
    if dtype is None:
        raise bad_request(
            f"{where}: the datatype {datatype!r} is not known here",
            cure=f"{', '.join(DTYPES)} and {BYTES} are",
        )
    return dtype


def bytes_elements(packed: bytes, count: int, where: str) -> list[bytes]:
    """The elements of a BYTES tensor in binary form.

    Raises:
        RequestRefusedError: 400: lengths that do not add up.
    """
    elements: list[bytes] = []
    at = 0
    while at < len(packed) and len(elements) < count:
        start = at + _LENGTH.size
        if start > len(packed):
            break
        end = start + _LENGTH.unpack_from(packed, at)[0]
        if end > len(packed):
            raise bad_request(
                f"{where}: element {len(elements)} claims {end - start} bytes, it has {len(packed) - start}",
                cure="put the length in front of each element, four bytes, little-endian",
            )
        elements.append(packed[start:end])
        at = end
    if len(elements) != count or at != len(packed):
        raise bad_request(
            f"{where}: its shape says {count} elements, its {len(packed)} bytes hold {len(elements)}"
            + (f" and {len(packed) - at} bytes more" if at < len(packed) else "")
        )
    return elements


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """A BYTES tensor in binary form."""
    return b"".join(chain.from_iterable((_LENGTH.pack(len(element)), element) for element in elements))


def json_array(data: bytes, datatype: str, shape: Sequence[int], where: str) -> NDArray[Any]:
    """A tensor in JSON, flat or nested.

    Raises:
        RequestRefusedError: 400: not numbers, out of the type's range, or not as many as the shape says.
    """
    dtype = dtype_of(datatype, where)
    if dtype == np.float16:
        raise bad_request(f"{where}: FP16 has no form in JSON", cure="send it in binary form, or as FP32")
    flat = _flat(data, _JSON_TYPES.get(dtype.kind, int), element_count(shape), where)
    if dtype.kind in "iu" and flat:
        limits = np.iinfo(dtype)
        if min(flat) < limits.min or max(flat) > limits.max:
            raise bad_request(f"{where}: a value lies outside {datatype}")
    with np.errstate(over="ignore"):
        array = np.array(flat, dtype=dtype).reshape(tuple(shape))
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise bad_request(f"{where}: a value lies outside {datatype}")
    return array


def json_bytes(data: bytes, count: int, where: str) -> list[bytes]:
    """A BYTES tensor in JSON: Base64, since JSON has no bytes.

    Raises:
        RequestRefusedError: 400: not strings, not Base64, or not as many as the shape says.
    """
    flat = _flat(data, str, count, where)
    try:
        return [base64.b64decode(text, validate=True) for text in flat]
    except (binascii.Error, ValueError) as error:
        raise bad_request(
            f"{where}: its data is not Base64",
            cure="encode the bytes as Base64, or send the tensor in binary form",
        ) from error


def _flat(data: bytes, element: type, count: int, where: str) -> list[Any]:
    """As many elements as there must be, from JSON that is flat, as most is, or nested up to MAX_AXES."""
    flat, nested = _decoders(element)
    try:
        values = flat.decode(data)
    except msgspec.DecodeError:
        try:
            values = _flattened(nested.decode(data), where)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_request(
                f"{where}: its data is not a list of {element.__name__} values ({error})"
            ) from error
    if len(values) != count:
        raise bad_request(f"{where}: its shape says {count} elements, its data has {len(values)}")
    return values


@lru_cache(maxsize=8)
def _decoders(element: type) -> tuple[msgspec.json.Decoder[list[Any]], msgspec.json.Decoder[list[Any]]]:
    """For flat lists, and for nested ones."""
    nested: Any = element
    for _ in range(MAX_AXES - 1):
        nested = element | list[nested]
    return msgspec.json.Decoder(list[element]), msgspec.json.Decoder(list[nested])  # type: ignore[valid-type]


def _flattened(values: list[Any], where: str) -> list[Any]:
    while any(isinstance(value, list) for value in values):
        if not all(isinstance(value, list) for value in values):
            raise bad_request(f"{where}: its data is nested unevenly")
        values = list(chain.from_iterable(values))
    return values
