"""A frame on its way to the large model: what travels with its pixels. Pure."""

from __future__ import annotations

import struct

import msgspec

from vedette.errors import BadInputError
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Detection, Result

# Room behind the pixels of a slot for the packed case: 1,000 logits are 4 KB, 300 boxes about 30 KB.
CASE_BYTES = 96 << 10


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One escalation or audit.

    `result` is the local answer as it went out. `logits` are the classes' real logits, float32 little-endian
    (log probabilities where the model gives probabilities); empty for detections, which have `candidates`:
    those of `vision.evidence.Candidates`, best first, those of the answer among them. `setting` is the
    number of the GateSetting that judged. `urgent`: its camera never waits.
    """

    reason: Reason
    result: Result
    score: float
    uncertainty: float
    inclusion: float
    setting: int
    guarantee: Guarantee
    model_sha256: str
    logits: bytes = b""
    candidates: tuple[Detection, ...] = ()
    urgent: bool = False


_SIZE = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Case)


def pack_case(case: Case) -> bytes:
    """What lies behind a frame's pixels: the size, then the case.

    Raises:
        BadInputError: It has no room there.
    """
    packed = _encoder.encode(case)
    if len(packed) + _SIZE.size > CASE_BYTES:
        raise BadInputError(f"a case of {len(packed):,} bytes; {CASE_BYTES:,} is the room for one")
    return _SIZE.pack(len(packed)) + packed


def unpack_case(behind: memoryview) -> Case:
    """The case that lies behind a frame's pixels.

    Raises:
        BadInputError: There is none, or it is damaged.
    """
    if len(behind) < _SIZE.size:
        raise BadInputError("no room for a case behind the pixels")
    (size,) = _SIZE.unpack_from(behind)
    if size > len(behind) - _SIZE.size:
        raise BadInputError(f"a case of {size:,} bytes in {len(behind):,}")
    try:
        return _decoder.decode(behind[_SIZE.size : _SIZE.size + size])
    except msgspec.DecodeError as error:
        raise BadInputError(f"a damaged case: {error}") from error
