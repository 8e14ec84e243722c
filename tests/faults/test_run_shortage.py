"""A box that has no process or descriptor left for a moment: the daemon waits and tries again."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.stubs.processes import open_descriptors
from tests.stubs.running import Running, camera, plan, worker

from vedette.errors import UnavailableError
from vedette.frame.layout import RingGeometry
from vedette.frame.ring import create_ring
from vedette.runtime.plan import RestartPolicy
from vedette.runtime.worker_process import WORKER_MODULE

if TYPE_CHECKING:
    from pathlib import Path


def refuse_starts(monkeypatch: pytest.MonkeyPatch, module: str, times: int) -> None:
    """Let fork fail for a child module, as under a process limit; other children start."""
    start = subprocess.Popen
    left = [times]

    def popen(command: list[str], **options: Any) -> Any:  # noqa: ANN401 - the standard library's signature
        if module in command and left[0] > 0:
            left[0] -= 1
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start(command, **options)

    monkeypatch.setattr("vedette.runtime.child.subprocess.Popen", popen)


@pytest.mark.parametrize("module", [WORKER_MODULE, "vedette.source.child"])
def test_a_child_that_cannot_be_started_now_is_started_later(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Case 56, the kind: a temporary shortage never ends the daemon, loses no frame and leaks nothing."""
    refuse_starts(monkeypatch, module, 3)
    with Running(plan(worker(bundle), camera("front", "synthetic:64x48?frames=10"))) as run:
        run.wait()
    assert run.error is None
    assert run.counts("front").ok == 10
    assert len([line for line in run.said if "could not be started" in line]) == 3


def test_failed_starts_leave_no_descriptor(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can never be started is given up after the budget, with the system's reason."""
    refuse_starts(monkeypatch, WORKER_MODULE, 1000)
    policy = RestartPolicy(budget=4, backoff_min_s=0.001, backoff_max_s=0.002)
    before = open_descriptors()
    with Running(plan(worker(bundle), camera("front", "synthetic:64x48?frames=10"), restart=policy)) as run:
        run.wait()
    run.stopping.close()
    assert isinstance(run.error, UnavailableError)
    assert "Resource temporarily unavailable" in run.error.cause
    assert open_descriptors() <= before


def test_a_ring_without_descriptors_is_refused_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened before the limit is closed again."""
    made = os.eventfd
    count = [0]

    def eventfd(*arguments: int) -> int:
        count[0] += 1
        if count[0] == 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return made(*arguments)

    monkeypatch.setattr("vedette.frame.ring.os.eventfd", eventfd)
    before = open_descriptors()
    with pytest.raises(UnavailableError, match="Too many open files") as caught:
        create_ring(RingGeometry(3, 4096, newest_wins=True), name="front")
    assert caught.value.cure is not None
    assert "LimitNOFILE" in caught.value.cure
    assert open_descriptors() == before
