"""What a runtime's exception means for the caller. Pure."""

from __future__ import annotations

import re

from vedette.errors import OutOfMemoryError, UnavailableError

# ONNX Runtime, CUDA, cuBLAS, TensorRT, TFLite and the C++ library, as each words a failed allocation.
_ALLOCATION = re.compile(
    r"failed to allocate|bad_alloc|bad allocation|out of memory|outofmemory|cannot allocate"
    r"|could not allocate|alloc_failed|cudaerrormemoryallocation|memory allocation failed",
    re.IGNORECASE,
)
MAX_REASON_CHARS = 400


def is_allocation_failure(error: BaseException) -> bool:
    """Whether a runtime says, in its own words, that memory ran out."""
    return isinstance(error, MemoryError) or _ALLOCATION.search(str(error)) is not None


def run_failure(error: BaseException) -> UnavailableError:
    """The house's error for a failed run; OutOfMemoryError if that is what it was (casebook 4)."""
    if is_allocation_failure(error):
        return OutOfMemoryError(
            f"the runtime could not allocate memory: {reason(error)}",
            cure="free memory on the box, or use a smaller model or fewer cameras",
        )
    return UnavailableError(f"the inference run failed: {reason(error)}")


def reason(error: BaseException, *, drop: re.Pattern[str] | None = None) -> str:
    """One line in the runtime's own words, without what `drop` matches; an empty text is said to be empty."""
    text = " ".join(str(error).split())
    if drop is not None:
        text = drop.sub("", text)
    if not text:
        return f"{type(error).__name__} without any text from the library"
    return text if len(text) <= MAX_REASON_CHARS else f"{text[: MAX_REASON_CHARS - 1]}…"
