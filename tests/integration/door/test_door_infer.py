"""Inference through the real door process: a real server, a real ring, real channels."""

from __future__ import annotations

import io
import json
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from PIL import Image
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
from tests.integration.door.fake_daemon import LOADING, MODEL, READY, SLOT_BYTES, FakeDaemon
from tests.stubs.waiting import until

from vedette.wire.messages import Failure, ModelRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

INFER = "/v2/models/redness/infer"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDaemon]:
    """One door for the stories that leave it as it was."""
    with FakeDaemon(tmp_path_factory.mktemp("door")) as running:
        running.lend_ring()
        until(lambda: ask(running.url, "/readyz").status == 200, "the door is ready")
        yield running


def scene(x: int = 20, y: int = 30) -> NDArray[np.uint8]:
    """RGB, 160 by 120, blue, with a red part of 40 by 20 at x, y."""
    pixels = np.zeros((120, 160, 3), np.uint8)
    pixels[:, :, 2] = 200
    pixels[y : y + 20, x : x + 40] = (255, 0, 0)
    return pixels


def packed(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def boxes_of(answer: Answer) -> list[list[float]]:
    assert answer.status == 200, answer
    boxes = tensors_of(answer)["boxes"]
    if isinstance(boxes, bytes):
        return np.frombuffer(boxes, "<f4").reshape(-1, 4).tolist()
    return np.array(boxes, float).reshape(-1, 4).tolist()


def infer_pixels(where: str, pixels: NDArray[np.uint8], **fields: object) -> Answer:
    entry = {"name": "image", "shape": list(pixels.shape), "datatype": "UINT8"}
    body, headers = binary_request([(entry, pixels.tobytes())], **fields)
    return ask(where, INFER, body=body, headers=headers)


def test_one_scene_held_four_ways_gives_one_box(daemon: FakeDaemon) -> None:
    """Case 19: EXIF 1, 3, 6, 8; boxes within a pixel, in upright coordinates."""
    upright = Image.fromarray(scene())
    turns = {
        1: None,
        3: Image.Transpose.ROTATE_180,
        6: Image.Transpose.ROTATE_90,
        8: Image.Transpose.ROTATE_270,
    }
    for orientation, turn in turns.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = upright if turn is None else upright.transpose(turn)
        body, headers = picture_request(packed(stored, "JPEG", quality=98, subsampling=0, exif=exif))
        (box,) = boxes_of(ask(daemon.url, INFER, body=body, headers=headers))
        assert np.abs(np.array(box) - (20, 30, 60, 50)).max() <= 1, f"EXIF {orientation}: {box}"


def test_clear_grey_deep_palette_and_cmyk_pictures_are_answered(daemon: FakeDaemon) -> None:
    """Case 19: what is red stays red where there is colour, and a clear part is not seen."""
    upright = Image.fromarray(scene())
    clear = upright.convert("RGBA")
    clear.putalpha(Image.new("L", clear.size, 0))
    kinds = {
        "palette": packed(upright.convert("P", palette=Image.Palette.ADAPTIVE)),
        "opaque alpha": packed(upright.convert("RGBA")),
        "cmyk": packed(upright.convert("CMYK"), "JPEG", quality=98),
        "webp": packed(upright, "WEBP", lossless=True),
        "clear": packed(clear),
        "grey": packed(upright.convert("L")),
        "grey 16": packed(Image.fromarray(np.full((120, 160), 40000, np.uint16))),
    }
    found = {}
    for kind, data in kinds.items():
        body, headers = picture_request(data)
        found[kind] = len(boxes_of(ask(daemon.url, INFER, body=body, headers=headers)))
    assert found == {
        "palette": 1, "opaque alpha": 1, "cmyk": 1, "webp": 1, "clear": 0, "grey": 0, "grey 16": 0,
    }  # fmt: skip


def test_raw_pixels_raw_tensors_json_and_binary_outputs(daemon: FakeDaemon) -> None:
    """The three kinds of input, and both kinds of output."""
    assert boxes_of(infer_pixels(daemon.url, scene())) == [[20, 30, 60, 50]]
    whole = infer_pixels(daemon.url, scene()[None], parameters={"binary_data_output": True}, id="a")
    assert boxes_of(whole) == [[20, 30, 60, 50]]
    assert whole.headers["content-type"] == "application/octet-stream"
    line = json.loads(tensors_of(whole)["result"][4:])
    assert line["detections"][0]["box"] == [20, 30, 60, 50]
    some = infer_pixels(
        daemon.url,
        scene(),
        outputs=[{"name": "scores", "parameters": {"binary_data": True}}, {"name": "labels"}],
    )
    assert tensors_of(some) == {"scores": struct.pack("<f", 0.9), "labels": ["red"]}
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [[1, 2.5, -3, 0]]}
    answered = ask(
        daemon.url,
        INFER,
        body=json.dumps({"inputs": [tensor]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert tensors_of(answered) == {"y": [2, 5, -6, 0]}


def test_many_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    """The kind of case 11: 60 requests from 20 clients over 3 slots, outcomes in batches, last one first."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        daemon.hold_back = 1

        def client(number: int) -> tuple[int, list[list[float]]]:
            return number, boxes_of(infer_pixels(daemon.url, scene(x=number, y=number)))

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(client, range(60)))
        assert answers == [(n, [[n, n, n + 40, n + 20]]) for n in range(60)]


def test_tritons_own_client_works_unmodified(daemon: FakeDaemon) -> None:
    """The outside check of the protocol: health, metadata, BYTES and UINT8, binary outputs."""
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    with triton.InferenceServerClient(daemon.url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("redness", "3")
        assert not client.is_model_ready("redness", "4")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        assert client.get_model_metadata("redness")["versions"] == ["3"]
        picture = triton.InferInput("image", [1], "BYTES")
        picture.set_data_from_numpy(np.array([packed(Image.fromarray(scene()))], dtype=object))
        result = client.infer("redness", [picture])
        assert result.as_numpy("boxes").tolist() == [[20, 30, 60, 50]]
        assert result.as_numpy("labels").tolist() == [b"red"]
        pixels = triton.InferInput("image", [120, 160, 3], "UINT8")
        pixels.set_data_from_numpy(scene())
        wanted = [triton.InferRequestedOutput("boxes", binary_data=False)]
        result = client.infer("redness", [pixels], outputs=wanted, request_id="r7", model_version="3")
        assert result.get_response()["id"] == "r7"
        assert result.as_numpy("boxes").tolist() == [[20, 30, 60, 50]]
        tensor = triton.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.array([[1, 2, 3, 4]], np.float32))
        assert client.infer("redness", [tensor]).as_numpy("y").tolist() == [[2, 4, 6, 8]]
        with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
            client.infer("other", [tensor])


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"path": "/v2/models/other/infer"}, 404, "no model 'other'"),
        ({"path": "/v2/models/redness/versions/9/infer"}, 404, "of version '9'"),
        ({"path": "/v2/models/redness/infer/more"}, 404, "no such path"),
        ({"method": "GET"}, 405, "cannot be asked so"),
        ({"headers": {"Content-Type": "text/plain"}}, 415, "application/octet-stream"),
        ({"headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 415, "form"),
        ({"headers": {"Content-Encoding": "gzip"}}, 415, "gzip"),
        ({"headers": {"Content-Length": str(1 << 40)}, "body": b""}, 413, "33554432"),
        ({"headers": {"Inference-Header-Content-Length": "7"}}, 400, "the body has 2"),
        ({"body": b"\xff\xfe"}, 400, "not an inference request"),
        ({"body": b"[]"}, 400, "not an inference request"),
        ({"headers": {"Host": "evil.example"}}, 421, "evil.example"),
        ({"headers": {"Origin": "http://evil.example"}}, 403, "other web pages"),
    ],
)
def test_every_refusal_has_its_status_and_says_why(
    daemon: FakeDaemon, changes: dict[str, object], status: int, words: str
) -> None:
    """The protocol's {"error": "…"} on every path."""
    request = {"path": INFER, "method": "POST", "body": b"{}", "headers": {}, **changes}
    with connect(daemon.url) as connection:
        send_request(
            connection,
            str(request["method"]),
            str(request["path"]),
            body=bytes(request["body"]),  # type: ignore[call-overload]
            headers=dict(request["headers"]),  # type: ignore[call-overload]
        )
        answer = read_answer(connection)
    assert answer.status == status
    assert words in answer.error


def test_a_picture_that_unpacks_to_far_more_is_refused(daemon: FakeDaemon) -> None:
    """A few kilobytes of PNG with 25 million pixels: refused before the memory is taken."""
    bomb = packed(Image.new("1", (5000, 5000)))
    body, headers = picture_request(bomb)
    assert len(body) < 200_000
    answer = ask(daemon.url, INFER, body=body, headers=headers)
    assert answer.status == 413
    assert "http.max_picture" in answer.error


def test_a_picture_that_fits_no_slot_is_refused_and_the_next_is_answered(daemon: FakeDaemon) -> None:
    """413 for 1280 by 960 where a slot holds 640 by 480."""
    answer = infer_pixels(daemon.url, np.zeros((960, 1280, 3), np.uint8))
    assert answer.status == 413
    assert str(SLOT_BYTES) in answer.error
    assert boxes_of(infer_pixels(daemon.url, scene())) == [[20, 30, 60, 50]]


@pytest.mark.parametrize(
    ("cause", "status"), [("worker_crashed", 503), ("no_worker", 503), ("infer", 500), ("bad_output", 500)]
)
def test_a_frame_that_failed_is_an_error_with_its_cause(daemon: FakeDaemon, cause: str, status: int) -> None:
    """Never an empty answer; 503 tells when to try again."""
    daemon.fail_next.append(Failure(cause, "the reason"))
    answer = infer_pixels(daemon.url, scene())
    assert answer.status == status
    assert f"{cause} (the reason)" in answer.error
    assert ("retry-after" in answer.headers) == (status == 503)


def test_while_the_model_loads_callers_hear_so_at_once(tmp_path: Path) -> None:
    """Case 2: an engine build takes minutes; nobody waits for it in an HTTP request."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.description = LOADING
        for path in ("/readyz", "/v2/health/ready", "/v2/models/redness", "/v2/models/redness/ready"):
            answer = ask(daemon.url, path)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")
            assert answer.error == "loading redness 3: building an engine"
        assert infer_pixels(daemon.url, scene()).status == 503
        assert ask(daemon.url, "/v2/health/live").status == 200
        assert ask(daemon.url, "/healthz").status == 200
        daemon.description = READY
        until(lambda: "ring" in ask(daemon.url, "/readyz").error, "the model is ready, the ring not yet")
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "all is there")
        assert boxes_of(infer_pixels(daemon.url, scene())) == [[20, 30, 60, 50]]
        daemon.description = None
        until(lambda: ask(daemon.url, "/readyz").status == 503, "the daemon stopped answering")


def test_a_worker_that_hangs_costs_a_timeout_and_a_full_ring_a_503(tmp_path: Path) -> None:
    """504 for frames in the ring, 503 for those that found no slot; when it goes on, so does the door."""
    with FakeDaemon(tmp_path, request_timeout_s=0.6) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        daemon.serving.clear()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: infer_pixels(daemon.url, scene()), range(8)))
        statuses = sorted(answer.status for answer in answers)
        assert statuses == [503] * 5 + [504] * 3
        assert all("retry-after" in answer.headers for answer in answers)
        daemon.serving.set()
        until(lambda: infer_pixels(daemon.url, scene()).status == 200, "the slots came back")
        assert door_figures(daemon.url, "in_flight", "waiting", "held_bytes") == [0, 0, 0]
        assert door_figures(daemon.url, "unclaimed") == [3], "the late answers of the 504s"


def test_a_client_that_went_away_holds_no_slot(tmp_path: Path) -> None:
    """Its outcome is ignored, and what waited for a slot in its name is not put into the ring."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        daemon.serving.clear()
        entry = {"name": "image", "shape": [120, 160, 3], "datatype": "UINT8"}
        body, headers = binary_request([(entry, scene().tobytes())])
        impatient = [connect(daemon.url) for _ in range(6)]
        for connection in impatient:
            send_request(connection, "POST", INFER, body=body, headers=headers)
        until(
            lambda: door_figures(daemon.url, "in_flight", "waiting") == [3, 3],
            "three in the ring, three wait",
        )
        for connection in impatient:
            connection.close()
        until(lambda: door_figures(daemon.url, "waiting") == [0], "nobody waits in their name")
        daemon.serving.set()
        assert boxes_of(infer_pixels(daemon.url, scene())) == [[20, 30, 60, 50]]
        assert len(daemon.formats) == 4, "three that were in the ring, and ours"


def test_a_model_that_takes_over_is_named_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names who gave it; who asked for a version that is gone is told, not served another."""
    with FakeDaemon(tmp_path) as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        newer = ModelRef("redness", "4", "cd" * 32)
        monkeypatch.setattr("tests.integration.door.fake_daemon.MODEL", newer)
        body, headers = picture_request(packed(Image.fromarray(scene())))
        asked_by_version = ask(daemon.url, "/v2/models/redness/versions/3/infer", body=body, headers=headers)
        assert asked_by_version.status == 503
        assert "'4' took over" in asked_by_version.error
        daemon.description = msgspec.structs.replace(READY, model=newer)
        answer = ask(daemon.url, INFER, body=body, headers=headers)
        assert answer.json()["model_version"] == "4"
        until(
            lambda: ask(daemon.url, "/v2/models/redness/versions/4").status == 200, "the newer one is known"
        )
        assert ask(daemon.url, "/v2/models/redness/versions/3").status == 404
    assert MODEL.version == "3"


def test_two_doors_share_no_address_and_a_unix_socket_serves(tmp_path: Path) -> None:
    """`unix:PATH` answers under any Host; the second door says why it cannot open."""
    with FakeDaemon(tmp_path, listen=f"unix:{tmp_path}/h.sock") as daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.where, "/readyz").status == 200, "the door is ready")
        assert boxes_of(infer_pixels(daemon.where, scene())) == [[20, 30, 60, 50]]
        other = tmp_path / "second"
        other.mkdir()
        with FakeDaemon(other, listen=f"unix:{tmp_path}/h.sock") as second:
            assert second.process.wait(10) == 69
            assert "another program answers" in str(second.heard()[-1])
        assert ask(daemon.where, "/healthz").status == 200


def test_without_httptools_the_other_parser_serves(tmp_path: Path) -> None:
    """A box may lack the C parser; h11 gives the same answers, and is guarded in the same way."""
    (tmp_path / "httptools.py").write_text("raise ImportError('not on this box')\n", encoding="utf-8")
    daemon = FakeDaemon(tmp_path, head_timeout_s=0.3)
    daemon.environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with daemon:
        daemon.lend_ring()
        until(lambda: ask(daemon.url, "/readyz").status == 200, "the door is ready")
        assert boxes_of(infer_pixels(daemon.url, scene())) == [[20, 30, 60, 50]]
        with connect(daemon.url) as connection:
            for _ in range(2):
                send_request(connection, "GET", "/v2")
                assert read_answer(connection).status == 200
            connection.sendall(b"GET / HTTP/1.1\r\n")
            assert connection.recv(100) == b"", "a head that does not come ends the connection"


def test_pixels_reach_the_slot_whatever_the_network_does_with_the_body(daemon: FakeDaemon) -> None:
    """The same answer for a body in one piece, in crumbs, and in chunks."""
    entry = {"name": "image", "shape": [120, 160, 3], "datatype": "UINT8"}
    body, headers = binary_request([(entry, scene().tobytes())])
    with connect(daemon.url) as connection:
        send_request(connection, "POST", INFER, headers={**headers, "Content-Length": str(len(body))})
        pause = threading.Event()
        for start in range(0, len(body), 9973):
            connection.sendall(body[start : start + 9973])
            pause.wait(0.001)
        assert boxes_of(read_answer(connection)) == [[20, 30, 60, 50]]
        chunked = {**headers, "Content-Length": "", "Transfer-Encoding": "chunked"}
        send_request(connection, "POST", INFER, headers=chunked)
        for start in range(0, len(body), 20_000):
            piece = body[start : start + 20_000]
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")
        assert boxes_of(read_answer(connection)) == [[20, 30, 60, 50]]
