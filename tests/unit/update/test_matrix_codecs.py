"""Fault matrix: fuzz of every codec at 64 sizes, in a child with little memory: typed errors, right files.

As a program, `python -m tests.unit.update.test_matrix_codecs FOLDER MIB`: decodes what lies there, tells.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from tests.unit.codecs.limited import peak_bytes

from vedette.errors import BadInputError
from vedette.update.codecs.decode import FileDecoder
from vedette.wire.release import Codec
from vedette_fleet.delta.encode import encode_delta, encode_full

REPOSITORY = Path(__file__).parents[3]
# None, single bytes, around powers of two, odd ones between, and some beyond a block of a decoder.
SIZES = tuple(
    sorted(
        {0, 5, 11, 13, 23, 49, 100, 333, 999, 3001, 10_007, 50_021, 100_003, 200_003, 262_147}
        | {(1 << power) + by for power in range(18) for by in (-1, 0, 1)}
    )
)
MUTANTS = 6
DELTAS = (Codec.BSDIFF4, Codec.TENSOR)
# No checksum inside: what a mutant of these makes, the hash of the output finds.
BLIND = (Codec.RAW, Codec.ZSTD, Codec.BSDIFF4)
ALLOWED_MIB = 48  # of addresses, in which arenas and stacks count too
ALLOWED_GROWTH_BYTES = 16 << 20
TIMEOUT_S = 90


class Try(msgspec.Struct):
    """One blob to decode; `made` and `refused` say which of the two may come of it."""

    name: str
    codec: Codec
    size_bytes: int
    base: str
    new: str
    made: bool
    refused: bool


class Pair(NamedTuple):
    """A file and its successor."""

    old: bytes
    new: bytes


def pair_of(size_bytes: int, chance: np.random.Generator) -> Pair:
    """A file of that size with a few changed bytes, a piece taken out and another put in."""
    old = chance.integers(0, 256, size_bytes, np.uint8)
    new = old.copy()
    changed = chance.random(size_bytes) < 0.03
    new[changed] += np.uint8(1)
    at = int(chance.integers(0, size_bytes + 1))
    moved = np.concatenate([new[:at], chance.integers(0, 256, 7, np.uint8), new[at + 5 :]])
    return Pair(old.tobytes(), moved[: max(size_bytes, 1)].tobytes())


def blobs_of(pair: Pair) -> list[tuple[Codec, bytes, str]]:
    """Right blobs, and which file each makes; zstd gets zeros, since random bytes are shipped as they are."""
    found = [(Codec.RAW, pair.new, "new")]
    found += [(*encode_delta(pair.old, pair.new, codec), "new") for codec in ("bsdiff4", "tensor")]
    packed = encode_full(bytes(len(pair.old)))
    return [*found, (*packed, "zeros")] if packed[0] is Codec.ZSTD else found


def tries_of(folder: Path, size_bytes: int) -> list[Try]:
    """Right blobs of each codec, wrong sizes, a wrong base, and mutants; all files are written."""
    chance = random.Random(size_bytes)  # noqa: S311 - mutants are no secrets
    pair = pair_of(size_bytes, np.random.default_rng(size_bytes))
    contents = {
        "old": pair.old,
        "new": pair.new,
        "other": bytes(reversed(pair.old)),
        "zeros": bytes(size_bytes),
    }
    for word, content in contents.items():
        (folder / f"{size_bytes}.{word}").write_bytes(content)
    found: list[Try] = []
    for codec, blob, makes in blobs_of(pair):
        stem, size = f"{size_bytes}.{codec.value}", len(contents[makes])
        blind = codec in BLIND
        old, new = f"{size_bytes}.old", f"{size_bytes}.{makes}"
        unsure = "" if blind else new
        (folder / f"{stem}.right").write_bytes(blob)
        found.append(Try(f"{stem}.right", codec, size, old, new, made=True, refused=False))
        found += [
            Try(f"{stem}.right", codec, wrong, old, new, made=False, refused=True)
            for wrong in (size - 1, size + 1)
            if wrong >= 0
        ]
        if size > 100 and codec in DELTAS:
            other = f"{size_bytes}.other"
            found.append(Try(f"{stem}.right", codec, size, other, "", made=blind, refused=True))
        for number in range(MUTANTS if blob else 0):
            name = f"{stem}.{number}"
            (folder / name).write_bytes(mutant_of(blob, chance))
            found.append(Try(name, codec, size, old, unsure, made=True, refused=True))
    return found


def mutant_of(blob: bytes, chance: random.Random) -> bytes:
    """A few bytes changed; of every third the end is gone as well."""
    mutant = bytearray(blob)
    for _ in range(chance.randint(1, 4)):
        mutant[chance.randrange(len(mutant))] ^= chance.randint(1, 255)
    return bytes(mutant[: chance.randint(0, len(mutant))] if chance.random() < 1 / 3 else mutant)


def verdict_of(folder: Path, order: Try) -> str:
    """Empty when what came of a try is one of the things that may."""
    out = folder / "out"
    try:
        FileDecoder().decode(
            order.codec, folder / order.name, folder / order.base, out, size_bytes=order.size_bytes
        )
    except BadInputError as error:
        return "" if order.refused and error.cure else f"refused: {error}"
    except BaseException as error:  # noqa: BLE001 - the test wants to see whatever it was
        return repr(error)
    if not order.made:
        return "made, though it cannot be right"
    if out.stat().st_size != order.size_bytes:
        return "made with another size than was signed"
    right = not order.new or out.read_bytes() == (folder / order.new).read_bytes()
    return "" if right else "made wrongly, unnoticed"


def main(folder: Path, allowed_bytes: int) -> None:
    """Decode everything under a limit of memory, and print what was wrong."""
    orders = msgspec.json.decode((folder / "orders.json").read_bytes(), type=list[Try])
    warm = [order for order in orders if order.name.endswith("right")]
    for codec in Codec:  # what decoding imports is no memory of a blob
        verdict_of(folder, next(order for order in warm if order.codec is codec))
    idle_bytes = peak_bytes()
    now_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now_bytes + allowed_bytes,) * 2)
    wrong = {order.name: said for order in orders if (said := verdict_of(folder, order))}
    print(json.dumps({"wrong": wrong, "grown_bytes": peak_bytes() - idle_bytes}))  # noqa: T201 - the answer


def test_fuzz_of_all_codecs_at_64_sizes_in_bounded_memory(tmp_path: Path) -> None:
    """Fault matrix: decompression bomb, negative/overflow op offsets: bounded memory, typed error."""
    assert len(SIZES) == 64
    orders = [order for size in SIZES for order in tries_of(tmp_path, size)]
    assert {order.codec for order in orders} == set(Codec)
    assert len(orders) > 64 * 25
    (tmp_path / "orders.json").write_bytes(msgspec.json.encode(orders))
    command = [sys.executable, "-m", "tests.unit.update.test_matrix_codecs", str(tmp_path), str(ALLOWED_MIB)]
    answer = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["wrong"] == {}
    assert said["grown_bytes"] < ALLOWED_GROWTH_BYTES


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) << 20)
