"""Throws hostile patches at the device's decoders: `python -m tests.fuzz.decode_patches --inputs 1000000`.

A decoder may make the right file, refuse with its typed error, or, where checksums lie or the format has
none, make another file of the right size, which the signed hash of the output tells. Anything else is a
violation: another exception, a wrong file out of a tensor delta that is merely damaged, more memory or time
than stated, the death of the child. Inputs that violate are kept; seed and number make one again. Exit 1 on
violations.
"""

from __future__ import annotations

import argparse
import random
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from backports import zstd
from tests.fuzz.patch_mutants import MUTANTS, Mutant
from tests.unit.codecs import pairs

from vedette_fleet.delta.encode import encode_delta

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

REPOSITORY = Path(__file__).parents[2]
CHILD = "tests.fuzz.decode_child"
KEPT = REPOSITORY / "build" / "fuzz"
ALLOWED_BYTES = 48 << 20  # address space, in which arenas and stacks count too
RESIDENT_BAR_BYTES = 16 << 20
INPUT_BAR_S = 5.0  # processor time; a right patch of this size takes a few milliseconds
ANSWER_TIMEOUT_S = 60.0
CHILD_INPUTS = 20_000
STORIES = ("fine-tune int8", "fine-tune float16", "pruned", "low rank", "class added", "rescaled channels")
ROOMY, ROOM_BYTES, ROOMY_SHARE = "fine-tune int8", 1 << 20, 0.02
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a private folder is made in it; a disk would sync each output


@dataclass(frozen=True)
class Seed:
    """A good patch, and the files that it is between."""

    name: str
    old: bytes
    new: bytes
    blob: bytes


@cache
def seeds(codec: str) -> list[Seed]:
    """Good patches of a codec; the last one leaves room for claims of more memory."""
    found = []
    for number, story in enumerate((*STORIES, ROOMY)):
        old, new = pairs.STORIES[story]
        if number == len(STORIES):
            old, new = old.ljust(ROOM_BYTES, b"\0"), new.ljust(ROOM_BYTES, b"\0")
        blob = zstd.compress(new) if codec == "zstd" else encode_delta(old, new, codec)[1]
        found.append(Seed(f"base{number}", old, new, blob))
    return found


def mutant(codec: str, seed: int, number: int) -> tuple[Seed, Mutant]:
    """A hostile patch and the one it comes from; the same for the same numbers."""
    rng = random.Random(f"{codec}/{seed}/{number}")  # noqa: S311 - mutants are no secrets
    good = seeds(codec)
    chosen = good[-1] if rng.random() < ROOMY_SHARE else rng.choice(good[:-1])
    return chosen, MUTANTS[codec](rng, chosen.blob, [each.blob for each in good[:-1]])


@dataclass
class Findings:
    """What came of all inputs of a codec."""

    verdicts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    grown_bytes: int = 0
    slowest_s: float = 0.0

    def line(self, codec: str) -> str:
        """For people."""
        counts = ", ".join(f"{times} {said}" for said, times in sorted(self.verdicts.items()))
        return (
            f"{codec}: {counts}; most memory over idle {self.grown_bytes / 2**20:.1f} MiB, "
            f"slowest {self.slowest_s:.2f} s; {len(self.violations)} violations"
        )


class Child:
    """A decoder that may die."""

    def __init__(self, codec: str) -> None:
        self._codec = codec
        parent = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-", dir=parent)
        for each in seeds(codec):
            (Path(self._folder.name) / each.name).write_bytes(each.old)
            (Path(self._folder.name) / f"{each.name}.new").write_bytes(each.new)
        warm = len(STORIES)
        self._child = subprocess.Popen(
            [sys.executable, "-m", CHILD, self._folder.name, str(ALLOWED_BYTES), str(warm)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for each in seeds(codec)[:warm]:
            said = self.answer(each, each.blob)
            if said[2] != "right":
                raise RuntimeError(f"the child does not decode a good patch: {said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate(timeout=ANSWER_TIMEOUT_S)
        self._folder.cleanup()

    def answer(self, seed: Seed, blob: bytes) -> tuple[float, int, str]:
        """(processor time in seconds, bytes over idle so far, verdict)."""
        given, said = self._child.stdin, self._child.stdout
        assert given is not None
        assert said is not None
        try:
            given.write(f"{self._codec} {seed.name} {len(seed.new)} {len(blob)}\n".encode() + blob)
            given.flush()
        except BrokenPipeError:
            return 0.0, 0, "the child died"
        with selectors.DefaultSelector() as selector:
            selector.register(said, selectors.EVENT_READ)
            line = said.readline().decode() if selector.select(ANSWER_TIMEOUT_S) else ""
        if not line.endswith("\n"):
            return 0.0, 0, "no answer: the child hangs or died"
        spent, grown, verdict = line.rstrip("\n").split(" ", 2)
        return float(spent), int(grown), verdict


def violation(spent_s: float, grown_bytes: int, said: str, *, lies: bool) -> str | None:
    """What is wrong with an answer."""
    if spent_s > INPUT_BAR_S:
        return f"{said} after {spent_s} s"
    if grown_bytes > RESIDENT_BAR_BYTES:
        return f"{said} with {grown_bytes} bytes above idle"
    allowed = said in {"refused", "right"} or (said == "another file" and lies)
    return None if allowed else said


def fuzz(codec: str, seed: int, first: int, inputs: int) -> Findings:
    """Inputs `first` to `first + inputs`; a child that died or grew too much is replaced."""
    findings = Findings()
    number, end = first, first + inputs
    while number < end:
        with Child(codec) as child:
            for number in range(number, min(end, number + CHILD_INPUTS)):  # noqa: B020 - goes on
                origin, hostile = mutant(codec, seed, number)
                spent_s, grown_bytes, said = child.answer(origin, hostile.blob)
                findings.grown_bytes = max(findings.grown_bytes, grown_bytes)
                findings.slowest_s = max(findings.slowest_s, spent_s)
                wrong = violation(spent_s, grown_bytes, said, lies=hostile.lies)
                if wrong is None:
                    findings.verdicts[said] += 1
                    continue
                KEPT.mkdir(parents=True, exist_ok=True)
                (KEPT / f"{codec}-{seed}-{number}").write_bytes(hostile.blob)
                findings.violations.append(f"{codec}, seed {seed}, input {number}: {wrong}")
                break
        number += 1
    return findings


def main() -> int:
    """Fuzz every codec."""
    parser = argparse.ArgumentParser(description="hostile patches against the device's decoders")
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs a codec (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--codec", choices=sorted(MUTANTS), action="append", help="only this one; repeatable")
    arguments = parser.parse_args()
    failed = []
    for codec in arguments.codec or sorted(MUTANTS):
        findings = fuzz(codec, arguments.seed, arguments.first, arguments.inputs)
        print(findings.line(codec), flush=True)  # noqa: T201 - the answer
        failed += findings.violations
    for each in failed:
        print(each)  # noqa: T201 - the answer
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
