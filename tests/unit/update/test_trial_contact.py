"""A trial must show that the update server can still be reached, but only where it could before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.unit.update.box import TRIAL, Box

from vedette.clock import ManualClock
from vedette.update.causes import Cause, Result
from vedette.update.health import LOST_S, LOST_TRIES, Contact, Outcome, Policy, judge_trial
from vedette.update.phases import Phase
from vedette.update.ports import WindowStats
from vedette.update.reach import ASK_EVERY_S, FIRST_WITHIN_S, Reach
from vedette.update.record import Baseline
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = Window(min_s=600.0, min_frames=200, max_s=3600.0)
BASELINE = Baseline(frames=1000, failed=0, p95_ms=10.0, reached=True)
GOOD = WindowStats(elapsed_s=600.0, frames=1000, failed=0, p95_ms=10.0, worker_deaths=0, last_death="")
REACHED = Contact(reached=True)
LOST = Contact(failures=LOST_TRIES, lost_s=LOST_S)


class Server:
    """What the update server would say, and when it was asked."""

    def __init__(self) -> None:
        self.up = True
        self.asked_s: list[float] = []
        self.clock = ManualClock()

    def __call__(self) -> bool:
        self.asked_s.append(self.clock.monotonic_ns() / 1e9)
        return self.up


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def box(tmp_path: Path, server: Server) -> Box:
    box = Box(tmp_path, clock=server.clock)
    box.ports["reach"] = server
    return box.start()


# The verdict ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contact", "elapsed_s", "outcome", "cause"),
    [
        (None, 600.0, Outcome.PASS, None),
        (REACHED, 600.0, Outcome.PASS, None),
        (Contact(), 600.0, Outcome.INCONCLUSIVE, None),
        (replace(LOST, lost_s=LOST_S - 1), 1200.0, Outcome.INCONCLUSIVE, None),
        (replace(LOST, failures=LOST_TRIES - 1), 1200.0, Outcome.INCONCLUSIVE, None),
        (LOST, 1200.0, Outcome.FAIL, Cause.CONNECTIVITY_LOST),
        (Contact(failures=1, lost_s=30.0), 3600.0, Outcome.FAIL, Cause.CONNECTIVITY_LOST),
    ],
)
def test_without_contact_a_window_stays_open_until_contact_is_lost_for_good(
    contact: Contact | None, elapsed_s: float, outcome: Outcome, cause: Cause | None
) -> None:
    """A short outage delays; a long one, or one at the very end, is a verdict."""
    stats = replace(GOOD, elapsed_s=elapsed_s)
    verdict = judge_trial(stats, BASELINE, guards=Guards(), window=WINDOW, contact=contact)
    assert (verdict.outcome, verdict.cause) == (outcome, cause)
    if outcome is Outcome.INCONCLUSIVE:
        assert [what.partition(":")[0] for what in verdict.lacking] == ["connectivity_lost"]


def test_no_policy_confirms_a_candidate_that_cut_the_box_off() -> None:
    """`confirm` is about too few frames, not about a box that nobody can repair any more."""
    few = replace(GOOD, frames=3, elapsed_s=3600.0)
    verdict = judge_trial(
        few, BASELINE, guards=Guards(), window=WINDOW, policy=Policy.CONFIRM, contact=Contact(lost_s=60.0)
    )
    assert (verdict.outcome, verdict.cause) == (Outcome.FAIL, Cause.CONNECTIVITY_LOST)


# How often it is asked ------------------------------------------------------------------------------------


def test_the_server_is_asked_soon_and_then_about_once_a_minute(server: Server) -> None:
    """However often one looks; the rate does not rise while it is away."""
    reach = Reach(server, server.clock, lambda: 0.5)
    for second in range(600):
        server.up = second < 300
        reach.look()
        server.clock.advance_s(1.0)
    assert server.asked_s[0] <= FIRST_WITHIN_S
    gaps = {after - before for before, after in zip(server.asked_s, server.asked_s[1:], strict=False)}
    assert gaps == {ASK_EVERY_S}


def test_contact_is_counted_from_the_last_answer(server: Server) -> None:
    """A trial begins without contact: what was so before it proves nothing."""
    reach = Reach(server, server.clock, lambda: 0.0)
    assert reach.look() == Contact(reached=True)
    reach.begin()
    server.up = False
    assert reach.look() == Contact(reached=False, failures=1, lost_s=0.0)
    for failures in (2, 3, 4):
        server.clock.advance_s(ASK_EVERY_S / 2)
        lost_s = (failures - 1) * ASK_EVERY_S / 2
        assert reach.look() == Contact(reached=False, failures=failures, lost_s=lost_s)
    server.up = True
    server.clock.advance_s(ASK_EVERY_S / 2)
    assert reach.look() == Contact(reached=True)


# On a whole box -------------------------------------------------------------------------------------------


def test_a_server_that_answers_before_and_in_the_trial_confirms(box: Box, server: Server) -> None:
    """It was asked once before the switch and at least once in the trial."""
    box.offer(1)
    box.until_phase(Phase.SWITCH)
    assert len(server.asked_s) == 1
    assert box.record.baseline is not None
    assert box.record.baseline.reached
    assert box.until_result().result is Result.SUCCESS
    assert 2 <= len(server.asked_s) <= 2 + TRIAL.min_s / ASK_EVERY_S * 2


def test_a_candidate_after_which_the_server_cannot_be_reached_is_taken_back(box: Box, server: Server) -> None:
    """For its own cause, after a quarter of an hour; the model of before serves again."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    server.up = False
    began_s = server.clock.monotonic_ns() / 1e9
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.CONNECTIVITY_LOST)
    assert "the update server was not reached for" in report.detail
    assert LOST_S <= server.clock.monotonic_ns() / 1e9 - began_s < LOST_S + 60
    assert box.serving == "0"
    box.look()
    assert len(box.results()) == 1


def test_an_outage_only_holds_the_window_open(box: Box, server: Server) -> None:
    """Ten minutes without a network are nobody's fault; the first answer closes a window of one minute."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    began_s = server.clock.monotonic_ns() / 1e9
    server.up = False
    box.until(lambda: server.clock.monotonic_ns() / 1e9 > began_s + LOST_S - 300)
    assert box.record.phase is Phase.TRIAL
    assert box.driver.snapshot().watched is not None
    server.up = True
    assert box.until_result().result is Result.SUCCESS


def test_a_box_that_could_not_reach_it_before_is_not_asked_to(box: Box, server: Server) -> None:
    """An update from a stick, far from any network."""
    server.up = False
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    assert len(server.asked_s) == 1
    assert box.until_result().result is Result.SUCCESS
    assert len(server.asked_s) == 1


def test_what_was_so_before_the_trial_survives_a_restart_in_it(box: Box, server: Server) -> None:
    """The record says that the server could be reached; the window begins anew."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    server.up = False
    box.restart()
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.CONNECTIVITY_LOST)
