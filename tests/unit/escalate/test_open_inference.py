"""The client of the Open Inference Protocol: the bytes of Triton's own client, and replies that lie."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]  # it has no types
from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.cloud_scripts import ScriptedCloud, says

from vedette.clock import SystemClock
from vedette.errors import BadInputError
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.oip_reply import build_json_request, build_request, parse_reply
from vedette.escalate.open_inference import OpenInferenceClient
from vedette.escalate.port import CloudAnswer, CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Sequence

JPEG = b"\xff\xd8\xff\xe0 a picture \xff\xd9"
LABELS = ("cat", "dog", "car")
FAR_S = 1e9


def question(task: Task = Task.CLASSIFY) -> Question:
    return Question("r-1", task, JPEG, 640, 480, LABELS, "What is it?")


def test_the_request_has_the_bytes_of_tritons_own_client() -> None:
    picture = triton.InferInput("image", [1], "BYTES")
    picture.set_data_from_numpy(np.array([JPEG], dtype=np.object_))
    wanted = [triton.InferRequestedOutput(name, binary_data=True) for name in ("labels", "scores")]
    theirs, json_bytes = triton.InferenceServerClient.generate_request_body([picture], outputs=wanted)
    assert build_request(JPEG, "image", ("labels", "scores")) == (json_bytes, theirs)


def test_without_the_binary_extension_the_picture_is_base64_in_json() -> None:
    request = json.loads(build_json_request(JPEG, "image", ("labels", "scores")))
    (picture,) = request["inputs"]
    assert base64.b64decode(picture.pop("data")[0]) == JPEG
    assert picture == {
        "name": "image",
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"content_type": "base64"},
    }
    assert request["outputs"] == [{"name": "labels"}, {"name": "scores"}]


def words(*texts: str) -> bytes:
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def reply(outputs: Sequence[dict[str, Any]], *blobs: bytes) -> tuple[dict[str, str], bytes]:
    head = json.dumps({"model_name": "large", "outputs": outputs}).encode()
    return {"inference-header-content-length": str(len(head))}, head + b"".join(blobs)


def tensor(name: str, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def asked(body: bytes, headers: dict[str, str], task: Task = Task.CLASSIFY) -> CloudAnswer:
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with ScriptedCloud(says(body, headers=extra)) as cloud:
        client = OpenInferenceClient(CloudHttp(cloud.url, SystemClock(), key="k"), "a large/one")
        try:
            found = client.ask(question(task), FAR_S)
        finally:
            client.close()
        assert cloud.requests[0].startswith(b"POST /v2/models/a%20large%2Fone/infer HTTP/1.1")
        assert b"X-Request-Id: r-1" in cloud.requests[0]
    return found


def test_labels_and_scores_are_read_in_both_forms() -> None:
    scores = np.array([0.75, 0.25], "<f4").tobytes()
    headers, body = reply(
        [tensor("labels", "BYTES", [2], len(words("Dog", "cat"))), tensor("scores", "FP32", [2], 8)],
        words("Dog", "cat"),
        scores,
    )
    binary = asked(body, headers)
    plain = json.dumps(
        {
            "outputs": [
                {"name": "labels", "datatype": "BYTES", "shape": [1, 2], "data": [["Dog", "cat"]]},
                {"name": "scores", "datatype": "FP32", "shape": [1, 2], "data": [[0.75, 0.25]]},
            ]
        }
    ).encode()
    text = asked(plain, {})
    for found in (binary, text):
        assert (found.label, found.probabilities) == ("Dog", {"Dog": 0.75, "cat": 0.25})
        assert found.sent_bytes > len(JPEG)


@pytest.mark.parametrize("row", [[0.1, 0.2, 0.7], [-3.0, 1.0, 9.0]])
def test_a_row_of_numbers_is_read_by_the_bundles_labels(row: list[float]) -> None:
    """Probabilities, or logits that are turned into some."""
    headers, body = reply([tensor("output", "FP32", [1, 3], 12)], np.array(row, "<f4").tobytes())
    found = asked(body, headers)
    assert found.label == "car"
    assert sum(found.probabilities.values()) == pytest.approx(1.0)


def test_boxes_are_read_and_those_outside_the_picture_are_not_believed() -> None:
    def answer(box: list[float]) -> tuple[dict[str, str], bytes]:
        return reply(
            [
                tensor("labels", "BYTES", [1], len(words("cat"))),
                tensor("scores", "FP32", [1], 4),
                tensor("boxes", "FP32", [1, 4], 16),
            ],
            words("cat"),
            np.array([0.5], "<f4").tobytes(),
            np.array(box, "<f4").tobytes(),
        )

    headers, body = answer([10, 20, 30, 40])
    assert asked(body, headers, Task.DETECT).boxes[0][:2] == ("cat", (10.0, 20.0, 30.0, 40.0))
    for box in ([30, 20, 10, 40], [10, 20, 3000, 40], [-5, 20, 30, 40], [10, 20, 10, 40]):
        headers, body = answer([float(edge) for edge in box])
        with pytest.raises(CloudError, match="a box at") as caught:
            asked(body, headers, Task.DETECT)
        assert caught.value.fault is CloudFault.MALFORMED


LIES: list[tuple[Any, ...]] = [
    ([tensor("scores", "FP32", [2], 8)], b"\0" * 4),
    ([tensor("scores", "FP32", [2], 8)], b"\0" * 12),
    ([tensor("scores", "FP32", [3], 8)], b"\0" * 8),
    ([tensor("scores", "FP32", [-1], 8)], b"\0" * 8),
    ([tensor("scores", "FP32", [1 << 40], 8)], b"\0" * 8),
    ([tensor("scores", "FP32", [1 << 40, 0], 0)],),
    ([tensor("scores", "FP32", [1], 4), tensor("scores", "FP32", [1], 4)], b"\0" * 8),
    ([tensor("scores", "FP99", [2], 8)], b"\0" * 8),
    ([tensor("scores", "FP32", [2], -8)],),
    ([{"name": "scores", "datatype": "FP32", "shape": [2]}],),
    ([{"name": "scores", "datatype": "FP32", "shape": [2], "data": [1, [2, "x"]]}],),
    ([{"name": "scores", "datatype": "FP32", "shape": [1], "data": [10**400]}],),
    ([{"name": "labels", "datatype": "BYTES", "shape": [1], "data": [3]}],),
    ([tensor("labels", "BYTES", [2], 7)], words("cat")),
    ([tensor("labels", "BYTES", [1], 8)], struct.pack("<I", 1 << 31) + b"cats"),
    ([tensor("labels", "BYTES", [1], 8)], words("cat") + b"!"),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_case_52_a_reply_that_does_not_add_up_is_none(lie: tuple[Any, ...]) -> None:
    headers, body = reply(*lie)
    with pytest.raises(BadInputError):
        parse_reply(headers, body)


@pytest.mark.parametrize("length", ["-1", "99999999", "x", "1e3", ""])
def test_a_json_part_of_no_length(length: str) -> None:
    with pytest.raises(BadInputError, match="length of the JSON part"):
        parse_reply({"inference-header-content-length": length}, b"{}")


@given(st.binary(max_size=300), st.one_of(st.none(), st.integers(0, 400)))
def test_whatever_comes_is_an_answer_or_an_error(body: bytes, length: int | None) -> None:
    headers = {} if length is None else {"inference-header-content-length": str(length)}
    with pytest.raises(BadInputError):
        parse_reply(headers, body)


@pytest.mark.parametrize(
    ("row", "words_in_it"), [([float("nan")] * 3, "no number"), ([0.5, 0.5], "2 numbers for 3 labels")]
)
def test_rows_that_are_no_answer(row: list[float], words_in_it: str) -> None:
    headers, body = reply([tensor("y", "FP32", [len(row)], 4 * len(row))], np.array(row, "<f4").tobytes())
    with pytest.raises(CloudError, match=words_in_it):
        asked(body, headers)


def test_a_page_of_html_with_200_is_no_answer() -> None:
    with ScriptedCloud(says(b"<html>Sign in</html>", content_type="text/html")) as cloud:
        client = OpenInferenceClient(CloudHttp(cloud.url, SystemClock()), "large")
        with pytest.raises(CloudError, match="text/html") as caught:
            client.ask(question(), FAR_S)
        client.close()
    assert caught.value.fault is CloudFault.MALFORMED
