"""What of the data plane is told as an event, and how often."""

from __future__ import annotations

import pytest

from vedette.runtime.events import (
    BURST,
    BURSTS,
    EVERY_S,
    CameraLook,
    Changes,
    DaemonLook,
    EventRate,
    Happening,
)
from vedette.wire.messages import AcceleratorReport, ModelRef, Skipped

MODEL = ModelRef("person", "1", "ab" * 32)


def looks(*states: str, fault: str = "") -> list[Happening]:
    """The events of one camera that goes through these states, seen at each."""
    changes = Changes()
    found: list[Happening] = []
    for state in states:
        look = CameraLook(state, fault if state in {"waiting", "failed"} else "")
        found += changes.since_last(DaemonLook(cameras={"front": look}))
    return found


@pytest.mark.parametrize(
    ("states", "kinds"),
    [
        (("waiting", "opening", "held", "running"), []),
        (("running", "waiting", "opening", "held", "running"), ["camera_down", "camera_up"]),
        (("opening", "waiting", "opening", "waiting"), ["camera_down"]),
        (("running", "paused", "waiting", "opening", "running"), ["camera_paused", "camera_resumed"]),
        (("running", "ended"), ["camera_ended"]),
        (("running", "failed"), ["camera_failed"]),
        (("paused", "paused"), []),
    ],
)
def test_a_camera_is_told_of_when_it_comes_or_goes(states: tuple[str, ...], kinds: list[str]) -> None:
    """Not of each step on the way up, and not of how it stands when the agent starts."""
    found = looks(*states, fault="" if "paused" in states or states[0] == "waiting" else "the cable is out")
    assert [happening.kind for happening in found] == kinds


def test_a_lost_camera_says_why() -> None:
    (down,) = looks("running", "waiting", fault="no frame for 10 s")
    assert down.data == {"camera": "front", "fault": "no frame for 10 s"}


def test_a_worker_that_died_and_a_fallback_are_told_once_each() -> None:
    """Casebook: an accelerator that is silently not there is the fleet's business."""
    degraded = AcceleratorReport(
        "onnxruntime 1.20", ("cuda", "cpu"), "cpu", {}, (Skipped("cuda", "no device"),), "nodes", 1, 1.0, 2.0,
        degraded=True,
    )  # fmt: skip
    changes = Changes()
    quiet = DaemonLook(cameras={})
    serving = DaemonLook(cameras={}, model=MODEL, engine=degraded)
    assert changes.since_last(quiet) == []
    (fallback,) = changes.since_last(serving)
    assert (fallback.kind, fallback.data["effective"]) == ("accelerator_fallback", "cpu")
    assert fallback.data["skipped"] == [{"accelerator": "cuda", "reason": "no device"}]
    (restarted,) = changes.since_last(
        DaemonLook(cameras={}, worker_restarts=1, worker_fault="killed by SIGSEGV")
    )
    assert restarted.data == {"restarts": 1, "fault": "killed by SIGSEGV"}
    # The same model on the same accelerator after the restart is no news.
    assert changes.since_last(DaemonLook(cameras={}, worker_restarts=1, model=MODEL, engine=degraded)) == []


def test_results_that_nobody_takes_are_told() -> None:
    changes = Changes()
    changes.since_last(DaemonLook(cameras={}))
    (lost,) = changes.since_last(DaemonLook(cameras={}, results_fault="no space left", undelivered=3))
    assert (lost.kind, lost.data) == ("results_undelivered", {"fault": "no space left", "undelivered": 3})


def test_a_camera_that_flaps_is_told_of_at_a_bounded_rate_and_its_last_word_is_not_lost() -> None:
    rate = EventRate()
    flaps = [Happening("camera_down", "front", {"number": number}) for number in range(BURST + 4)]
    told = [happening for happening in flaps if rate.offer(happening, 1) is not None]
    assert told == flaps[:BURST]
    assert rate.offer(Happening("camera_down", "back", {}), 1) is not None, "another camera has its own rate"
    assert rate.due(1) == []
    (late,) = rate.due(1 + round(EVERY_S * 1e9))
    assert late.data == {"number": BURST + 3, "not_told": 3}
    assert rate.due(2 + round(EVERY_S * 1e9)) == []


def test_at_the_end_nothing_is_held_back() -> None:
    rate = EventRate()
    for number in range(BURST + 2):
        rate.offer(Happening("camera_down", "front", {"number": number}), 1)
    assert [happening.data for happening in rate.all_held()] == [{"number": BURST + 1, "not_told": 1}]
    assert rate.all_held() == []


def test_the_steps_of_a_whole_update_are_all_told() -> None:
    rate = EventRate()
    steps = [Happening("update_phase", "", {"number": number}) for number in range(BURSTS["update_phase"])]
    assert all(rate.offer(step, 1) is not None for step in steps)
