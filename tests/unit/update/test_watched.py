"""What `vedette-agent status` shows of a shadow and a trial: how far, how good, and what is lacking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.update.box import FPS, TRIAL, Behaviour, Box

from vedette.api.messages import AgentStatus
from vedette.cli.status import screen
from vedette.update.phases import Phase
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.update.watched import Watched


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def after(box: Box, phase: Phase, seconds: float) -> Watched:
    """What is shown so long into a phase."""
    box.until(lambda: (w := box.driver.snapshot().watched) is not None and w.elapsed_s >= seconds)
    assert box.record.phase is phase
    found = box.driver.snapshot().watched
    assert found is not None
    return found


def shown(box: Box) -> list[str]:
    """The screen of a box, with its JSON in between as on the control socket."""
    status = AgentStatus(
        agent="1",
        device="box",
        uptime_s=1.0,
        model=None,
        engine=None,
        worker_restarts=0,
        cameras=(),
        update=box.driver.snapshot(),
    )
    return list(screen(msgspec.json.decode(msgspec.json.encode(status), type=AgentStatus)))


def test_a_trial_shows_how_far_it_is_and_what_it_lacks(box: Box) -> None:
    """A minute and 100 frames are needed; half a minute in, the frames are there and the time is not."""
    box.offer(1)
    found = after(box, Phase.TRIAL, 30.0)
    assert (found.min_frames, found.min_s, found.max_s) == (TRIAL.min_frames, TRIAL.min_s, TRIAL.max_s)
    assert found.frames == pytest.approx(found.elapsed_s * FPS, abs=2)
    assert (found.failed_share, found.p95_ms, found.p95_before_ms) == (0.0, 10.0, 10.0)
    assert found.lacking == (f"another {TRIAL.min_s - int(found.elapsed_s):.0f} s",)
    lines = shown(box)
    assert f"judged     {found.frames} of 100 frames, {found.elapsed_s:.0f} of 60 s" in lines
    assert f"lacking    {found.lacking[0]}" in lines
    assert any("p95 10.0 ms (1.00 times the 10.0 ms of before, at most 1.50 times)" in line for line in lines)


def test_a_guard_that_is_not_yet_sure_is_named_with_its_figures(tmp_path: Path) -> None:
    """Failures within the limit, of too few frames to be sure."""
    box = Box(tmp_path, behaviours={"1": Behaviour(failed=0.015)}).start()
    box.offer(1, guards=Guards(error_rate=0.02), trial=Window(10.0, 100, 3600.0))
    found = after(box, Phase.TRIAL, 12.0)
    assert found.failed_share == pytest.approx(0.015, abs=0.005)
    (guard,) = found.lacking
    assert guard.startswith("error_rate: ")
    assert guard.endswith(" like them would do")
    assert any("failed (at most 2.0%)" in line for line in shown(box))


def test_a_shadow_shows_what_was_compared(tmp_path: Path) -> None:
    """Disagreement beside its limit; nothing is said of a server that nobody asks."""
    box = Box(tmp_path, behaviours={"1": Behaviour(disagrees=0.01)}).start()
    box.offer(1, shadow=Window(60.0, 100, 600.0), guards=Guards(disagreement=0.05))
    found = after(box, Phase.SHADOW, 20.0)
    assert found.disagreed_share == pytest.approx(0.01, abs=0.005)
    assert (found.disagreed_limit, found.reached) == (0.05, None)
    lines = shown(box)
    assert any("1.0% disagree (at most 5.0%)" in line for line in lines)
    assert not any("update server" in line for line in lines)


def test_nothing_is_shown_once_the_window_is_closed(box: Box) -> None:
    """Neither after success nor after an abort in the middle."""
    box.offer(1)
    box.until_result()
    assert box.driver.snapshot().watched is None
    box.offer(2)
    box.driver.announce()
    after(box, Phase.TRIAL, 5.0)
    box.driver.abort()
    box.until_result()
    assert box.driver.snapshot().watched is None
    assert not any(line.startswith("judged") for line in shown(box))
