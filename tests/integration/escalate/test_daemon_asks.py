"""A daemon with real children and a scripted large model: each escalation ends once, and no frame waits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import UNSET
from tests.integration.escalate.test_asking_process import oip
from tests.stubs.asked_cases import escalation_config
from tests.stubs.brokers import free_port
from tests.stubs.cloud_scripts import ScriptedCloud, mute, says
from tests.stubs.running import Running, camera, plan, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.config.escalation import AuditConfig, PolicyConfig
from vedette.runtime.plan import EscalationPlan
from vedette.runtime.swap_table import SwapState
from vedette.telemetry.escalation_window import EscalationCounts

if TYPE_CHECKING:
    from vedette.runtime.plan import RunPlan
    from vedette.wire.messages import Result

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

LIVE = "synthetic:64x48@20"
NEVER_SURE = PolicyConfig(threshold=1.0)


def asks(url: str, **changes: Any) -> EscalationPlan:  # noqa: ANN401 - fields of any kind
    """Every frame is unsure, and may be asked about."""
    settings = {
        "url": url,
        "policy": NEVER_SURE,
        "audit": AuditConfig(share=0.0),
        "cool_down_s": 0.0,
        "deadline_ms": 20_000.0,
        **changes,
    }
    return EscalationPlan(config=escalation_config(**settings), device="box")


def outcomes(run: Running, name: str = "front") -> list[Result]:
    """The lines that say how an escalation ended."""
    return [
        one for one in run.sink.of(name) if one.escalation is not None and one.escalation.reason is not UNSET
    ]


def words(run: Running, name: str = "front") -> dict[str, int]:
    return counts(run, name).outcomes


def counts(run: Running, name: str = "front") -> EscalationCounts:
    lines = run.daemon.escalations
    assert lines is not None
    return lines.counts().get(name, EscalationCounts())


def said(run: Running, word: str, name: str = "front") -> bool:
    return words(run, name).get(word, 0) > 0


def check_books(run: Running, name: str = "front") -> None:
    """Each one that was handed over ended once, and its line says what was counted."""
    found = counts(run, name)
    assert (found.under_way, found.held) == (0, 0)
    assert found.escalated + found.audited == len(outcomes(run, name))
    lines: dict[str, int] = {}
    for one in run.sink.of(name):
        if one.escalation is not None:
            cause = one.escalation.cause
            word = one.escalation.outcome if cause is UNSET else f"{one.escalation.outcome}_{cause}"
            lines[word] = lines.get(word, 0) + 1
    assert lines == found.outcomes


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def front(bundle: Path, escalation: EscalationPlan, *more: Any, **changes: Any) -> RunPlan:  # noqa: ANN401 - a plan's fields
    return plan(worker(bundle), camera("front", LIVE, live=True), *more, escalation=escalation, **changes)


def test_the_local_answer_goes_out_at_once_and_the_correction_repeats_camera_and_frame(bundle: Path) -> None:
    with ScriptedCloud(says(oip("blue"))) as cloud, Running(front(bundle, asks(cloud.url))) as run:
        until(lambda: words(run).get("answered", 0) >= 5, "five corrections")
        run.stop()
    check_books(run)
    corrected = [one for one in outcomes(run) if one.source == "cloud"]
    assert len(corrected) >= 5
    for one in corrected:
        first, second = (line for line in run.sink.of("front") if line.seq == one.seq)
        assert second is one
        assert (first.source, first.captured_ns) == ("local", one.captured_ns)
        assert one.top is not UNSET
        assert one.top[0].label == "blue"
        assert one.latency_ms == first.latency_ms, "it says how long the local answer took"


@pytest.mark.parametrize("cloud", ["refuses", "mute"])
def test_a_large_model_that_is_away_harms_no_frame(bundle: Path, cloud: str) -> None:
    """Case 50: every escalation ends, and frames are answered as ever."""
    with ScriptedCloud(mute) as silent:
        url = f"http://127.0.0.1:{free_port()}" if cloud == "refuses" else silent.url
        with Running(front(bundle, asks(url, deadline_ms=200.0))) as run:
            until(lambda: sum(words(run).values()) >= 20, "twenty ends")
            run.until_answers("front", 40)
            run.stop()
    check_books(run)
    assert all(one.source == "local" for one in run.sink.of("front"))
    assert counts(run).outcomes.keys().isdisjoint({"answered", "agreed"})


def test_a_process_that_is_killed_ends_what_it_had_and_the_next_one_goes_on(bundle: Path) -> None:
    with ScriptedCloud(mute, says(oip("red"))) as cloud, Running(front(bundle, asks(cloud.url))) as run:
        until(lambda: counts(run).escalated >= 1, "the first one is under way")
        asking = run.daemon.escalator
        assert asking is not None
        assert asking.child is not None
        os.kill(asking.child.pid, signal.SIGKILL)
        until(lambda: said(run, "declined_stopped"), "what it had has ended")
        until(lambda: said(run, "agreed") or said(run, "answered"), "the next one asks")
        assert asking.restarts.total == 1
        run.stop()
    check_books(run)
    assert any("asking process ended (killed by SIGKILL)" in line for line in run.said)


def test_a_held_answer_is_one_line_with_the_outcome_in_it(bundle: Path) -> None:
    with (
        ScriptedCloud(says(oip("blue"))) as cloud,
        Running(front(bundle, asks(cloud.url, hold=True))) as run,
    ):
        until(lambda: words(run).get("answered", 0) >= 3, "three answers")
        run.stop()
    check_books(run)
    corrected = {one.seq for one in outcomes(run) if one.source == "cloud"}
    assert len(corrected) >= 3
    assert all(sum(one.seq == seq for one in run.sink.of("front")) == 1 for seq in corrected)


def test_an_answer_is_held_no_longer_than_the_deadline_and_never_where_it_is_urgent(bundle: Path) -> None:
    """The seeds' routing: an urgent camera never waits."""
    with ScriptedCloud(mute) as cloud:
        escalation = asks(cloud.url, hold=True, deadline_ms=700.0, urgent=("gate",))
        gate = camera("gate", LIVE, live=True)
        with Running(front(bundle, escalation, gate)) as run:
            until(lambda: run.sink.answered("front") >= 5, "held answers come")
            run.until_answers("gate", 20)
            held = counts(run, "gate").held
            run.stop()
    check_books(run)
    check_books(run, "gate")
    assert held == 0


def test_a_worker_that_dies_or_changes_takes_nobody_with_it(bundle: Path, tmp_path: Path) -> None:
    """The next model has thresholds of its own, and outlets hear on: they were lost at a switch once."""
    other = stub_bundle(tmp_path / "two", name="two", version="2")
    seen: list[Result] = []

    class Outlet:
        def add(self, result: Result) -> None:
            seen.append(result)

    with ScriptedCloud(says(oip("blue"))) as cloud, Running(front(bundle, asks(cloud.url))) as run:
        run.daemon.results.outlets = (Outlet(),)
        until(lambda: said(run, "answered"), "the first model is corrected")
        assert run.daemon.generation.worker is not None
        os.kill(run.daemon.generation.worker.child.pid, signal.SIGKILL)
        until(lambda: run.daemon.generation.restarts.total == 1, "the worker is started again")
        before = words(run)["answered"]
        until(lambda: words(run)["answered"] > before + 2, "the next worker is corrected")
        run.daemon.live.switch(other)
        until(
            lambda: any(one.model.name == "two" and one.source == "cloud" for one in run.sink.of("front")),
            "the second model is corrected",
        )
        until(lambda: run.daemon.swap.state is SwapState.IDLE, "the switch is over")
        run.stop()
    check_books(run)
    assert seen == run.sink.of("front")


def test_without_room_for_its_frames_they_stay_and_cameras_keep_theirs(bundle: Path) -> None:
    escalation = asks(f"http://127.0.0.1:{free_port()}")
    # Frames of 64 x 48 need a ring of 72 KB; cases are larger than that.
    with Running(front(bundle, escalation, ring_memory_bytes=150_000)) as run:
        until(lambda: any("cameras leave no room" in line for line in run.said), "it is said")
        run.until_answers("front", 10)
        run.stop()
    assert counts(run).escalated == 0
    assert run.error is None


def test_a_key_that_cannot_be_read_is_said_and_frames_go_on(bundle: Path, tmp_path: Path) -> None:
    escalation = asks(f"http://127.0.0.1:{free_port()}", key_file=str(tmp_path / "none"))
    with Running(front(bundle, escalation)) as run:
        until(lambda: any("key_file" in line for line in run.said), "the cause is said")
        run.until_answers("front", 5)
        run.stop()
    assert run.error is None


def test_the_end_waits_for_no_answer_and_every_outcome_is_written(bundle: Path) -> None:
    with ScriptedCloud(mute) as cloud, Running(front(bundle, asks(cloud.url, deadline_ms=60_000.0))) as run:
        until(lambda: counts(run).escalated >= 2, "some are under way")
        run.stop(within_s=20)
    check_books(run)
    assert said(run, "declined_stopped")


def test_the_key_is_on_no_command_line(bundle: Path) -> None:
    """What travels on the command line is the section without its key."""
    with Running(front(bundle, asks(f"http://127.0.0.1:{free_port()}", key="sk-secret"))) as run:
        asking = run.daemon.escalator
        assert asking is not None
        until(lambda: asking.child is not None and asking.state.value == "ready", "it is ready")
        assert asking.child is not None
        line = Path(f"/proc/{asking.child.pid}/cmdline").read_bytes()
        run.stop()
    assert b"sk-secret" not in line
    assert b"127.0.0.1" in line
    assert msgspec.json.decode(line.split(b"\0")[5])["device"] == "box"
