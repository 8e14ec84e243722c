"""A short run of the fuzzer, and proof that it would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fuzz import decode_patches
from tests.fuzz.decode_patches import RESIDENT_BAR_BYTES, Child, fuzz, mutant, seeds, violation
from tests.fuzz.patch_mutants import MUTANTS

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = 400


@pytest.mark.parametrize("codec", sorted(MUTANTS))
def test_hostile_patches_are_refused_in_bounded_memory(codec: str) -> None:
    """Every input ends in a verdict; `python -m tests.fuzz.decode_patches` runs as many as one likes."""
    findings = fuzz(codec, seed=20, first=0, inputs=INPUTS)
    assert findings.violations == []
    assert sum(findings.verdicts.values()) == INPUTS
    assert findings.verdicts["refused"] > INPUTS // 3


@pytest.mark.parametrize("codec", sorted(MUTANTS))
def test_an_input_can_be_made_again_and_differs_from_the_good_patch(codec: str) -> None:
    """Seed and number are all that a report needs."""
    assert mutant(codec, 3, 14) == mutant(codec, 3, 14)
    changed = [mutant(codec, 3, number) for number in range(40)]
    assert sum(hostile.blob != origin.blob for origin, hostile in changed) > 30


def test_a_child_that_dies_is_a_violation_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer is missing: that input is named, and those after it are decoded by another child."""
    answer = Child.answer
    asked: list[bytes] = []

    def answer_or_die(child: Child, seed: decode_patches.Seed, blob: bytes) -> tuple[float, int, str]:
        asked.append(blob)
        if len(asked) == len(seeds("zstd")) + 2:
            child._child.kill()
            child._child.wait(timeout=10)
        return answer(child, seed, blob)

    monkeypatch.setattr(Child, "answer", answer_or_die)
    monkeypatch.setattr(decode_patches, "KEPT", tmp_path)
    findings = fuzz("zstd", seed=1, first=0, inputs=8)
    assert len(findings.violations) == 1
    assert "died" in findings.violations[0]
    assert sum(findings.verdicts.values()) == 7


@pytest.mark.parametrize(
    ("spent_s", "grown_bytes", "said", "lies"),
    [
        (0.0, 0, "raised MemoryError()", True),
        (0.0, 0, "another file", False),
        (6.0, 0, "refused", True),
        (0.0, RESIDENT_BAR_BYTES + 1, "refused", True),
    ],
)
def test_what_counts_as_a_violation(spent_s: float, grown_bytes: int, said: str, *, lies: bool) -> None:
    """Untyped errors, silent damage, too long, too large; a refusal in time is none."""
    assert violation(spent_s, grown_bytes, said, lies=lies) is not None
    assert violation(0.0, 0, "refused", lies=lies) is None
