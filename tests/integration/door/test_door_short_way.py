"""Binary requests leave the HTTP server after their head: what a client does then, no other one feels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.integration.door.asking import (
    Answer,
    ask,
    binary_request,
    connect,
    door_figures,
    picture_request,
    read_answer,
    send_request,
    tensors_of,
)
from tests.integration.door.fake_daemon import FakeDaemon
from tests.stubs.waiting import until

from vedette.frame.layout import RingGeometry
from vedette.frame.ring import Ring, create_ring
from vedette.source.messages import UseRing

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

INFER = "/v2/models/redness/infer"
WIDTH, HEIGHT = 320, 240


def picture(left: int) -> bytes:
    """A dark picture with a red part that begins at `left`."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[50:100, left : left + 40] = (255, 0, 0)
    return pixels.tobytes()


def call(left: int, **fields: object) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request with that picture."""
    entry = {"name": "image", "datatype": "UINT8", "shape": [HEIGHT, WIDTH, 3]}
    return binary_request([(entry, picture(left))], **fields)


def box_of(answer: Answer) -> list[float]:
    """Where the model saw red."""
    assert answer.status == 200, answer.body
    boxes = tensors_of(answer)["boxes"]
    assert isinstance(boxes, list)
    return boxes[:4]


def head_of(body: bytes, headers: dict[str, str]) -> bytes:
    """The head of a request, as it goes over the wire."""
    fields = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **headers}
    lines = [f"POST {INFER} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDaemon]:
    """One door, with a ring of four slots, for all stories that leave it as it was."""
    with FakeDaemon(tmp_path_factory.mktemp("door"), slots=4, request_timeout_s=3.0) as running:
        running.lend_ring()
        until(lambda: ask(running.url, "/readyz").status == 200, "the door is ready")
        yield running


def test_pieces_of_any_size_make_the_same_picture(daemon: FakeDaemon) -> None:
    """The head in two parts, the JSON byte by byte, the tensor in odd pieces."""
    body, headers = call(30)
    packed = head_of(body, headers) + body
    for cuts in ([40], [len(packed) - len(body) + 5], [*range(200, 460), 5_000, 70_001, 200_003]):
        with connect(daemon.url) as connection:
            before = 0
            for cut in [*cuts, len(packed)]:
                connection.sendall(packed[before:cut])
                before = cut
            assert box_of(read_answer(connection)) == [30, 50, 70, 100]


def test_both_ways_give_the_same_answer(daemon: FakeDaemon) -> None:
    """A chunked body takes the long way."""
    body, headers = call(60, id="seven")
    short = ask(daemon.url, INFER, body=body, headers=headers)
    with connect(daemon.url) as connection:
        chunked = {**headers, "Content-Length": "", "Transfer-Encoding": "chunked"}
        send_request(
            connection, "POST", INFER, headers=chunked, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        long = read_answer(connection)
    assert box_of(short) == box_of(long) == [60, 50, 100, 100]
    assert short.json()["id"] == long.json()["id"] == "seven"
    assert short.headers.keys() == {"date", "content-type", "content-length"}
    assert short.headers["content-type"] == long.headers["content-type"] == "application/json"


def test_requests_that_do_not_wait_are_answered_in_their_order(daemon: FakeDaemon) -> None:
    """Pipelining: pictures, and something else between them, in one piece."""
    pieces = []
    for left in (10, 20, 30):
        body, headers = call(left)
        pieces.append(head_of(body, headers) + body)
    other = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(daemon.url) as connection:
        connection.sendall(pieces[0] + pieces[1] + other + pieces[2])
        first, second, live, third = _read_answers(connection, 4)
    assert [box_of(answer)[0] for answer in (first, second, third)] == [10, 20, 30]
    assert live.json() == {"live": True}


def test_a_request_for_what_does_not_exist_costs_no_connection(daemon: FakeDaemon) -> None:
    """Wrong JSON, a wrong size, another model, a picture that is none: told, and then a good one."""
    good, headers = call(40)
    wrong_json, wrong_headers = b"{]" + b"x" * 5000, {**headers, "Inference-Header-Content-Length": "2"}
    entry = {"name": "image", "datatype": "UINT8", "shape": [HEIGHT, WIDTH + 1, 3]}
    wrong_size, size_headers = binary_request([(entry, picture(1))])
    unknown, unknown_headers = call(1, outputs=[{"name": "masks"}])
    broken, broken_headers = picture_request(b"no picture" * 900)
    with connect(daemon.url) as connection:
        for body, fields, words in (
            (wrong_json, wrong_headers, "is not an inference request"),
            (wrong_size, size_headers, "binary_data_size says"),
            (unknown, unknown_headers, "there is no output 'masks'"),
            (broken, broken_headers, "the input 'image'"),
        ):
            send_request(connection, "POST", INFER, body=body, headers=fields)
            refused = read_answer(connection)
            assert (refused.status, words in refused.error) == (400, True), refused.body
            send_request(connection, "POST", INFER, body=good, headers=headers)
            assert box_of(read_answer(connection))[0] == 40


def test_clients_that_leave_in_the_middle_give_their_slots_back(daemon: FakeDaemon) -> None:
    """More of them than there are slots, and then a good request."""
    body, headers = call(50)
    for _ in range(10):
        with connect(daemon.url) as connection:
            connection.sendall(head_of(body, headers) + body[:100_000])
    assert box_of(ask(daemon.url, INFER, body=body, headers=headers))[0] == 50
    until(lambda: door_figures(daemon.url, "held_bytes", "in_flight") == [0, 0], "nothing is held")


def test_slow_bodies_never_hold_all_slots(daemon: FakeDaemon) -> None:
    """Eight of them on four slots: others are answered meanwhile, and the slow ones when they are done."""
    body, headers = call(70)
    slow = [connect(daemon.url) for _ in range(8)]
    for connection in slow:
        connection.sendall(head_of(body, headers) + body[:1000])
    for left in (1, 2, 3):
        quick, quick_headers = call(left)
        assert box_of(ask(daemon.url, INFER, body=quick, headers=quick_headers))[0] == left
    for connection in slow:
        connection.sendall(body[1000:])
    assert [box_of(read_answer(connection))[0] for connection in slow] == [70] * 8
    for connection in slow:
        connection.close()


def test_a_body_that_does_not_come_is_408_and_its_slot_is_free(daemon: FakeDaemon) -> None:
    """The rest of it could not be told from a next request: the connection ends."""
    body, headers = call(80)
    with connect(daemon.url) as connection:
        connection.sendall(head_of(body, headers) + body[:1000])
        late = read_answer(connection)
        assert (late.status, late.error) == (408, "the body did not come within 3 s")
        assert connection.recv(10) == b""
    until(lambda: door_figures(daemon.url, "held_bytes") == [0], "nothing is held")


def test_a_ring_that_is_replaced_under_a_body_is_told_so(tmp_path: Path) -> None:
    """503: the same request may be sent again, and is then answered."""
    with FakeDaemon(tmp_path, slots=4) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        body, headers = call(90)
        with connect(daemon.url) as connection:
            connection.sendall(head_of(body, headers) + body[:100_000])
            until(lambda: door_figures(daemon.url, "held_bytes")[0] > 0, "the body is on its way")
            assert daemon.ring is not None
            before = daemon.ring
            after = Ring(create_ring(RingGeometry(4, daemon.spec.slot_bytes, newest_wins=False), name="http"))
            after.resume_from(before)
            assert daemon.channel.send(UseRing(), after.handles.fds)
            until(lambda: door_figures(daemon.url, "ring")[0], "the door looks at what it was sent")
            connection.sendall(body[100_000:])
            refused = read_answer(connection)
            assert (refused.status, refused.error) == (503, "the ring of frames was replaced meanwhile")
        after.close()
        after.handles.close()


def _read_answers(connection: socket.socket, count: int) -> list[Answer]:
    """Several responses that may come in one piece."""
    received = bytearray()
    found: list[Answer] = []
    while len(found) < count:
        while b"\r\n\r\n" not in received:
            received += _some(connection)
        head, _, rest = bytes(received).partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:])}
        size = int(fields["content-length"])
        while len(rest) < size:
            rest += _some(connection)
        found.append(Answer(int(lines[0].split(" ")[1]), fields, rest[:size]))
        received = bytearray(rest[size:])
    return found


def _some(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    assert piece, "the server hung up"
    return piece
