"""Threads beside the data plane: begun and ended with the daemon, and their death is its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import Running, camera, plan, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.errors import InternalError, UnavailableError
from vedette.runtime.status import StatusDesk

if TYPE_CHECKING:
    from pathlib import Path

LIVE = "synthetic:32x32@30"


class Friend:
    """A companion that a test can let die."""

    name = "update"

    def __init__(self, run: Running) -> None:
        self.crash: BaseException | None = None
        self.said: list[str] = []
        self._run = run

    def start(self) -> None:
        """See Companion."""
        self.said.append("started")

    def stop(self) -> None:
        """See Companion."""
        serving = self._run.daemon.generation.serving
        self.said.append(f"stopped while the model {'serves' if serving else 'is gone'}")


def test_a_companion_ends_before_the_children(tmp_path: Path) -> None:
    """An update thread must not take the end of the daemon for the death of a model."""
    run = Running(plan(worker(stub_bundle(tmp_path / "b")), camera("one", LIVE, live=True)))
    friend = Friend(run)
    run.daemon.companions.append(friend)
    with run:
        run.until_answers("one")
    assert friend.said == ["started", "stopped while the model serves"]


def test_the_death_of_a_companion_ends_the_daemon_with_its_name(tmp_path: Path) -> None:
    """Crash-only: the service manager starts the process anew, and the record says where to go on."""
    run = Running(plan(worker(stub_bundle(tmp_path / "b")), camera("one", LIVE, live=True)))
    friend = Friend(run)
    run.daemon.companions.append(friend)

    def live_and_die() -> None:
        with run:
            run.until_answers("one")
            friend.crash = RuntimeError("a bug")
            run.daemon.wake()
            run.wait()

    with pytest.raises(AssertionError, match="update thread died"):
        live_and_die()
    assert isinstance(run.crash, InternalError)
    assert friend.said[-1].startswith("stopped")


def test_the_status_is_given_on_the_supervisors_thread(tmp_path: Path) -> None:
    """Counts that agree with each other; nobody waits for ever when no supervisor is there."""
    clock = SystemClock()
    desk = StatusDesk(clock, device="box")
    run = Running(plan(worker(stub_bundle(tmp_path / "b")), camera("one", LIVE, live=True)))
    with pytest.raises(UnavailableError, match="no status"):
        desk.ask(run.daemon, within_s=0.01)
    run.daemon._on_tick = desk.tick
    with run:
        run.until_answers("one", 5)
        until(lambda: desk.ask(run.daemon).model is not None, "a model is named")
        found = desk.ask(run.daemon)
    (one,) = found.cameras
    assert (found.device, one.camera, one.state, one.live) == ("box", "one", "running", True)
    assert one.frames_in == one.ok + sum(one.dropped.values()) + sum(one.failed.values()) + one.in_flight
    assert one.ok >= 5
    assert found.uptime_s > 0
