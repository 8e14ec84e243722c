"""The HTTP door inside the daemon: what dies costs the requests in its hands, and nobody else anything."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.door.asking import Answer, ask, connect, read_answer, send_request
from tests.stubs.opened_door import MODEL, OpenedDoor, picture_call
from tests.stubs.played_bundles import played_bundle, played_worker
from tests.stubs.processes import alive
from tests.stubs.running import camera, frame_call, worker
from tests.stubs.waiting import until

from vedette.runtime.plan import RestartPolicy
from vedette.runtime.swap_table import SwapState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INFER = f"/v2/models/{MODEL}/infer"
LIVE = "synthetic:64x48@30"


class Callers:
    """Threads that ask without a pause until told to stop; everything that they heard is kept."""

    def __init__(self, agent: OpenedDoor, *, count: int) -> None:
        self._agent = agent
        self._stop = threading.Event()
        self.heard: list[Answer] = []
        self.broken: list[BaseException] = []
        self._threads = [threading.Thread(target=self._ask, args=(index,)) for index in range(count)]

    def __enter__(self) -> Callers:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _ask(self, index: int) -> None:
        try:
            with connect(self._agent.url) as connection:
                while not self._stop.is_set():
                    body, headers = picture_call(index, id=f"{index}-{len(self.heard)}")
                    send_request(connection, "POST", INFER, body=body, headers=headers)
                    answer = read_answer(connection)
                    self.heard.append(answer)
                    if answer.status == 200:
                        assert answer.json()["id"].startswith(f"{index}-"), "somebody else's answer"
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.broken.append(error)


def in_the_background(agent: OpenedDoor) -> tuple[threading.Thread, list[Answer | BaseException]]:
    """A request under way, and what came of it."""
    heard: list[Answer | BaseException] = []

    def call() -> None:
        try:
            heard.append(agent.infer(*picture_call()))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            heard.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, heard


def until_in_flight(agent: OpenedDoor, frames: int = 1) -> None:
    until(lambda: agent.counts().in_flight >= frames, f"{frames} frames in flight; said {agent.said}")


@pytest.fixture
def busy(tmp_path: Path, bundle: Path) -> Iterator[OpenedDoor]:
    """An agent whose model takes 0.3 s for a frame, beside a live camera."""
    slow = worker(bundle, run_s="0.3")
    with OpenedDoor(tmp_path, slow, camera("front", LIVE, live=True)) as agent:
        agent.until_ready()
        yield agent


def test_a_killed_door_breaks_its_connections_and_is_back_within_seconds(busy: OpenedDoor) -> None:
    """SIGKILL with a request under way: cameras go on, the daemon too, and the next request is answered."""
    thread, heard = in_the_background(busy)
    until_in_flight(busy)
    pid, began_s = busy.pid(), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert isinstance(heard[0], (ConnectionError, AssertionError))
    busy.until_answers("front", 2)
    until(lambda: busy.door.child is not None and busy.pid() != pid, "another door")
    busy.until_ready()
    assert time.monotonic() - began_s < 60
    assert busy.infer(*picture_call()).status == 200
    assert busy.door.restarts.total == 1
    assert busy.counts().failed == {"undelivered": 1}, f"answered to nobody: {busy.counts()} {heard}"
    assert any("http: the source process ended: killed by SIGKILL" in line for line in busy.said)


def test_a_door_that_hangs_is_killed_and_replaced(tmp_path: Path, bundle: Path) -> None:
    """SIGSTOP: no pulse in its ring, and another door opens."""
    with OpenedDoor(tmp_path, worker(bundle), stall_s=1.0) as agent:
        agent.until_ready()
        pid = agent.pid()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: not alive(pid), "the stopped door is killed")
        agent.until_ready()
        assert agent.infer(*picture_call()).status == 200


def test_a_worker_killed_in_the_middle_of_a_request_is_told_as_the_cause(busy: OpenedDoor) -> None:
    """503 at once, with the word of the ledger; the next request is answered."""
    thread, heard = in_the_background(busy)
    held = busy.daemon.generation.worker
    assert held is not None
    until(lambda: held.held.seq and busy.counts().in_flight, "the worker has a frame in hand")
    until(lambda: busy.door.ring is not None and busy.door.ring.taken == 1, "it is the request's")
    os.kill(busy.worker_pid(), signal.SIGKILL)
    thread.join(60)
    answer = heard[0]
    assert isinstance(answer, Answer)
    assert answer.status == 503
    assert "worker_crashed" in answer.error
    assert "SIGKILL" in answer.error
    assert int(answer.headers["retry-after"]) >= 1
    until(lambda: busy.infer(*picture_call()).status == 200, "the next worker answers")
    assert busy.counts().failed == {"worker_crashed": 1}


def test_a_model_that_hangs_is_told_as_the_cause(tmp_path: Path, bundle: Path) -> None:
    """The second frame never returns: 503 `worker_hung` after the limit, no hang for the client."""
    hanging = worker(bundle, hang_on=frame_call(2))
    with OpenedDoor(tmp_path, hanging, hang_timeout_s=0.4) as agent:
        agent.until_ready()
        assert agent.infer(*picture_call()).status == 200
        answer = agent.infer(*picture_call())
        assert answer.status == 503
        assert "worker_hung (no answer within 0.4 s)" in answer.error


def test_a_sick_model_is_500_with_the_engines_words(tmp_path: Path, bundle: Path) -> None:
    """What asking again does not cure is no 503."""
    with OpenedDoor(tmp_path, worker(bundle, raise_on=frame_call(1))) as agent:
        agent.until_ready()
        answer = agent.infer(*picture_call())
        assert answer.status == 500
        assert "infer (the inference run failed: the stub was told so)" in answer.error
        assert agent.infer(*picture_call()).status == 200


def test_requests_that_wait_for_a_worker_that_does_not_come_are_told_so(tmp_path: Path, bundle: Path) -> None:
    """One in the dead worker's hand, two behind it: `worker_crashed`, and after a moment `no_worker`."""
    rare = RestartPolicy(budget=1, backoff_min_s=60, backoff_max_s=120)
    with OpenedDoor(tmp_path, worker(bundle, run_s="1"), restart=rare) as agent:
        agent.until_ready()
        calls = [in_the_background(agent) for _ in range(3)]
        until_in_flight(agent, 3)
        agent.daemon.generation.restarts.died()  # beyond the budget, so that the next start is far away
        os.kill(agent.worker_pid(), signal.SIGKILL)
        for thread, _ in calls:
            thread.join(8)
        answers = [heard[0] for _, heard in calls]
        assert all(isinstance(answer, Answer) and answer.status == 503 for answer in answers)
        words = [answer.error for answer in answers if isinstance(answer, Answer)]
        assert sum("worker_crashed (killed by SIGKILL)" in text for text in words) == 1
        assert sum("no_worker (no engine worker was ready for it)" in text for text in words) == 2
        until(lambda: ask(agent.url, "/readyz").status == 503, "it says that it is not ready")
        refused = agent.infer(*picture_call())
        assert refused.status == 503
        assert "the engine worker ended (killed by SIGKILL) and is started again" in refused.error
        assert int(refused.headers["retry-after"]) > 10
        assert agent.counts().dropped == {"no_worker": 2}


def test_switches_of_the_model_under_load_lose_no_request_and_answer_none_twice(
    tmp_path: Path, bundle: Path
) -> None:
    """Four callers without a pause, ten switches to and fro, with trials and without."""
    del bundle  # only its environment is needed
    first, second = played_bundle(tmp_path / "one", run_s="0.005"), played_bundle(tmp_path / "two")
    with OpenedDoor(tmp_path, played_worker(first)) as agent:
        agent.until_ready()
        with Callers(agent, count=4) as callers:
            for number in range(10):
                wanted = second if number % 2 == 0 else first
                agent.daemon.live.switch(wanted, trial=number % 3 == 0)
                until(
                    lambda wanted=wanted: (
                        agent.daemon.live.serving() == wanted  # type: ignore[misc]
                        and agent.daemon.swap.state in {SwapState.IDLE, SwapState.TRIAL}
                    ),
                    f"switched; said {agent.said}",
                    timeout_s=60.0,  # it loads in what the callers leave of the CPUs
                )
            heard = len(callers.heard)
            until(lambda: len(callers.heard) > heard + 20, "the callers go on")
        assert callers.broken == []
        assert {answer.status for answer in callers.heard} == {200}
        assert {answer.json()["model_version"] for answer in callers.heard} == {"one", "two"}
        counts = agent.counts()
        assert counts.ok == len(callers.heard)
        assert (counts.dropped, counts.failed) == ({}, {})


def test_the_end_with_requests_under_way_does_not_wait_for_them_all(tmp_path: Path, bundle: Path) -> None:
    """Whoever waits is told so, or finds his connection closed; no process is left."""
    with OpenedDoor(tmp_path, worker(bundle, run_s="0.2")) as agent:
        agent.until_ready()
        calls = [in_the_background(agent) for _ in range(6)]
        until_in_flight(agent, 3)
        pids = agent.pid(), agent.worker_pid()
        began_s = time.monotonic()
        agent.stop(within_s=10)
        assert time.monotonic() - began_s < 10
        for thread, heard in calls:
            thread.join(60)
            answer = heard[0]
            assert isinstance(answer, ConnectionError) or (
                isinstance(answer, Answer)
                and (answer.status == 200 or (answer.status == 503 and "the agent is ending" in answer.error))
            )
    assert not any(alive(pid) for pid in pids)


def test_slow_clients_never_slow_a_camera(tmp_path: Path, bundle: Path) -> None:
    """Bodies that stop half way, and answers that nobody reads: a live camera keeps its pace."""
    with OpenedDoor(tmp_path, worker(bundle), camera("front", LIVE, live=True)) as agent:
        agent.until_ready()
        body, headers = picture_call()
        slow = [connect(agent.url) for _ in range(24)]
        for number, connection in enumerate(slow):
            if number % 2 == 0:
                fields = {**headers, "Content-Length": str(len(body))}
                send_request(connection, "POST", INFER, body=body[: len(body) // 2], headers=fields)
            else:
                for _ in range(20):
                    send_request(connection, "POST", INFER, body=body, headers=headers)
        began_s, before = time.monotonic(), agent.answers_of("front")
        agent.until_answers("front", 45)
        pace = (agent.answers_of("front") - before) / (time.monotonic() - began_s)
        assert pace > 20, f"{pace:.0f} answers a second of 30"
        assert agent.infer(body, headers).status == 200, "nor another client for ever"
        for connection in slow:
            connection.close()


def test_a_door_whose_address_is_taken_opens_when_it_is_free(tmp_path: Path, bundle: Path) -> None:
    """The cameras do not wait for it, and nobody gives it up."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        agent = OpenedDoor(tmp_path, worker(bundle), camera("front", LIVE, live=True), listen=listen)
        with agent:
            agent.until_answers("front", 3)
            until(
                lambda: any("cannot listen on" in line and "trying again" in line for line in agent.said),
                "it is said",
            )
            other.close()
            until(lambda: agent.url, f"the door opens; said {agent.said}")
            agent.until_ready()
