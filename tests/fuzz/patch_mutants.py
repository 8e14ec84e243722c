"""Hostile patches, from good ones: damage to bytes, and lies told in the format's own words. Pure.

Damage alone stops at the first checksum. So most mutants of a tensor delta get their checksums made right
again, with fields of their plan turned into numbers that break arithmetic; most mutants of a bsdiff4 patch
get other steps, packed anew. Whoever can do that can also make a patch of any other file, so only the signed
hash of the output stands against it; against damage, a tensor delta's own checksums do.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.delta.bsdiff import offtin, offtout
from vedette.delta.elements import ELEMENTS
from vedette.delta.layout import Frame, Growth, Operation, Plan, Predictor
from vedette.delta.plan import HEADER, build_plan, parse_plan, plan_size_bytes
from vedette.update.codecs.bsdiff4_file import HEADER_BYTES
from vedette_fleet.delta.code_frame import pack

if TYPE_CHECKING:
    from random import Random

MAX_PASTED_BYTES = 400
NUMBERS = (0, 1, 2, 7, 8, 15, 16, 127, 128, 255, 256, 4095, 65535, 1 << 16, 1 << 20, 1 << 21, 1 << 30)
LARGE = ((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62) - 1)


class Mutant(NamedTuple):
    """A hostile patch; `lies` where its checksums were made right again, or where its format has none."""

    blob: bytes
    lies: bool


def damaged_bytes(rng: Random, blob: bytes, others: list[bytes]) -> bytes:
    """Bytes overwritten, cut out, doubled, put in, or taken over from another blob."""
    made = bytearray(blob)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        size = rng.choice((1, 2, 4, 8, rng.randint(1, MAX_PASTED_BYTES)))
        match rng.randrange(5):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del made[at : at + size]
            case 2:
                made[at:at] = made[at : at + size]
            case 3:
                made[at : at + size] = rng.randbytes(size)
            case _:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                made[at : at + size] = other[start : start + size]
    return bytes(made)


def tensor_mutant(rng: Random, blob: bytes, others: list[bytes]) -> Mutant:
    """A tensor delta with other bytes, or with another plan and right checksums."""
    if rng.random() < 0.3:
        return Mutant(damaged_bytes(rng, blob, others), lies=False)
    at = plan_size_bytes(blob)
    plan = parse_plan(blob[:at])
    payloads = []
    for frame in plan.frames:
        payloads.append(blob[at : at + frame.size_bytes])
        at += frame.size_bytes
    chosen = rng.randrange(len(payloads))
    if rng.random() < 0.6:
        payloads[chosen] = damaged_bytes(rng, payloads[chosen], others)
    frames = []
    for frame, payload in zip(plan.frames, payloads, strict=True):
        operations = tuple(_other_operation(rng, op) if rng.random() < 0.2 else op for op in frame.operations)
        frames.append(Frame(operations, len(payload), zlib.crc32(payload), frame.output_crc))
    context_map = plan.context_map
    if plan.tables and rng.random() < 0.2:
        context_map = bytes(rng.randrange(len(plan.tables) + 1) for _ in context_map)
    head = _sealed(rng, Plan(plan.old_bytes, plan.new_bytes, tuple(frames), plan.tables, context_map))
    return Mutant(head + b"".join(payloads), lies=True)


def bsdiff4_mutant(rng: Random, blob: bytes, others: list[bytes]) -> Mutant:
    """A BSDIFF40 file with other bytes, or with other steps."""
    if rng.random() < 0.3:
        return Mutant(damaged_bytes(rng, blob, others), lies=True)
    control_bytes, diff_bytes = offtin(blob[8:16]), offtin(blob[16:24])
    ends = (HEADER_BYTES, HEADER_BYTES + control_bytes, HEADER_BYTES + control_bytes + diff_bytes, len(blob))
    control, diff, extra = (bz2.decompress(blob[start:end]) for start, end in pairwise(ends))
    steps = [offtin(control[at : at + 8]) for at in range(0, len(control), 8)]
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(steps) + 1)
        steps[place : place + rng.randrange(2)] = [_number(rng, steps[place % len(steps)])]
    if rng.random() < 0.1:
        steps = [0] * rng.randint(3, 30_000) + steps
    if rng.random() < 0.3:
        diff = damaged_bytes(rng, diff, others) if rng.random() < 0.5 else bytes(1 << rng.randint(1, 22))
    streams = [bz2.compress(each) for each in (b"".join(map(offtout, steps)), diff, extra)]
    head = blob[:8] + offtout(len(streams[0])) + offtout(len(streams[1])) + blob[24:32]
    return Mutant(head + b"".join(streams), lies=True)


def zstd_mutant(rng: Random, blob: bytes, others: list[bytes]) -> Mutant:
    """A zstd frame with other bytes, the first ones, which say the window and the sizes, as a rule."""
    if rng.random() < 0.5:
        return Mutant(damaged_bytes(rng, blob[:24], others) + blob[24:], lies=True)
    return Mutant(damaged_bytes(rng, blob, others), lies=True)


MUTANTS = {"tensor": tensor_mutant, "bsdiff4": bsdiff4_mutant, "zstd": zstd_mutant}


def _number(rng: Random, now: int) -> int:
    """Something near, something round, or something far too large."""
    value = rng.choice((now + rng.randint(-3, 3), rng.choice(NUMBERS), rng.choice(LARGE), now * 2))
    return -value if rng.random() < 0.15 else value


def _other_operation(rng: Random, op: Operation) -> Operation:
    name = rng.choice([each.name for each in fields(Operation)])
    if name == "element":
        return replace(op, element=rng.choice(ELEMENTS))
    if name == "predictor":
        return replace(op, predictor=rng.choice(list(Predictor)))
    if name == "growth":
        return replace(op, growth=Growth(*(_number(rng, op.columns) for _ in range(3))))
    now = getattr(op, name)
    other: dict[str, Any] = {name: not now if isinstance(now, bool) else _number(rng, now)}
    return replace(op, **other)


def _sealed(rng: Random, plan: Plan) -> bytes:
    """A plan's bytes with right checksums; sometimes one of its packed bytes differs."""
    try:
        head = build_plan(plan, pack)
    except (struct.error, ValueError, OverflowError):  # no bytes say such a thing
        return build_plan(replace(plan, frames=plan.frames[:1]), pack)
    if rng.random() < 0.8:
        return head
    packed = bytearray(head[HEADER.size :])
    packed[rng.randrange(len(packed))] = rng.randrange(256)
    values = HEADER.unpack_from(head)[:-1]
    check = zlib.crc32(packed, zlib.crc32(HEADER.pack(*values, 0)))
    return HEADER.pack(*values, check) + packed
