"""A runtime's words decide which error it is (case 4, case 8)."""

from __future__ import annotations

import re

import pytest

from vedette.engine.failures import MAX_REASON_CHARS, reason, run_failure
from vedette.errors import OutOfMemoryError, UnavailableError


@pytest.mark.parametrize(
    "text",
    [
        "Failed to allocate memory for requested buffer of size 1073741824",
        "std::bad_alloc",
        "CUDA failure 2: out of memory ; GPU=0",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
        "NvMapMemAllocInternalTagged: cudaErrorMemoryAllocation",
        "[E] OutOfMemory: no further information",
    ],
)
def test_allocation_failures_are_their_own_error(text: str) -> None:
    """Case 4: as ONNX Runtime, C++, CUDA, cuBLAS and TensorRT word it."""
    assert isinstance(run_failure(RuntimeError(text)), OutOfMemoryError)


def test_pythons_own_memory_error_counts() -> None:
    """NumPy raises it with an empty or any text."""
    assert isinstance(run_failure(MemoryError()), OutOfMemoryError)


@pytest.mark.parametrize("text", ["CUDA error 700: illegal memory access", "Got invalid dimensions", ""])
def test_other_failures_are_not_taken_for_memory(text: str) -> None:
    """An illegal access is no shortage: retrying it on the same context is useless."""
    failure = run_failure(RuntimeError(text))
    assert type(failure) is UnavailableError
    assert text in failure.cause


def test_an_empty_text_is_said_to_be_empty() -> None:
    """Case 8: delegates raise without a word."""
    assert reason(ValueError("")) == "ValueError without any text from the library"


def test_a_reason_is_one_bounded_line_without_the_noise() -> None:
    """Runtimes print C++ signatures and whole graphs."""
    assert reason(ValueError("a\n  b\tc")) == "a b c"
    assert len(reason(ValueError("x" * 10_000))) == MAX_REASON_CHARS
    assert reason(ValueError("noise: cause"), drop=re.compile("noise: ")) == "cause"
