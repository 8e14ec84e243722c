"""How much of the stream a promise does not cover, and what is left of it. Pure, and without NumPy.

A threshold promises that few of the answers that are kept differ from the large model's. It counts on the
large model's answer for all others. An unsure frame that did not get one, for whatever cause, may be wrong,
and is taken off the promise as if it were.
"""

from __future__ import annotations

from collections import deque

PIECE_NS = 60 * 1_000_000_000
PIECES = 60


def held_epsilon(epsilon: float, unmet_share: float) -> float:
    """What is left of a promise: it does not cover unsure frames that the large model did not answer."""
    return min(1.0, epsilon + unmet_share)


class Coverage:
    """Judged frames of the last hour, and those of them that nothing covers, in pieces of a minute."""

    def __init__(self) -> None:
        self._pieces: deque[list[int]] = deque(maxlen=PIECES)  # which minute, judged, uncovered

    def judged(self, now_ns: int) -> None:
        """The gate judged a frame; `now_ns` is CLOCK_MONOTONIC."""
        self._piece(now_ns)[1] += 1

    def uncovered(self, now_ns: int) -> None:
        """One of them was unsure, and it is known now that no answer of the large model will correct it."""
        self._piece(now_ns)[2] += 1

    def unmet_share(self, now_ns: int) -> float:
        """Of the judged frames, 0 to 1; 0 without any."""
        first = now_ns // PIECE_NS - PIECES
        recent = [piece for piece in self._pieces if piece[0] > first]
        judged = sum(piece[1] for piece in recent)
        uncovered = sum(piece[2] for piece in recent)
        # Outcomes come later than their frames: a camera that just stopped leaves more of them than frames.
        return min(1.0, uncovered / max(1, judged))

    def _piece(self, now_ns: int) -> list[int]:
        minute = now_ns // PIECE_NS
        if not self._pieces or self._pieces[-1][0] < minute:
            self._pieces.append([minute, 0, 0])
        return self._pieces[-1]
