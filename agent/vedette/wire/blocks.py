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
BLOCK_EXPIRY_S = 30
# On top of a block: header, topic, properties and MQTT's own framing.
PACKET_OVERHEAD_BYTES = 512

STATUS_DATA, STATUS_NOT_FOUND, STATUS_CHANGED, STATUS_BUSY, STATUS_BAD_REQUEST = range(5)

_HEADER = struct.Struct("<BBHIQQQI")  # version, status, xfer length, request, offset, total, length, crc32


class BlockRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Send these blocks of a file of the repository.

    `xfer` names the transfer and `request` this asking; both come back with each block. `path` is relative
    to the repository: `metadata/3.root.json`, `blobs/<sha256>`. Block i is bytes [i*block_bytes,
    (i+1)*block_bytes) of the file. `of_bytes` is the size that earlier blocks told; 0 when not yet known.
    """

    xfer: str
    request: int
    path: str
    block_bytes: int
    blocks: tuple[int, ...]
    of_bytes: int = 0
    v: int = 1


class Block(msgspec.Struct, frozen=True):
    """One answer. `offset` and `total_bytes` are of the file; with a status other than data there is none.

    `data` is a view into the packet. After STATUS_BUSY the `retry_after_ms` is in `offset`.
    """

    status: int
    xfer: str
    request: int
    offset: int
    total_bytes: int
    data: memoryview


def encode_request(request: BlockRequest) -> bytes:
    """The payload of a request."""
    return msgspec.msgpack.encode(request)


def decode_request(payload: bytes) -> BlockRequest:
    """Read a request.

    Raises:
        BadInputError: It is none, or asks for more than anybody may.
    """
    if len(payload) > MAX_REQUEST_BYTES:
        raise BadInputError(f"a block request of {len(payload)} bytes; {MAX_REQUEST_BYTES} is the most")
    try:
        request = msgspec.msgpack.decode(payload, type=BlockRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"not a block request: {error}") from error
    if not MIN_BLOCK_BYTES <= request.block_bytes <= MAX_BLOCK_BYTES:
        raise BadInputError(f"blocks of {request.block_bytes} bytes; 512 to {MAX_BLOCK_BYTES} are served")
    if not 1 <= len(request.blocks) <= MAX_WINDOW or min(request.blocks) < 0:
        raise BadInputError(f"{len(request.blocks)} blocks in a request; 1 to {MAX_WINDOW} are served")
    if max(request.blocks) > 1 << 40 or len(request.xfer) > 64 or not 0 <= request.request < 1 << 32:
        raise BadInputError("a block request with numbers out of range")
    return request


def encode_data(
    *, status: int, xfer: str, request: int, offset: int = 0, total_bytes: int = 0, data: bytes = b""
) -> bytes:
    """The payload of one block, or of the word that there is none."""
    name = xfer.encode()
    header = _HEADER.pack(1, status, len(name), request, offset, total_bytes, len(data), zlib.crc32(data))
    return b"".join((header, name, data))


def decode_data(payload: bytes) -> Block:
    """Read a block and prove it whole.

    Raises:
        BadInputError: Cut, damaged, or of another version.
    """
    if len(payload) < _HEADER.size:
        raise BadInputError(f"a block of {len(payload)} bytes is none")
    version, status, name_bytes, request, offset, total_bytes, length, crc = _HEADER.unpack_from(payload)
    begin = _HEADER.size + name_bytes
    data = memoryview(payload)[begin:]
    beyond = status == STATUS_DATA and offset + length > total_bytes
    if version != 1 or len(data) != length or length > MAX_BLOCK_BYTES or beyond:
        raise BadInputError("a block that is cut, or of another version")
    if zlib.crc32(data) != crc:
        raise BadInputError("a block that was damaged on its way")
    try:
        xfer = payload[_HEADER.size : begin].decode()
    except UnicodeDecodeError as error:
        raise BadInputError("a block of a transfer without a name") from error
    return Block(status, xfer, request, offset, total_bytes, data)
