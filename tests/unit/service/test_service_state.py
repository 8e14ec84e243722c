"""What systemd is told from the first step of loading to the end, through a real socket."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from vedette.runtime.sd_notify import ServiceManager
from vedette.runtime.service_state import LOADING_USEC, STATUS_EVERY_NS, STUCK_NS, Look, ServiceState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S = 1_000_000_000
LOADING = Look("checking bundle person", "", "", 0, 2, 0)
SERVING = Look("", "person 1 on cpu", "", 1, 2, 0)
GIVEN_UP = Look("", "", "no model can be served (it is damaged)", 0, 2, 0)


def state(watchdog_s: float = 0.0) -> ServiceState:
    return ServiceState(watchdog_ns=round(watchdog_s * S))


def test_each_step_of_loading_buys_time_and_silence_buys_none() -> None:
    found = state()
    assert found.lines(LOADING, 0) == [
        f"EXTEND_TIMEOUT_USEC={LOADING_USEC}",
        "STATUS=loading: checking bundle person",
    ]
    assert found.lines(LOADING, 100 * S) == []
    step = LOADING._replace(loading="warming up")
    assert found.lines(step, 101 * S)[0] == f"EXTEND_TIMEOUT_USEC={LOADING_USEC}"


def test_ready_is_said_once_when_a_model_answers() -> None:
    found = state()
    assert "READY=1" not in found.lines(LOADING, 0)
    assert found.lines(SERVING, S) == ["READY=1", "STATUS=person 1 on cpu answers; 1 of 2 cameras up"]
    assert found.ready
    assert found.lines(LOADING, 20 * S) == ["STATUS=loading: checking bundle person"]
    assert found.lines(SERVING, 40 * S) == ["STATUS=person 1 on cpu answers; 1 of 2 cameras up"]


def test_a_start_without_a_model_that_works_is_ready_and_says_that_it_is_degraded() -> None:
    assert state().lines(GIVEN_UP, 0) == [
        "READY=1",
        "STATUS=degraded: no model can be served (it is damaged); 0 of 2 cameras up",
    ]


def test_cameras_that_come_and_go_do_not_flood_the_status() -> None:
    found = state()
    found.lines(SERVING, 0)
    assert found.lines(SERVING._replace(cameras_up=2), S) == []
    assert len(found.lines(SERVING._replace(cameras_up=2), STATUS_EVERY_NS)) == 1


def test_the_watchdog_is_fed_while_both_loops_turn_and_not_when_one_is_stuck() -> None:
    found = state(watchdog_s=30)
    fed = [now_s for now_s in range(60) if "WATCHDOG=1" in found.lines(SERVING, now_s * S)]
    assert fed == [0, 10, 20, 30, 40, 50]
    stuck = SERVING._replace(results_age_ns=STUCK_NS)
    assert all("WATCHDOG=1" not in found.lines(stuck, now_s * S) for now_s in range(60, 120))
    waiting = SERVING._replace(results_age_ns=None)
    assert "WATCHDOG=1" in found.lines(waiting, 120 * S), "a slow reader of the results is no hang"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.settimeout(20)
        yield opened


def test_lines_travel_together_and_hold_no_line_breaks(listener: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.getsockname()})
    assert manager.tell(["READY=1", "STATUS=a\nWATCHDOG=1"])
    assert listener.recv(4096) == b"READY=1\nSTATUS=a WATCHDOG=1"
    manager.close()


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    silent = ServiceManager({})
    assert not silent.listens
    assert not silent.tell(["READY=1"])
    gone = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert not gone.tell(["READY=1"])
    gone.close()
    silent.close()


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    mine = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    assert ServiceManager(mine).watchdog_ns == 30 * S
    assert ServiceManager({**mine, "WATCHDOG_PID": "1"}).watchdog_ns == 0
    assert ServiceManager({"WATCHDOG_USEC": "soon"}).watchdog_ns == 0
