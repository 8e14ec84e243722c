"""Files in blocks over MQTT: what a device asks, what a server answers. Pure, MessagePack.

The receiver drives: it asks for a window of blocks under a number of its own, and asks again for those that
did not come in time. Nobody is trusted with content: a transfer is bound to a sha256 (blobs) or verified by
TUF (metadata); the CRC only tells a damaged block from a good one before it is written.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from vedette.errors import BadInputError

BLOCK_TYPE = "application/vnd.vedette.block"
REQUEST_TYPE = "application/vnd.msgpack"
# A block and its topic and properties must fit a broker's packet; 128 KiB is what ota.md measured as enough.
MAX_BLOCK_BYTES = 128 << 10
MIN_BLOCK_BYTES = 512
MAX_WINDOW = 64
MAX_REQUEST_BYTES = 4096
MAX_PATH_BYTES = 512
BLOCK_EXPIRY_S = 30
# On top of a block: header, topic, properties and MQTT's own framing.
PACKET_OVERHEAD_BYTES = 512

STATUS_DATA, STATUS_NOT_FOUND, STATUS_CHANGED, STATUS_BUSY, STATUS_BAD_REQUEST = range(5)

_VERSION = 1
_MAX_XFER_BYTES = 64
# version, status, bytes of the transfer's name, request, offset, total, tag, bytes of data; then a CRC-32 of
# this, the name and the data
_HEADER = struct.Struct("<BBHIQQQI")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _HEADER.size + _CRC.size


class BlockRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Send these blocks of a file of the repository.

    `xfer` names the transfer and `request` this asking; both come back with each block. `path` is relative
    to the repository: `metadata/3.root.json`, `blobs/<sha256>`. Block i is bytes [i*block_bytes,
    (i+1)*block_bytes) of the file. `of_bytes` and `of_tag` are the size and tag that earlier blocks told;
    both 0 when not yet known.
    """

    xfer: str
    request: int
    path: str
    block_bytes: int
    blocks: tuple[int, ...]
    of_bytes: int = 0
    of_tag: int = 0
    v: int = _VERSION


class Block(msgspec.Struct, frozen=True):
    """One answer. `offset` and `total_bytes` are of the file; with a status other than data there is none.

    `tag` tells one content of a file from another, the same on every server; 0 for blobs, whose name does.
    Of a block beyond the end comes one without data, whose offset is the end. `data` is a view into the
    packet. After STATUS_BUSY the `retry_after_ms` is in `offset`.
    """

    status: int
    xfer: str
    request: int
    offset: int
    total_bytes: int
    tag: int
    data: memoryview


def encode_request(request: BlockRequest) -> bytes:
    """The payload of a request."""
    return msgspec.msgpack.encode(request)


def decode_request(payload: bytes) -> BlockRequest:
    """Read a request that can be answered; whether it asks for too much, `request_fault` says.

    Raises:
        BadInputError: It is none, or it would not be clear what to answer.
    """
    if len(payload) > MAX_REQUEST_BYTES:
        raise BadInputError(f"a block request of {len(payload)} bytes; {MAX_REQUEST_BYTES} is the most")
    try:
        request = msgspec.msgpack.decode(payload, type=BlockRequest)
        name_bytes = len(request.xfer.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInputError(f"not a block request: {error}") from error
    if not 1 <= name_bytes <= _MAX_XFER_BYTES or not 0 <= request.request < 1 << 32:
        raise BadInputError("a block request without a name or number that an answer could carry")
    return request


def request_fault(request: BlockRequest) -> str | None:
    """What is wrong with a request, to be answered with STATUS_BAD_REQUEST; None for a good one."""
    if request.v != _VERSION:
        return f"version {request.v} of block requests is not known here"
    if not MIN_BLOCK_BYTES <= request.block_bytes <= MAX_BLOCK_BYTES:
        return f"blocks of {request.block_bytes} bytes; {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES} are served"
    if not 1 <= len(request.blocks) <= MAX_WINDOW:
        return f"{len(request.blocks)} blocks in a request; 1 to {MAX_WINDOW} are served"
    numbers = (*request.blocks, request.of_bytes, request.of_tag)
    if min(numbers) < 0 or max(request.blocks) > 1 << 40:
        return "a number that is out of range"
    if len(request.path) > MAX_PATH_BYTES:
        return f"a path of {len(request.path)} characters; {MAX_PATH_BYTES} is the most"
    return None


def encode_data(
    *,
    status: int,
    xfer: str,
    request: int,
    offset: int = 0,
    total_bytes: int = 0,
    tag: int = 0,
    data: bytes = b"",
) -> bytes:
    """The payload of one block, or of the word that there is none."""
    name = xfer.encode()
    head = _HEADER.pack(_VERSION, status, len(name), request, offset, total_bytes, tag, len(data))
    return b"".join((head, _CRC.pack(_crc(head, name, data)), name, data))


def decode_data(payload: bytes) -> Block:
    """Read a block and prove it whole.

    Raises:
        BadInputError: Cut, damaged, or of another version.
    """
    if len(payload) < _HEAD_BYTES:
        raise BadInputError(f"a block of {len(payload)} bytes is none")
    version, status, name_bytes, request, offset, total_bytes, tag, length = _HEADER.unpack_from(payload)
    (crc,) = _CRC.unpack_from(payload, _HEADER.size)
    view = memoryview(payload)
    name, data = view[_HEAD_BYTES : _HEAD_BYTES + name_bytes], view[_HEAD_BYTES + name_bytes :]
    if version != _VERSION or len(name) != name_bytes or len(data) != length or length > MAX_BLOCK_BYTES:
        raise BadInputError("a block that is cut, or of another version")
    if _crc(view[: _HEADER.size], name, data) != crc:
        raise BadInputError("a block that was damaged on its way")
    if status == STATUS_DATA and offset + length > total_bytes:
        raise BadInputError("a block that reaches beyond the end of its file")
    return Block(status, _name(name), request, offset, total_bytes, tag, data)


def transfer_of(payload: bytes) -> str | None:
    """Which transfer a block says it belongs to, without proving anything; None when it says nothing."""
    if len(payload) < _HEAD_BYTES or payload[0] != _VERSION:
        return None
    name_bytes = int.from_bytes(payload[2:4], "little")
    try:
        return payload[_HEAD_BYTES : _HEAD_BYTES + name_bytes].decode()
    except UnicodeDecodeError:
        return None


def _name(name: memoryview) -> str:
    try:
        return bytes(name).decode()
    except UnicodeDecodeError as error:
        raise BadInputError("a block of a transfer without a name") from error


def _crc(head: bytes | memoryview, name: bytes | memoryview, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(name, zlib.crc32(head)))
