"""Makes the body of a reply small enough for the broker, and says what it does without. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Path = tuple[str, ...]

LEFT_OUT = "left_out"


def shrink(body: dict[str, Any], cuts: Sequence[Path], room_bytes: int) -> dict[str, Any]:
    """The body without what stands at `cuts`, as many of them from the first on as it takes to fit.

    A list is halved from its end again and again, before it is left out as a whole.

    Raises:
        UnavailableError: What is left is still too large.
    """
    left_out: list[str] = []
    for path in cuts:
        while _size_bytes(body) > room_bytes:
            if not _cut(body, path):
                break
            name = ".".join(path)
            if name not in left_out:
                left_out.append(name)
            body[LEFT_OUT] = left_out
    if _size_bytes(body) > room_bytes:
        raise UnavailableError(
            f"the answer has {_size_bytes(body)} bytes, the broker has room for {room_bytes}",
            cure="let the broker take larger packets",
        )
    return body


def _size_bytes(body: dict[str, Any]) -> int:
    return len(msgspec.json.encode(body))


def _cut(body: dict[str, Any], path: Path) -> bool:
    """Take something away there; False when there is nothing any more."""
    *parents, key = path
    holder: Any = body
    for parent in parents:
        holder = holder.get(parent) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or key not in holder:
        return False
    value = holder[key]
    if isinstance(value, (list, tuple)) and len(value) > 1:
        holder[key] = value[: len(value) // 2]
    else:
        del holder[key]
    return True
