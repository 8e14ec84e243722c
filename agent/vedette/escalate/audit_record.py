"""What a book of audits is made of: records, each with its length and checksum. Pure.

A file is `VAUD` and a format byte, then for each record u32 length | u32 CRC-32 | MessagePack, little-endian.
What follows the last whole record is a write that a power cut ended.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgspec

from vedette.gate.calibrate import Calibration

MAGIC = b"VAUD\x01"
MAX_RECORD_BYTES = 1 << 20
_HEAD = struct.Struct("<II")


class AuditSample(msgspec.Struct, frozen=True, tag="s", array_like=True):
    """One audited frame.

    Classes: `logits` float32 little-endian, `local` and `cloud` class indices, `cloud` -1 where the large
    model named no class of ours. Boxes: `candidates` with score, class and whether the large model has it
    too, `loss` 1 - F1 of the answer. `kept`: the gate trusted the local answer.
    """

    utc_s: float
    scene: str
    score: float
    inclusion: float
    kept: bool
    agreed: bool
    local: int = -1
    cloud: int = -1
    logits: bytes = b""
    candidates: tuple[tuple[float, int, bool], ...] = ()
    loss: float = 0.0


class Looked(msgspec.Struct, frozen=True, tag="l", array_like=True):
    """The `number`th calibration, which rests on `scenes` of the samples before."""

    number: int
    scenes: int
    calibration: Calibration


class Drifted(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """The world changed: samples before say nothing of it any more; `looks` calibrations were made so far."""

    utc_s: float
    detector: str
    looks: int = 0


Record = AuditSample | Looked | Drifted


class Parsed(NamedTuple):
    """Records of a file, how many bytes of it are whole, and what is wrong with the rest."""

    records: list[Record]
    whole_bytes: int
    damage: str


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(AuditSample | Looked | Drifted)


def pack_record(record: Record) -> bytes:
    """One record as it lies in a file."""
    payload = _encoder.encode(record)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def parse_records(content: bytes) -> Parsed:
    """All whole records from the beginning."""
    if not content.startswith(MAGIC):
        return Parsed([], 0, "it is no book of audits" if content else "")
    at = len(MAGIC)
    records: list[Record] = []
    while at < len(content):
        if len(content) - at < _HEAD.size:
            return Parsed(records, at, "its last record is cut short")
        size, checksum = _HEAD.unpack_from(content, at)
        payload = content[at + _HEAD.size : at + _HEAD.size + size]
        if size > MAX_RECORD_BYTES or len(payload) < size or zlib.crc32(payload) != checksum:
            return Parsed(records, at, "a record is cut short or damaged")
        try:
            records.append(_decoder.decode(payload))
        except (msgspec.DecodeError, ValueError) as error:
            return Parsed(records, at, f"a record is not understood: {error}")
        at += _HEAD.size + size
    return Parsed(records, at, "")
