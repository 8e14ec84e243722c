"""Requests and blocks on the wire: what was said is what is read, and nothing else is taken for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import BadInputError
from vedette.wire.blocks import (
    MAX_BLOCK_BYTES,
    MAX_REQUEST_BYTES,
    MAX_WINDOW,
    PACKET_OVERHEAD_BYTES,
    STATUS_DATA,
    BlockRequest,
    decode_data,
    decode_request,
    encode_data,
    encode_request,
    request_fault,
    transfer_of,
)

U64 = st.integers(0, (1 << 64) - 1)
NAMES = st.text(min_size=1, max_size=16)
REQUESTS = st.builds(
    BlockRequest,
    xfer=NAMES,
    request=st.integers(0, (1 << 32) - 1),
    path=st.text(max_size=200),
    block_bytes=st.integers(512, MAX_BLOCK_BYTES),
    blocks=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=MAX_WINDOW).map(tuple),
    of_bytes=st.integers(0, (1 << 63) - 1),
    of_tag=U64,
)
FIELDS: dict[str, object] = {"xfer": "x", "request": 1, "path": "a", "block_bytes": 512, "blocks": [0]}
GOOD = BlockRequest("x", 1, "blobs/a", 4096, (0, 1))


@given(REQUESTS)
def test_a_request_comes_through_and_nothing_is_wrong_with_it(request: BlockRequest) -> None:
    assert decode_request(encode_request(request)) == request
    assert request_fault(request) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(payload: bytes) -> None:
    try:
        request = decode_request(payload)
    except BadInputError:
        return
    request_fault(request)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"\x81\xa4xfer\xc0",
        b"\x91" * 4000,
        bytes(MAX_REQUEST_BYTES + 1),
        msgspec.msgpack.encode({**FIELDS, "xfer": "x" * 65}),
        msgspec.msgpack.encode({**FIELDS, "xfer": ""}),
        msgspec.msgpack.encode({**FIELDS, "request": -1}),
        msgspec.msgpack.encode({**FIELDS, "blocks": ["0"]}),
        msgspec.msgpack.encode(FIELDS).replace(b"\xa4xfer\xa1x", b"\xa4xfer\xa1\xff"),
    ],
)
def test_what_cannot_be_answered_is_refused(payload: bytes) -> None:
    with pytest.raises(BadInputError):
        decode_request(payload)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"v": 2}, "version 2"),
        ({"block_bytes": 511}, "blocks of 511 bytes"),
        ({"block_bytes": MAX_BLOCK_BYTES + 1}, "blocks of"),
        ({"blocks": ()}, "0 blocks"),
        ({"blocks": tuple(range(MAX_WINDOW + 1))}, "65 blocks"),
        ({"blocks": (0, -1)}, "out of range"),
        ({"blocks": ((1 << 40) + 1,)}, "out of range"),
        ({"of_bytes": -1}, "out of range"),
        ({"of_tag": -1}, "out of range"),
        ({"path": "a" * 513}, "513 characters"),
    ],
)
def test_what_asks_for_too_much_is_told_so(change: dict[str, object], fault: str) -> None:
    assert fault in str(request_fault(msgspec.structs.replace(GOOD, **change)))


@given(
    status=st.integers(0, 255),
    xfer=NAMES,
    request=st.integers(0, (1 << 32) - 1),
    offset=st.integers(0, 1 << 62),
    beyond=st.integers(0, 1 << 62),
    tag=U64,
    data=st.binary(max_size=600),
)
def test_a_block_comes_through(
    status: int, xfer: str, request: int, offset: int, *, beyond: int, tag: int, data: bytes
) -> None:
    total_bytes = offset + len(data) + beyond
    payload = encode_data(
        status=status, xfer=xfer, request=request, offset=offset, total_bytes=total_bytes, tag=tag, data=data
    )
    block = decode_data(payload)
    assert (block.status, block.xfer, block.request, block.tag) == (status, xfer, request, tag)
    assert (block.offset, block.total_bytes, bytes(block.data)) == (offset, total_bytes, data)
    assert transfer_of(payload) == xfer


@given(data=st.binary(max_size=100), place=st.integers(0, 1 << 20), mask=st.integers(1, 255))
def test_one_byte_that_was_damaged_anywhere_is_noticed(data: bytes, place: int, mask: int) -> None:
    """The header, too: good bytes in the wrong place are damage."""
    payload = bytearray(
        encode_data(status=0, xfer="x", request=7, offset=0, total_bytes=len(data), data=data)
    )
    payload[place % len(payload)] ^= mask
    with pytest.raises(BadInputError):
        decode_data(bytes(payload))


@given(data=st.binary(max_size=100), keep=st.floats(0, 1, exclude_max=True))
def test_a_block_that_was_cut_is_noticed(data: bytes, keep: float) -> None:
    payload = encode_data(status=0, xfer="x", request=7, total_bytes=len(data), data=data)
    with pytest.raises(BadInputError):
        decode_data(payload[: int(keep * len(payload))])
    with pytest.raises(BadInputError):
        decode_data(payload + b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_block_or_refused(payload: bytes) -> None:
    transfer_of(payload)
    with pytest.raises(BadInputError):
        decode_data(payload)


def test_a_block_reaches_not_beyond_the_end_of_its_file() -> None:
    payload = encode_data(status=STATUS_DATA, xfer="x", request=1, offset=1, total_bytes=2, data=b"ab")
    with pytest.raises(BadInputError, match="beyond the end"):
        decode_data(payload)


def test_the_overhead_covers_what_is_not_data() -> None:
    payload = encode_data(
        status=0, xfer="x" * 64, request=1, total_bytes=MAX_BLOCK_BYTES, data=bytes(MAX_BLOCK_BYTES)
    )
    longest_topic = len("vedette/1/") + 64 + 1 + 64 + len("/blk/dat")
    assert len(payload) - MAX_BLOCK_BYTES + longest_topic + 100 < PACKET_OVERHEAD_BYTES
