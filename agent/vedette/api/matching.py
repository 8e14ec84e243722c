"""Which picture to show with which answer, when both were taken at different moments. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Of a stream at 30 fps, half a second: further apart, boxes would lie beside what they belong to.
MAX_APART_FRAMES = 15


class Match(NamedTuple):
    """A picture, and the answer that is drawn into it; None: none is near enough."""

    picture: int
    answer: int | None


def match(pictures: Sequence[int], answers: Collection[int]) -> Match | None:
    """Choose by sequence numbers: the newest picture with its own answer, else the newest picture.

    Args:
        pictures: Numbers of the pictures that are held, oldest first.
        answers: Numbers of the answers that are known.

    Returns:
        The choice; None without a picture. An answer of another frame is at most MAX_APART_FRAMES away.
    """
    if not pictures:
        return None
    for seq in reversed(pictures):
        if seq in answers:
            return Match(seq, seq)
    newest = pictures[-1]
    nearest = min(answers, key=lambda seq: abs(seq - newest), default=None)
    if nearest is None or abs(nearest - newest) > MAX_APART_FRAMES:
        return Match(newest, None)
    return Match(newest, nearest)
