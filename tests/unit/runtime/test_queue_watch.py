"""An update waits while live cameras lose frames to an overloaded box, and not because they are quick."""

from __future__ import annotations

import pytest

from vedette.runtime.queue_watch import QueueWatch
from vedette.telemetry.ledger import CameraCounts
from vedette.update.plan import MAX_QUEUE_WAIT_S, Conditions, not_now

S = 1_000_000_000


def watched(*shares: tuple[int, int, int]) -> QueueWatch:
    """One camera; in each five seconds so many frames are answered, superseded, and too old."""
    counts = {"front": CameraCounts()}
    watch = QueueWatch(lambda: dict(counts))
    watch.tick(0)
    for second, (ok, superseded, stale) in enumerate(shares, 1):
        before = counts["front"]
        counts["front"] = CameraCounts(
            ok=before.ok + ok,
            dropped={
                "superseded": before.dropped.get("superseded", 0) + superseded,
                "stale": before.dropped.get("stale", 0) + stale,
            },
        )
        watch.tick(second * 5 * S)
    return watch


@pytest.mark.parametrize(
    ("shares", "overloaded"),
    [
        ([], False),
        ([(75, 75, 0)] * 7, False),  # a camera twice as quick as the model: as designed
        ([(75, 0, 0)] * 7, False),
        ([(100, 0, 40)] * 7, True),  # frames grow too old in the queue
        ([(5, 140, 0)] * 7, True),  # next to nothing is answered
        ([(1, 0, 1)], False),  # too few to say
        ([(5, 140, 0)] * 7 + [(75, 75, 0)] * 7, False),  # it is over
    ],
)
def test_who_counts_as_overloaded(shares: list[tuple[int, int, int]], *, overloaded: bool) -> None:
    assert watched(*shares).overloaded() == overloaded


def test_a_box_that_is_always_overloaded_is_updated_all_the_same() -> None:
    """The update may be the quicker model that it needs."""
    assert not_now(Conditions(queue_full=True)) is not None
    assert not_now(Conditions(queue_full=True, waited_s=MAX_QUEUE_WAIT_S)) is None
