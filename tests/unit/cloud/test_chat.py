"""OpenAI's chat as a facade for classification: what is taken, what is refused by name, what is answered."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.wire.messages import Label, ModelRef
from vedette_cloud.chat_answer import build_completion, choose, picture_tokens
from vedette_cloud.chat_request import ChatRefusedError, parse_chat

PICTURE = b"\xff\xd8 a picture"
URL = "data:image/jpeg;base64," + base64.b64encode(PICTURE).decode()
MODEL = ModelRef("large", "1", "0" * 64)
RANKING = (Label("cat", 0, 0.6), Label("dog", 1, 0.3), Label("crane", 2, 0.06), Label("crane", 3, 0.04))


def chat(url: str = URL, **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    content = [{"type": "text", "text": "Classify."}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps(
        {"model": "large", "messages": [{"role": "user", "content": content}], **fields}
    ).encode()


def schema(labels: list[str] | None, field: str = "label") -> dict[str, Any]:
    rule: dict[str, Any] = {"type": "string"} if labels is None else {"type": "string", "enum": labels}
    return {
        "type": "json_schema",
        "json_schema": {"name": "c", "schema": {"type": "object", "properties": {field: rule}}},
    }


def refusal(body: bytes) -> ChatRefusedError:
    with pytest.raises(ChatRefusedError) as caught:
        parse_chat(body)
    return caught.value


def test_a_picture_and_a_choice_are_read() -> None:
    request = parse_chat(chat(response_format=schema(["cat", "dog"], "kind"), logprobs=True, top_logprobs=2))
    assert request.picture == PICTURE
    assert (request.field, request.labels, request.top_logprobs) == ("kind", ("cat", "dog"), 2)
    assert request.text_bytes == len("Classify.")


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"stream": True}, "stream", "does not stream"),
        ({"n": 2}, "n", "one answer"),
        ({"tools": [{}]}, "tools", "no tools"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs: true"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "no json_schema"),
        ({"response_format": schema([])}, "response_format", "enum has 1 to"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}},
            "response_format",
            "one property",
        ),
    ],
)
def test_what_a_classifier_cannot_do_is_refused_by_name(
    fields: dict[str, Any], param: str, told: str
) -> None:
    error = refusal(chat(**fields))
    assert (error.status, error.param) == (400, param)
    assert told in error.cause


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "https://a.example/b.jpg", "file:///etc/passwd"]
)
def test_nothing_is_fetched_for_a_client(url: str) -> None:
    error = refusal(chat(url))
    assert error.code == "invalid_image_url"
    assert "not fetched" in error.cause


@pytest.mark.parametrize(
    "url", ["", "cat.jpg", "data:text/html;base64,YQ==", "data:image/jpeg;base64,%%%", "data:image/jpeg,a"]
)
def test_what_is_no_data_url_of_a_picture_is_told(url: str) -> None:
    assert refusal(chat(url)).code == "invalid_image_url"


def test_one_picture_a_request() -> None:
    assert (
        "0 were given"
        in refusal(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()).cause
    )


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"model": "m", "messages": value}).encode()
    )
)
def test_any_body_is_a_request_or_a_refusal(body: bytes) -> None:
    try:
        found: int | str = parse_chat(body).model
    except ChatRefusedError as error:
        found = error.status
    assert found in {400, "m"}


def test_the_best_of_the_allowed_labels_is_answered_and_shares_add_up() -> None:
    choice = choose(RANKING, ("dog", "crane", "unheard of"))
    assert choice.label == "dog"
    assert dict(choice.likely) == pytest.approx({"dog": 0.75, "crane": 0.25})  # two classes of one name


def test_labels_that_the_model_has_not_are_no_guess() -> None:
    with pytest.raises(ChatRefusedError, match="none of these 2 labels") as caught:
        choose(RANKING, ("x", "y"))
    assert caught.value.code == "unknown_labels"


def complete(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    request = parse_chat(chat(**fields))
    choice = choose(RANKING, request.labels)
    return build_completion(request, choice, MODEL, size=(640, 480), id_="c-1", created_utc_s=1)


def test_the_answer_is_the_json_that_was_asked_for() -> None:
    done = complete(response_format=schema(["cat", "dog"], 'a "b"'))
    assert json.loads(done["choices"][0]["message"]["content"]) == {'a "b"': "cat"}
    assert done["choices"][0]["finish_reason"] == "stop"
    assert (
        done["usage"]["total_tokens"] == done["usage"]["prompt_tokens"] + done["usage"]["completion_tokens"]
    )


def test_without_a_form_the_answer_is_the_label() -> None:
    assert complete()["choices"][0]["message"]["content"] == "cat"
    assert complete()["choices"][0]["logprobs"] is None


def test_logprobs_are_the_scores_of_whole_labels() -> None:
    done = complete(response_format=schema(["cat", "dog"]), logprobs=True, top_logprobs=5)
    tokens = done["choices"][0]["logprobs"]["content"]
    content = done["choices"][0]["message"]["content"]
    assert "".join(entry["token"] for entry in tokens) == content
    assert bytes(byte for entry in tokens for byte in entry["bytes"]).decode() == content
    shares = {entry["token"]: math.exp(entry["logprob"]) for entry in tokens[1]["top_logprobs"]}
    assert shares == pytest.approx({"cat": 2 / 3, "dog": 1 / 3})


def test_an_answer_that_is_cut_says_so() -> None:
    done = complete(response_format=schema(["cat"]), max_tokens=2)
    assert done["choices"][0]["finish_reason"] == "length"
    assert done["choices"][0]["message"]["content"] == '{"label":"cat'
    assert done["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((4096, 4096), "low", 85),
        ((512, 512), "auto", 85),
        ((640, 480), "auto", 425),
        ((1024, 1024), "high", 765),  # OpenAI's own two examples
        ((2048, 4096), "high", 1105),
    ],
)
def test_pictures_count_by_the_rule_of_tiles(size: tuple[int, int], detail: Any, tokens: int) -> None:  # noqa: ANN401 - a literal
    assert picture_tokens(*size, detail) == tokens
