"""What a broker refuses of a class of entries, without ending the connection. Pure.

When it refuses all of them, as with a wrong access list, the class waits longer and longer, and nothing is
lost. An entry that it refuses again and again while it takes others is at fault itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROOF = 3
_MAX_REMEMBERED = 256


class Refusals:
    """The refusals of one class; times are monotonic nanoseconds."""

    def __init__(self, *, min_s: float, max_s: float, uniform: Callable[[float, float], float]) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._uniform = uniform
        self._until_ns = 0
        self._in_a_row = 0
        self._accepted = 0
        self._refused: dict[int, tuple[int, int]] = {}

    def left_s(self, now_ns: int) -> float:
        """Seconds that the class still waits."""
        return max(0.0, (self._until_ns - now_ns) / 1e9)

    def accepted(self, number: int) -> None:
        """The broker took one."""
        self._accepted += 1
        self._in_a_row = 0
        self._until_ns = 0
        self._refused.pop(number, None)

    def refused(self, number: int, now_ns: int) -> bool:
        """Whether this entry is to be given up."""
        ceiling_s = min(self._max_s, self._min_s * 2.0 ** min(self._in_a_row, 32))
        self._in_a_row += 1
        self._until_ns = now_ns + round(self._uniform(0.0, ceiling_s) * 1e9)
        times, accepted_before = self._refused.pop(number, (0, self._accepted))
        if times + 1 >= PROOF and self._accepted > accepted_before:
            return True
        if len(self._refused) < _MAX_REMEMBERED:
            self._refused[number] = (times + 1, accepted_before)
        return False
