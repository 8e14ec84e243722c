"""The door's process: hostile connections, its bond with the daemon, health and the preview's data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import cv2
import msgspec
import numpy as np
import pytest
from tests.integration.door.asking import ask, connect, door_figures, read_answer, send_request
from tests.integration.door.fake_daemon import LATENCY, MODEL, FakeDaemon, find_red
from tests.stubs.processes import alive
from tests.stubs.waiting import until

from vedette.api.door_process import ASK_TIMEOUT_S
from vedette.api.uvicorn_server import MAX_CONNECTIONS, MAX_HEAD_BYTES
from vedette.source.messages import Ended, SourceFailed, StopSource, UseRing
from vedette.wire.messages import Detection, Label, Result
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDaemon]:
    """One door for the stories that leave it as it was."""
    with FakeDaemon(tmp_path_factory.mktemp("door")) as running:
        running.lend_ring()
        until(lambda: ask(running.url, "/readyz").status == 200, "the door is ready")
        yield running


def closed(connection: socket.socket) -> bool:
    """Whether the other side has ended it, waiting a little."""
    try:
        while connection.recv(4096):  # the reason, where there is one
            pass
    except ConnectionResetError:
        pass
    return True


# Hostile connections --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/preview/../door.py",
        "/preview/..%2fdoor.py",
        "/preview/%2e%2e%2f%2e%2e%2fdoor.py",
        "/preview/preview.html%00.css",
        "/preview//etc/passwd",
        "/preview/picture/..%2f..%2fetc%2fpasswd",
        "/preview/__init__.py",
    ],
)
def test_only_the_pages_files_are_served(daemon: FakeDaemon, path: str) -> None:
    """A table names them; no path is ever put together."""
    answer = ask(daemon.url, path)
    assert answer.status == 404
    assert answer.error


def test_a_head_without_end_is_cut_off(daemon: FakeDaemon) -> None:
    """More than a head may have: the connection is closed, and others are answered."""
    with connect(daemon.url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(MAX_HEAD_BYTES // 1000 + 4):
                connection.sendall(b"X-%d: " % number + b"y" * 1000 + b"\r\n")
        assert closed(connection)
    assert ask(daemon.url, "/v2/health/live").status == 200


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0" * 5000])
def test_what_is_no_http_is_refused(daemon: FakeDaemon, garbage: bytes) -> None:
    """TLS, nonsense, zeros: 400 or the end of the connection."""
    with connect(daemon.url) as connection:
        connection.sendall(garbage)
        assert connection.recv(4096)[:12] in {b"HTTP/1.1 400", b""}
    assert ask(daemon.url, "/v2/health/live").status == 200


CHUNKED = b"POST /v2/models/redness/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADER_LINES = b"".join(b"x%03d: %b\r\n" % (number, b"v" * 200) for number in range(300))


@pytest.mark.parametrize(
    "opening",
    [
        b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /preview/preview.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 150
        + b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\n",
        CHUNKED + b"2;",
    ],
    ids=["head", "sent-ahead", "trailer", "chunk-extension"],
)
def test_what_is_of_no_body_has_a_bound_wherever_it_stands(daemon: FakeDaemon, opening: bytes) -> None:
    """The client never takes an answer and writes on: it is hung up on long before 16 MB are in memory."""
    sent_bytes = 0
    with connect(daemon.url) as connection, contextlib.suppress(OSError):
        connection.settimeout(1.0)  # writing that is held up is a bound too
        connection.sendall(opening)
        while sent_bytes < 16 << 20:
            connection.sendall(HEADER_LINES)
            sent_bytes += len(HEADER_LINES)
    assert sent_bytes < 16 << 20
    assert ask(daemon.url, "/v2/health/live").status == 200


def test_refusals_of_the_parser_have_the_form_of_all_errors(daemon: FakeDaemon) -> None:
    """No HTTP, and a head that is too large."""
    for sent, status in (
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (MAX_HEAD_BYTES + 9), 431),
    ):
        with connect(daemon.url) as connection:
            connection.sendall(sent)
            answer = read_answer(connection)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert answer.error


def test_requests_sent_ahead_are_answered_in_their_order(daemon: FakeDaemon) -> None:
    """Those that came while an answer was under way too."""
    one = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(daemon.url) as connection:
        connection.sendall(one % b"/healthz" + one % b"/none" + (one % b"/v2")[:9])
        connection.sendall((one % b"/v2")[9:] + one % b"/readyz")
        received = b""
        while b'"ready":true' not in received:
            piece = connection.recv(65536)
            assert piece, received
            received += piece
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200", b"200"]


def test_connections_that_ask_nothing_make_room_for_those_that_do(daemon: FakeDaemon) -> None:
    """The one that was silent for longest goes; whoever asks how the box is gets an answer."""
    idle = [connect(daemon.url) for _ in range(MAX_CONNECTIONS)]
    try:
        assert ask(daemon.url, "/v2/health/live").status == 200
        assert ask(daemon.url, "/healthz").status == 200
        assert closed(idle[0])
    finally:
        for connection in idle:
            connection.close()


def test_a_door_full_of_requests_still_says_how_the_box_is(tmp_path: Path) -> None:
    """All places are taken by bodies on their way: others hear 503, probes are answered."""
    with FakeDaemon(tmp_path) as daemon, contextlib.ExitStack() as stack:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        for _ in range(MAX_CONNECTIONS):
            held = stack.enter_context(connect(daemon.url))
            headers = {"Content-Length": "10", "Expect": "100-continue"}
            send_request(held, "POST", "/v2/models/redness/infer", headers=headers)
            assert held.recv(4096).startswith(b"HTTP/1.1 100")
        for path in ("/healthz", "/readyz", "/metrics", "/v2/health/live"):
            until(lambda path=path: ask(daemon.url, path).status == 200, f"{path} is answered")  # type: ignore[misc]
        answer = ask(daemon.url, "/v2")
        assert (answer.status, answer.error) == (503, "too many connections")


def test_slow_heads_and_slow_bodies_are_ended(tmp_path: Path) -> None:
    """Slow loris: a head that never ends is closed, a body that does not come gets 408."""
    with FakeDaemon(tmp_path, request_timeout_s=0.3, head_timeout_s=0.3) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        with connect(daemon.url) as silent, connect(daemon.url) as slow, connect(daemon.url) as body:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            send_request(body, "POST", "/v2/models/redness/infer", headers={"Content-Length": "1000"})
            answer = read_answer(body)
            assert answer.status == 408
            assert "did not come within 0.3 s" in answer.error
            assert closed(silent)
            assert closed(slow)


def test_a_bodys_share_of_memory_is_bounded_over_all_requests(tmp_path: Path) -> None:
    """Four of the largest bodies may be on their way; the fifth hears 503 at once."""
    with FakeDaemon(tmp_path, max_body_bytes=1000) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                held = stack.enter_context(connect(daemon.url))
                send_request(held, "POST", "/v2/models/redness/infer", headers={"Content-Length": "1000"})
                held.sendall(b" " * 990)
            until(lambda: door_figures(daemon.url, "held_bytes") == [3960], "four bodies are on their way")
            answer = ask(daemon.url, "/v2/models/redness/infer", body=b"{}" * 50)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        until(lambda: door_figures(daemon.url, "held_bytes") == [0], "what they held is free")


def test_who_only_announces_bodies_keeps_nobody_out(tmp_path: Path) -> None:
    """Twenty heads without a byte of body hold no memory, and end as stuck while others are answered."""
    with FakeDaemon(tmp_path, max_body_bytes=1000, body_pause_s=0.3) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        binary = {"Content-Length": "1000", "Inference-Header-Content-Length": "100"}
        with contextlib.ExitStack() as stack:
            announced = []
            for number in range(20):
                held = stack.enter_context(connect(daemon.url))
                extra = binary if number % 2 else {"Content-Length": "1000"}
                send_request(held, "POST", "/v2/models/redness/infer", headers=extra)
                announced.append(held)
            assert ask(daemon.url, "/v2/models/redness/infer", body=b"{}" * 50).status == 400
            for held in announced:
                stuck = read_answer(held)
                assert (stuck.status, stuck.error) == (408, "nothing of the body came for 0.3 s")
        until(lambda: door_figures(daemon.url, "held_bytes") == [0], "nothing is held")


# Its bond with the daemon ---------------------------------------------------------------------------------


def test_told_to_stop_it_ends_and_says_so(tmp_path: Path) -> None:
    """Exit status 0 and `Ended`, like every source; a request under way is told, not left hanging."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        daemon.serving.clear()
        with connect(daemon.url) as waiting:
            tensor = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
            send_request(waiting, "POST", "/v2/models/redness/infer", body=tensor)
            ring = daemon.ring
            assert ring is not None
            until(lambda: ring.head == 1, "the request is in the ring")
            daemon.channel.send(StopSource())
            answer = read_answer(waiting)
            assert (answer.status, answer.error) == (503, "the agent is ending")
        assert daemon.process.wait(10) == 0
        assert isinstance(daemon.heard()[-1], Ended)
        assert ring.ended


def test_a_daemon_that_dies_takes_the_door_with_it(tmp_path: Path) -> None:
    """The kernel sees to it: no door without an agent behind it stays open."""
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.integration.door.fake_daemon import FakeDaemon\n"
        f"daemon = FakeDaemon(Path({str(tmp_path)!r})).__enter__()\n"
        "print(daemon.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        door = int(parent.stdout.readline())
        assert alive(door)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        until(lambda: not alive(door), "the door is gone")


def test_a_ring_that_is_none_ends_the_door_with_the_reason(tmp_path: Path) -> None:
    """Nothing of it is touched; the daemon is told, and may start another door."""
    with FakeDaemon(tmp_path) as daemon:
        fd = os.memfd_create("no-ring")
        daemon.channel.send(UseRing(), [fd, fd])
        os.close(fd)
        assert daemon.process.wait(10) == 65
        failed = daemon.heard()[-1]
        assert isinstance(failed, SourceFailed)
        assert failed.retry
        assert "descriptors" in failed.cause


def test_its_pulse_goes_on_while_nobody_asks(tmp_path: Path) -> None:
    """The daemon kills a source without a pulse; an idle door is not one."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        ring = daemon.ring
        assert ring is not None
        until(lambda: ring.producer_pulse_ns, "the first sign of life")
        first_ns = ring.producer_pulse_ns
        until(lambda: ring.producer_pulse_ns > first_ns, "another one")


# Health, figures, and what the page asks for --------------------------------------------------------------


def test_health_and_figures_follow_the_daemon(tmp_path: Path) -> None:
    """The process lives without it; healthz does not."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        assert ask(daemon.url, "/healthz").json()["status"] == "ok"
        metrics = ask(daemon.url, "/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b'vedette_frames_in_total{camera="front"} 120' in metrics.body
        assert b'cause="superseded"} 115' in metrics.body
        assert ask(daemon.url, "/", method="GET").headers["location"] == "/preview"
        daemon.stop_control()
        until(lambda: ask(daemon.url, "/healthz").status == 503, "the daemon is not there")
        answer = ask(daemon.url, "/healthz")
        assert "no vedette-agent answers" in answer.error
        assert answer.headers["retry-after"] == "1"
        assert ask(daemon.url, "/v2/health/live").status == 200
        state = ask(daemon.url, "/preview/state").json()
        assert state["agent"] is None
        assert "no vedette-agent answers" in state["agent_error"]


def test_a_daemon_that_hangs_is_told_of_while_probes_still_wait(tmp_path: Path) -> None:
    """Each probe hears so in its own time, side by side; no client is told to type commands."""
    with FakeDaemon(tmp_path) as daemon, contextlib.ExitStack() as stack:
        daemon.answering.clear()
        asked = []
        for path in ("/healthz", "/metrics", "/readyz"):
            asked.append(stack.enter_context(connect(daemon.url)))
            asked[-1].settimeout(2 * ASK_TIMEOUT_S)  # one after the other would take three times
            send_request(asked[-1], "GET", path)
        for connection in asked:
            answer = read_answer(connection)
            assert answer.status == 503
            assert "no vedette-agent answers" in answer.error
            assert "vedette-agent run" not in answer.error


def picture_of(answer_body: bytes) -> NDArray[np.uint8]:
    pixels = cv2.imdecode(np.frombuffer(answer_body, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(pixels, np.uint8)


def blue(width: int, height: int) -> NDArray[np.uint8]:
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0] = 200
    return pixels


def test_a_picture_shows_the_answer_of_its_own_frame(tmp_path: Path) -> None:
    """Read along from the camera's ring; the box lies where the answer to this very frame says."""
    frame_format = describe(320, 240, PixelFormat.BGR24)
    with FakeDaemon(tmp_path) as daemon:
        assert ask(daemon.url, "/preview/picture/front").status == 404
        daemon.show_camera("front", frame_format.frame_bytes)
        until(lambda: ask(daemon.url, "/preview/picture/front").status == 503, "the camera is there")
        assert "no picture yet" in ask(daemon.url, "/preview/picture/front").error
        seq = daemon.publish("front", blue(320, 240), frame_format)
        until(lambda: ask(daemon.url, "/preview/picture/front").status == 200, "a picture")
        plain = ask(daemon.url, "/preview/picture/front")
        assert (plain.headers["x-frame-seq"], plain.headers["x-answer-seq"]) == (str(seq), "0")
        found = (Detection("<script>alert(1)</script>", 0, 0.9, (100.0, 80.0, 180.0, 200.0)),)
        other = (Detection("other", 0, 0.9, (0.0, 0.0, 20.0, 20.0)),)
        base = Result(1, "front", seq, 1, MODEL, "detect", detections=found, latency_ms=LATENCY)
        far = msgspec.structs.replace(base, seq=seq + 3, detections=other)
        daemon.saw([base, far])
        until(
            lambda: ask(daemon.url, "/preview/picture/front").headers["x-answer-seq"] == str(seq),
            "the answer to this frame is drawn",
        )
        drawn = picture_of(ask(daemon.url, "/preview/picture/front").body).astype(int)
        changed = np.abs(drawn - picture_of(plain.body).astype(int)).sum(axis=2) > 120
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert abs(columns[0] - 100) <= 3
        assert abs(rows[-1] - 200) <= 3
        state = ask(daemon.url, "/preview/state").json()
        assert state["pictures"] == ["front"]
        assert state["answers"]["front"]["found"][0]["label"] == "other"
        assert state["latency"]["front"]["stages_ms"]["infer"] == [4.6]
        daemon.hide_camera("front")
        until(lambda: ask(daemon.url, "/preview/picture/front").status == 503, "its ring is gone")
        assert ask(daemon.url, "/preview/state").json()["pictures"] == []


def test_a_wide_yuv_frame_is_made_small_and_keeps_its_labels(tmp_path: Path) -> None:
    """A 1920 wide NV12 frame: at most 960 wide on the page, labels under it, colour kept."""
    frame_format = describe(1920, 1080, PixelFormat.NV12)
    red = np.concatenate(
        [np.full(1920 * 1080, 81, np.uint8), np.tile(np.array([90, 240], np.uint8), 960 * 540)]
    )
    with FakeDaemon(tmp_path) as daemon:
        daemon.show_camera("wide", frame_format.frame_bytes)
        seq = daemon.publish("wide", red, frame_format)
        top = (Label("red wall", 0, 0.9), Label("door", 1, 0.1))
        daemon.saw([Result(1, "wide", seq, 1, MODEL, "classify", top=top, latency_ms=LATENCY)])
        until(lambda: ask(daemon.url, "/preview/picture/wide").status == 200, "a picture")
        until(
            lambda: ask(daemon.url, "/preview/picture/wide").headers["x-answer-seq"] == str(seq), "its answer"
        )
        pixels = picture_of(ask(daemon.url, "/preview/picture/wide").body)
        assert pixels.shape[1] == 960
        assert pixels.shape[0] > 540, "the labels have a strip of their own"
        found = find_red(pixels)
        assert found is not None
        assert found.box[2] - found.box[0] >= 950
