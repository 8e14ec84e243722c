"""The small parts of the HTTP door: who may ask, how much waits, what is plotted, and where it listens."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.api.admission import Admission
from vedette.api.deadline import Deadline
from vedette.api.guard import Guard
from vedette.api.http_answer import error_answer
from vedette.api.inquiry import Inquiry
from vedette.api.latency_history import MAX_CAMERAS, STAGES, STEP_S, STEPS, LatencyHistory
from vedette.api.listening import open_listener
from vedette.api.matching import MAX_APART_FRAMES, Match, match
from vedette.api.refusal import RequestRefusedError
from vedette.clock import ManualClock
from vedette.errors import ConfigError, UnavailableError
from vedette.wire.messages import LatencyMs

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose sockets have short names, wherever pytest puts it."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield Path()
    os.chdir(before)


# Who may ask ----------------------------------------------------------------------------------------------


def status_of(headers: dict[str, str], *, hosts: tuple[str, ...] | None = ("127.0.0.1",)) -> int:
    """The status that a request with these headers gets."""
    sent: list[MutableMapping[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own form
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the guard reads no body")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "headers": pairs}
    asyncio.run(Guard(app, hosts=hosts, limit_s=5)(scope, receive, send))
    names = {name for name, _ in sent[0]["headers"]}
    assert {b"content-security-policy", b"cross-origin-resource-policy"} <= names
    assert b"access-control-allow-origin" not in names
    return int(sent[0]["status"])


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:9000", "LOCALHOST", "[::1]:8080", "127.0.0.1"])
def test_names_of_this_box_are_answered(host: str) -> None:
    """Whatever the port: it may be forwarded."""
    assert status_of({"host": host}) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", "[::2]", "", "["],
)
def test_a_foreign_name_that_was_rebound_to_this_address_is_refused(host: str) -> None:
    """DNS rebinding: the browser believes it talks to evil.example."""
    assert status_of({"host": host}) == 421


def test_on_a_unix_socket_any_name_will_do() -> None:
    """No browser can open one."""
    assert status_of({"host": "box"}, hosts=None) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"x": "y" * 20000}, 431),
        ({f"x-{n}": "y" for n in range(200)}, 431),
    ],
)
def test_other_web_pages_and_huge_heads_are_refused(headers: dict[str, str], status: int) -> None:
    """A page of another origin may neither ask nor embed; a link may be followed."""
    assert status_of({"host": "127.0.0.1:8080", **headers}) == status


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    """HTTP/1.1 asks for one."""
    assert status_of({}) == 400


# Bounds ---------------------------------------------------------------------------------------------------


def test_bodies_in_memory_are_bounded_in_bytes_over_all_requests() -> None:
    """Who does not get in hears 503 at once, and what a request held is free after it."""
    admission = Admission(100)
    with admission.room() as first:
        first.grow_to(60)
        first.grow_to(40)
        assert admission.held_bytes == 60
        with admission.room() as second, pytest.raises(RequestRefusedError) as error:
            second.grow_to(41)
        assert (error.value.status, error.value.retry_after_s) == (503, 1.0)
        assert admission.held_bytes == 60
    assert admission.held_bytes == 0


def test_a_deadline_ends_a_wait_with_its_own_error() -> None:
    """The task goes on afterwards as if it had never been cancelled."""

    async def story() -> str:
        with pytest.raises(TimeoutError, match="late"), Deadline(0.01, TimeoutError("late")):
            await asyncio.Event().wait()
        with Deadline(5, TimeoutError("late")):
            await asyncio.sleep(0)
        return "done"

    assert asyncio.run(story()) == "done"


def test_a_question_asked_by_many_is_asked_once() -> None:
    """One answer for all who wait; kept while fresh; given once more, old, while a new one is fetched."""
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    async def story(pool: ThreadPoolExecutor) -> None:
        clock = ManualClock(1)
        inquiry = Inquiry(ask, pool=pool, clock=clock, fresh_s=1, keep_s=5)
        assert await asyncio.gather(*(inquiry.get() for _ in range(20))) == [1] * 20
        clock.advance_s(0.5)
        assert await inquiry.get() == 1
        clock.advance_s(1)
        assert await inquiry.get() == 1, "an answer that is not too old is given at once"
        clock.advance_s(6)
        assert await inquiry.get() == 2
        inquiry.forget()
        assert await inquiry.get() == 3

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(story(pool))


def test_a_daemon_that_does_not_answer_is_not_asked_by_each_request() -> None:
    """The failure is the answer for a moment; then it is tried again."""
    asked: list[int] = []

    def ask() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise UnavailableError("nobody answers")
        return "back"

    async def story(pool: ThreadPoolExecutor) -> None:
        clock = ManualClock(1)
        inquiry = Inquiry(ask, pool=pool, clock=clock, fresh_s=1, keep_s=5)
        for _ in range(3):
            with pytest.raises(UnavailableError, match="nobody answers"):
                await inquiry.get()
        assert len(asked) == 1
        clock.advance_s(1.1)
        assert await inquiry.get() == "back"

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(story(pool))


@pytest.mark.parametrize(("given_s", "told"), [(0.2, "1"), (7.0, "7"), (7.1, "8"), (1e9, "3600")])
def test_retry_after_is_whole_seconds(given_s: float, told: str) -> None:
    """Rounded up, and never so long that a client sleeps for ever."""
    assert ("Retry-After", told) in error_answer(503, "not now", retry_after_s=given_s).headers


# What is shown --------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 300), unique=True, max_size=3).map(sorted),
    st.sets(st.integers(1, 300), max_size=64),
)
def test_a_picture_is_shown_with_its_own_answer_or_a_near_one(pictures: list[int], answers: set[int]) -> None:
    """Own answers win, newest picture first; an answer from too far away is never drawn."""
    chosen = match(pictures, answers)
    own = [seq for seq in pictures if seq in answers]
    if not pictures:
        assert chosen is None
    elif own:
        assert chosen == Match(own[-1], own[-1])
    else:
        assert chosen is not None
        assert chosen.picture == pictures[-1]
        near = [seq for seq in answers if abs(seq - pictures[-1]) <= MAX_APART_FRAMES]
        assert (chosen.answer is None) == (not near)
        assert chosen.answer is None or chosen.answer in near


def latency(infer_ms: float) -> LatencyMs:
    return LatencyMs(0.0, 1.0, 0.0, infer_ms, 0.0, 1.0 + infer_ms)


def test_steps_of_a_plot_hold_means_that_add_up_and_a_p95() -> None:
    """20 answers in a step, one of them slow; then a gap, which stays a gap."""
    history = LatencyHistory()
    for infer_ms in [4.0] * 18 + [100.0, 100.0]:
        history.add("front", latency(infer_ms), 1)
    later_ns = round(10 * STEP_S * 1e9)
    history.add("front", latency(8.0), later_ns)
    series = history.series(later_ns)["front"]
    assert series.age_s == [10 * STEP_S, 0.0]
    assert series.answers == [20, 1]
    assert series.stages_ms["infer"] == [pytest.approx(13.6), 8.0]
    assert sum(series.stages_ms[stage][0] for stage in STAGES) == pytest.approx(14.6)
    assert series.p95_ms == [101.0, 9.0]


def test_plots_forget_and_stay_bounded() -> None:
    """Case 44: neither hours nor camera names without end make them grow."""
    history = LatencyHistory()
    for step in range(3 * STEPS):
        history.add("front", latency(1.0), round(step * STEP_S * 1e9))
    for number in range(10_000):
        history.add(f"camera-{number}", latency(1.0), 1)
    now_ns = round(3 * STEPS * STEP_S * 1e9)
    assert len(history.series(now_ns)["front"].age_s) <= STEPS
    assert len(history.series(1)) <= MAX_CAMERAS
    assert history.series(now_ns * 10) == {}


# Where it listens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listen",
    ["0.0.0.0:80", "[::]:80", "192.168.1.4:80", "example.org:80", "127.0.0.1", "127.0.0.1:x", ":80", ""],
)
def test_an_address_that_others_can_reach_is_refused(listen: str) -> None:
    """The door asks nobody who they are, so it is not for the network."""
    with pytest.raises(ConfigError, match="no address of this box alone"):
        open_listener(listen)


def test_loopback_gets_a_port_and_a_taken_one_is_named() -> None:
    """Port 0 takes a free one; a second door there is refused, and may try again later."""
    listener, where = open_listener("127.0.0.1:0")
    with listener:
        port = listener.getsockname()[1]
        assert where == f"http://127.0.0.1:{port}"
        with pytest.raises(UnavailableError, match="cannot listen"):
            open_listener(f"127.0.0.1:{port}")


def test_a_unix_socket_is_for_owner_and_group_and_outlives_no_crash(folder: Path) -> None:
    """Mode 0660; the leftover of a dead door is replaced, a living one is not."""
    path = folder / "http.sock"
    first, _ = open_listener(f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(UnavailableError, match="another program answers"):
        open_listener(f"unix:{path}")
    first.close()
    second, where = open_listener(f"unix:{path}")
    second.close()
    assert where == f"unix:{path}"


def test_a_file_in_the_way_is_kept(folder: Path) -> None:
    """What is no socket is not ours to remove."""
    path = folder / "http.sock"
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be made"):
        open_listener(f"unix:{path}")
    assert path.read_text(encoding="utf-8") == "precious"
    with pytest.raises(ConfigError, match="may have 107 bytes"):
        open_listener("unix:/" + "x" * 200)


def test_answers_leave_at_once() -> None:
    """Nagle's delay would cost 40 ms an answer; asyncio switches it off for sockets that say TCP."""
    listener, _ = open_listener("127.0.0.1:0")
    with listener:
        assert listener.proto == socket.IPPROTO_TCP
