"""Where a TFLite file keeps its tensors, by following its FlatBuffers tables. Pure and bounded.

Source: the FlatBuffers internals page and `schema.fbs` of TFLite.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from vedette.delta.elements import BY_NAME
from vedette_fleet.delta.tensors import MAX_TENSORS, MIN_TENSOR_BYTES, Scales, Tensor

IDENTIFIER = b"TFL3"
MAX_SUBGRAPHS = 256
MAX_ENTRIES = 1 << 17
MAX_AXES = 16
# TensorType
_TYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 7: "int16", 9: "int8", 15: "uint32", 16: "uint16", 18: "bfloat16"}  # fmt: skip  # noqa: E501 - one row a table


class NotTfliteError(ValueError):
    """The bytes are not a TFLite file."""


def locate_tflite(data: bytes) -> list[Tensor]:
    """Every tensor with a buffer in the file; long vectors of scales count as tensors too.

    Raises:
        NotTfliteError: An offset points outside of the file, or a count makes no sense.
    """
    if data[4:8] != IDENTIFIER:
        raise NotTfliteError("no TFL3 identifier")
    try:
        return _Walk(data).model()
    except struct.error as error:
        raise NotTfliteError("an offset points outside of the file") from error


@dataclass
class _Walk:
    data: bytes

    def model(self) -> list[Tensor]:
        root = self.unsigned(0)
        buffers = [self.buffer(table) for table in self.tables(root, 4, MAX_ENTRIES)]
        found: list[Tensor] = []
        seen: set[int] = set()
        for number, graph in enumerate(self.tables(root, 2, MAX_SUBGRAPHS)):
            for table in self.tables(graph, 0, MAX_ENTRIES):
                index = self.number(table, 2, "<I")
                if index in seen or index >= len(buffers) or not buffers[index][1]:
                    continue
                seen.add(index)
                found += self.tensor(table, number, buffers[index])
                if len(found) > 2 * MAX_TENSORS:
                    raise NotTfliteError("too many tensors")
        return found

    def tensor(self, table: int, graph: int, payload: tuple[int, int]) -> list[Tensor]:
        at, count = self.vector(table, 0)
        if count > MAX_AXES:
            raise NotTfliteError(f"a tensor of {count} axes")
        shape = tuple(self.unpack("<i", at + 4 * axis) for axis in range(count))
        name_at, name_size = self.vector(table, 3)
        name = f"{graph}/" + self.data[name_at : name_at + min(name_size, 4096)].decode("utf-8", "replace")
        element = BY_NAME.get(_TYPES.get(self.number(table, 1, "<B"), ""))
        scales = self.scales(table)
        found = [Tensor(name, shape, element, *payload, scales)]
        if scales is not None and 4 * scales.count >= MIN_TENSOR_BYTES:
            size = 4 * scales.count
            found.append(
                Tensor(f"{name}/scale", (scales.count,), BY_NAME["float32"], scales.offset, size, None)
            )
        return found

    def scales(self, table: int) -> Scales | None:
        field = self.field(table, 4)
        if not field:
            return None
        quantisation = field + self.unsigned(field)
        at, count = self.vector(quantisation, 2)
        if not count:
            return None
        return Scales(at, count, self.number(quantisation, 6, "<i"))

    def buffer(self, table: int) -> tuple[int, int]:
        """(offset, bytes) of a buffer; files above 2 GB keep it behind the FlatBuffer."""
        at, size = self.vector(table, 0)
        if size:
            return at, size
        offset, length = self.number(table, 1, "<Q"), self.number(table, 2, "<Q")
        return (offset, length) if offset > 1 else (0, 0)

    def tables(self, table: int, index: int, most: int) -> list[int]:
        at, count = self.vector(table, index)
        if count > most:
            raise NotTfliteError(f"a vector of {count} entries")
        return [entry + self.unsigned(entry) for entry in range(at, at + 4 * count, 4)]

    def vector(self, table: int, index: int) -> tuple[int, int]:
        """(offset of its first entry, entries); (0, 0) where it is not there."""
        field = self.field(table, index)
        if not field:
            return 0, 0
        at = field + self.unsigned(field)
        return at + 4, self.unsigned(at)

    def number(self, table: int, index: int, form: str) -> int:
        field = self.field(table, index)
        return self.unpack(form, field) if field else 0

    def field(self, table: int, index: int) -> int:
        vtable = table - self.unpack("<i", table)
        if 4 + 2 * index >= self.unpack("<H", vtable):
            return 0
        offset = self.unpack("<H", vtable + 4 + 2 * index)
        return table + offset if offset else 0

    def unsigned(self, at: int) -> int:
        return self.unpack("<I", at)

    def unpack(self, form: str, at: int) -> int:
        if at < 0:  # struct counts negative offsets from the end
            raise struct.error("offset before the start")
        value: int = struct.unpack_from(form, self.data, at)[0]
        return value
