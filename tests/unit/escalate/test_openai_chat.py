"""The chat client: what it asks, and what it takes for an answer (case 52 and its kind)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.cloud_scripts import ScriptedCloud, says

from vedette.clock import SystemClock
from vedette.escalate.chat_reply import Unusable, build_chat, read_chat
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.openai_chat import OpenAiChatClient
from vedette.escalate.port import CloudError, Question, Usage
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

LABELS = ("cat", "catfish", "dog")
FAR_S = 1e9


def question(task: Task = Task.CLASSIFY, labels: tuple[str, ...] = LABELS, prompt: str = "") -> Question:
    return Question("r-1", task, b"\xff\xd8 picture", 640, 480, labels, prompt)


def completion(content: Any, *, finish: str = "stop", **more: Any) -> bytes:  # noqa: ANN401 - JSON is anything
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "finish_reason": finish, "message": message, **more}
    usage = {"prompt_tokens": 300, "completion_tokens": 7}
    return json.dumps({"model": "gpt-x", "choices": [choice], "usage": usage}).encode()


def fault_of(body: bytes, task: Task = Task.CLASSIFY) -> Unusable:
    with pytest.raises(Unusable) as caught:
        read_chat(body, question(task), "norm1000")
    return caught.value


# What is asked ---------------------------------------------------------------------------------------------


def test_the_schema_is_strict_and_the_picture_travels_with_it() -> None:
    asked = json.loads(build_chat(question(), "gpt-x"))
    schema = asked["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"] == {
        "type": "object",
        "additionalProperties": False,
        "required": ["label"],
        "properties": {"label": {"type": "string", "enum": list(LABELS)}},
    }
    text, picture = asked["messages"][0]["content"]
    assert "cat, catfish, dog" in text["text"]
    prefix, _, data = picture["image_url"]["url"].partition(",")
    assert (prefix, base64.b64decode(data)) == ("data:image/jpeg;base64", b"\xff\xd8 picture")
    assert (asked["temperature"], asked["top_logprobs"]) == (0, 20)


def test_a_thousand_labels_are_no_enumeration_and_the_bundles_prompt_is_used() -> None:
    many = tuple(f"label {number}" for number in range(1000))
    asked = json.loads(build_chat(question(labels=many, prompt="Which animal?"), "gpt-x"))
    assert "enum" not in json.dumps(asked["response_format"])
    text = asked["messages"][0]["content"][0]["text"]
    assert text.startswith("Which animal? Allowed labels: label 0,")
    huge = tuple(f"a very long label {number}" for number in range(5000))
    assert (
        "Allowed"
        not in json.loads(build_chat(question(labels=huge), "m"))["messages"][0]["content"][0]["text"]
    )


def test_boxes_are_asked_for_with_room_for_them() -> None:
    asked = json.loads(build_chat(question(Task.DETECT), "gpt-x"))
    objects = asked["response_format"]["json_schema"]["schema"]["properties"]["objects"]
    assert objects["items"]["required"] == ["label", "box"]
    assert "logprobs" not in asked
    assert asked["max_tokens"] >= 1000


# What is answered ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        '{"label": "dog"}',
        ' {"label":"dog"}\n',
        [{"type": "text", "text": '{"label": '}, {"type": "text", "text": '"dog"}'}],
    ],
)
def test_a_label_is_taken_out_of_its_json(content: Any) -> None:  # noqa: ANN401 - JSON is anything
    said = read_chat(completion(content), question(), "norm1000")
    assert (said.label, said.model, said.usage) == ("dog", "gpt-x", Usage(300, 7))
    assert not said.loose


@pytest.mark.parametrize(
    "content",
    [
        '```json\n{"label": "dog"}\n```',
        '```\n{"label": "dog"}\n```\n',
        '```JSON\n{"label": "dog"}```',
        'Sure! {"label": "dog"}',
        'Sure:\n```json\n{"label": "dog"}\n```\nAnything else?',
    ],
)
def test_case_52_one_object_among_words_is_taken_and_told_apart(content: str) -> None:
    said = read_chat(completion(content), question(), "norm1000")
    assert (said.label, said.loose) == ("dog", True)


@pytest.mark.parametrize(
    "content",
    [
        "dog",
        "The picture shows a dog.",
        '[{"label": "dog"}]',
        'Sure! ["cat"] {"label": "dog"}',
        '{"label": "dog",}',
        '{"label": "dog"} and also {"label": "cat"}',
        '{"label": ["dog"]}',
        '{"label": "dog", "ignore": "all rules"}',
        '{"Label": "dog"}',
        '{"label": "do',
        "",
        None,
        7,
        [{"type": "image", "text": '{"label": "dog"}'}],
        "[" * 4000,
    ],
)
def test_case_52_anything_but_that_json_is_no_answer_and_is_paid_for(content: Any) -> None:  # noqa: ANN401
    error = fault_of(completion(content))
    assert (error.fault, error.usage) == (CloudFault.MALFORMED, Usage(300, 7))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (completion(None, message={"refusal": "I cannot"}), CloudFault.REFUSED),
        (completion("", finish="content_filter"), CloudFault.REFUSED),
        (completion('{"label": "d', finish="length"), CloudFault.CUT),
        (b"<html>", CloudFault.MALFORMED),
        (b"[]", CloudFault.MALFORMED),
        (b'{"choices": []}', CloudFault.MALFORMED),
        (b'{"choices": [null]}', CloudFault.MALFORMED),
        (b'{"choices": [{"message": []}]}', CloudFault.MALFORMED),
    ],
)
def test_refused_cut_and_empty(body: bytes, fault: CloudFault) -> None:
    assert fault_of(body).fault is fault


def test_a_price_that_is_no_number_is_not_believed() -> None:
    body = json.loads(completion('{"label": "dog"}'))
    body["usage"] = {"prompt_tokens": -5, "completion_tokens": "many"}
    assert read_chat(json.dumps(body).encode(), question(), "norm1000").usage == Usage(0, 0)


def test_probabilities_are_those_of_whole_labels_only() -> None:
    """`cat` begins two labels: that token tells nothing. Over what is told they sum to 1."""
    top = [
        {"token": "dog", "logprob": -0.5},
        {"token": '"catf', "logprob": -1.5},
        {"token": "cat", "logprob": -2.0},
        {"token": "bird", "logprob": -3.0},
    ]
    logprobs = {"content": [{"token": '{"', "top_logprobs": []}, {"token": "dog", "top_logprobs": top}]}
    said = read_chat(completion('{"label": "dog"}', logprobs=logprobs), question(), "norm1000")
    assert set(said.probabilities) == {"dog", "catfish"}
    assert sum(said.probabilities.values()) == pytest.approx(1.0)
    assert said.probabilities["dog"] == pytest.approx(0.731, abs=0.001)
    assert read_chat(completion('{"label": "dog"}'), question(), "norm1000").probabilities == {}


@pytest.mark.parametrize(
    ("box_format", "box"),
    [("norm1000", [250, 500, 500, 1000]), ("norm1", [0.25, 0.5, 0.5, 1]), ("pixel", [160, 240, 320, 480])],
)
def test_boxes_come_in_the_units_of_the_configuration(box_format: Any, box: list[float]) -> None:  # noqa: ANN401
    content = json.dumps({"objects": [{"label": "dog", "box": box}]})
    said = read_chat(completion(content), question(Task.DETECT), box_format)
    (found,) = said.boxes
    assert (found.label, found.score) == ("dog", None)
    assert found.box == pytest.approx((160.0, 240.0, 320.0, 480.0))


@pytest.mark.parametrize(
    "box", [[0, 0, 1001, 10], [10, 0, 5, 10], [0, 0, 0, 10], [-1, 0, 5, 10], [0, 0, 10], [0, 0, None, 10]]
)
def test_boxes_that_are_none_spoil_the_answer(box: list[float | None]) -> None:
    content = json.dumps({"objects": [{"label": "dog", "box": box}]})
    assert fault_of(completion(content), Task.DETECT).fault is CloudFault.MALFORMED


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(body: bytes) -> None:
    with pytest.raises(Unusable):
        read_chat(body, question(), "norm1000")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON, JSON)
def test_any_json_in_the_usual_places_is_an_answer_or_an_error(
    content: object, logprobs: object, usage: object
) -> None:
    choice = {"message": {"content": content, "refusal": None}, "logprobs": logprobs}
    body = json.dumps({"choices": [choice], "usage": usage, "model": logprobs}).encode()
    with pytest.raises(Unusable):
        read_chat(body, question(), "norm1000")


# Over the wire ---------------------------------------------------------------------------------------------


def test_a_question_over_http() -> None:
    with ScriptedCloud(says(completion('{"label": "cat"}'))) as cloud:
        client = OpenAiChatClient(CloudHttp(cloud.url + "/v1", SystemClock(), key="k3y"), "gpt-x")
        answer = client.ask(question(), FAR_S)
        client.close()
        assert cloud.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1")
        assert b"Authorization: Bearer k3y" in cloud.requests[0]
    assert (answer.label, answer.model, answer.usage.prompt_tokens) == ("cat", "gpt-x", 300)
    assert answer.took_s > 0


@pytest.mark.parametrize(
    ("script", "fault", "final", "again_s"),
    [
        (
            says(b"{}", status="429 Too Many Requests", headers="Retry-After: 7\r\n"),
            CloudFault.BUSY,
            False,
            7.0,
        ),
        (
            says(b'{"error": {"code": "insufficient_quota"}}', status="429 Too Many Requests"),
            CloudFault.QUOTA,
            True,
            None,
        ),
        (says(b"<html>", content_type="text/html"), CloudFault.MALFORMED, False, None),
        (says(b"", status="502 Bad Gateway"), CloudFault.SERVER, False, None),
    ],
)
def test_errors_over_http(script: Any, fault: CloudFault, again_s: float | None, *, final: bool) -> None:  # noqa: ANN401
    with ScriptedCloud(script) as cloud:
        client = OpenAiChatClient(CloudHttp(cloud.url, SystemClock()), "gpt-x")
        with pytest.raises(CloudError) as caught:
            client.ask(question(), FAR_S)
        client.close()
    error = caught.value
    assert (error.fault, error.final, error.retry_after_s) == (fault, final, again_s)
    assert error.sent_bytes > 0
