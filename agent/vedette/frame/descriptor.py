"""The fixed binary form of a frame's description inside the ring."""

from __future__ import annotations

import struct

from vedette.errors import FrameError
from vedette.wire.pixels import ColorMatrix, ColorRange, FrameFormat, PixelFormat, Plane

DESCRIPTOR_BYTES = 512
MAX_PLANES = 4

_PIXELS: tuple[PixelFormat, ...] = tuple(PixelFormat)
_MATRICES: tuple[ColorMatrix, ...] = tuple(ColorMatrix)
_RANGES: tuple[ColorRange, ...] = tuple(ColorRange)
# When captured and published, and the length of the file's name, 0 for frames that come from no file.
_STAMP = struct.Struct("<QQQ")
_CAPTURED = struct.Struct("<Q")
_FORMAT = struct.Struct("<IIBBBBI" + "QIII" * MAX_PLANES)
FORMAT_OFFSET = _STAMP.size
FORMAT_BYTES = _FORMAT.size
FILE_OFFSET = FORMAT_OFFSET + FORMAT_BYTES
MAX_FILE_BYTES = DESCRIPTOR_BYTES - FILE_OFFSET
_NO_PLANE = (0, 0, 0, 0)
CUT = "…".encode()
# In the byte of the orientation: the frame holds an input tensor, not a picture.
TENSOR_FLAG = 0x80


def encode_format(frame_format: FrameFormat) -> bytes:
    """Pack a format; done once per format, not per frame."""
    planes = [(p.offset_bytes, p.stride_bytes, p.rows, p.row_bytes) for p in frame_format.planes]
    planes += [_NO_PLANE] * (MAX_PLANES - len(planes))
    return _FORMAT.pack(
        frame_format.width,
        frame_format.height,
        _PIXELS.index(frame_format.pixel),
        _MATRICES.index(frame_format.matrix),
        _RANGES.index(frame_format.range),
        frame_format.orientation | (TENSOR_FLAG if frame_format.tensor else 0),
        len(frame_format.planes),
        *(value for plane in planes for value in plane),
    )


def decode_format(packed: bytes, slot_bytes: int) -> FrameFormat:
    """Unpack a format and prove that it stays inside a slot.

    Raises:
        FrameError: A value outside its range, or a plane that reaches over the slot's end.
    """
    values = _FORMAT.unpack(packed)
    width, height, pixel, matrix, color_range, turn, count = values[:7]
    orientation, tensor = turn & ~TENSOR_FLAG, bool(turn & TENSOR_FLAG)
    if (
        pixel >= len(_PIXELS)
        or matrix >= len(_MATRICES)
        or color_range >= len(_RANGES)
        or not 1 <= orientation <= 8
        or not 1 <= count <= MAX_PLANES
        or width < 1
        or height < 1
    ):
        raise FrameError("frame descriptor holds values outside their range", kind="descriptor")
    planes = tuple(Plane(*values[7 + 4 * i : 11 + 4 * i]) for i in range(count))
    for plane in planes:
        end = plane.offset_bytes + plane.stride_bytes * plane.rows
        if plane.row_bytes > plane.stride_bytes or plane.rows < 1 or end > slot_bytes:
            raise FrameError(
                f"frame descriptor points outside its slot ({end} of {slot_bytes} bytes)", kind="descriptor"
            )
    return FrameFormat(
        width,
        height,
        _PIXELS[pixel],
        planes,
        _MATRICES[matrix],
        _RANGES[color_range],
        orientation,
        tensor=tensor,
    )


def write_stamp(target: memoryview, captured_ns: int, published_ns: int, file: str = "") -> None:
    """Put the two timestamps (CLOCK_MONOTONIC) and the file's name into a slot's descriptor.

    Of a name that is too long the end is kept, which tells files apart better than their folders do.
    """
    if not file:
        _STAMP.pack_into(target, 0, captured_ns, published_ns, 0)
        return
    name = file.encode()
    if len(name) > MAX_FILE_BYTES:
        tail = name[-(MAX_FILE_BYTES - len(CUT)) :].decode("utf-8", "ignore")
        name = CUT + tail.encode()
    target[FILE_OFFSET : FILE_OFFSET + len(name)] = name
    _STAMP.pack_into(target, 0, captured_ns, published_ns, len(name))


def read_captured_ns(source: memoryview) -> int:
    """When the frame of a slot's descriptor was captured."""
    captured_ns: int = _CAPTURED.unpack_from(source, 0)[0]
    return captured_ns


def read_stamp(source: memoryview) -> tuple[int, int, str]:
    """(captured_ns, published_ns, file) of a slot's descriptor; the file is empty where there is none."""
    captured_ns, published_ns, name_bytes = _STAMP.unpack_from(source, 0)
    if not name_bytes:
        return captured_ns, published_ns, ""
    name = bytes(source[FILE_OFFSET : FILE_OFFSET + min(name_bytes, MAX_FILE_BYTES)])
    return captured_ns, published_ns, name.decode("utf-8", "replace")
