"""The cloud server as its own process, asked by clients not written here, and by the agent's own."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import openai
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from tests.integration.cloud_server.served import Served
from tests.integration.door.asking import ask, connect, picture_request, read_answer, tensors_of
from tests.stubs.cloud_bundles import LABELS, colour_bundle
from tests.stubs.mqtt_certificates import Authority
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.open_inference import OpenInferenceClient
from vedette.escalate.openai_chat import OpenAiChatClient
from vedette.escalate.port import CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.system]
INFER = "/v2/models/tiny/infer"
CHAT = "/v1/chat/completions"
TOKEN = "front-door-" + "7" * 20
OTHER = "back-yard--" + "8" * 20
BGR = {"red": (0, 0, 255), "green": (0, 255, 0), "blue": (255, 0, 0)}


def jpeg(colour: str, side: int = 32) -> bytes:
    """A picture of one colour."""
    pixels = np.full((side, side, 3), BGR[colour], np.uint8)
    return bytes(cv2.imencode(".jpg", pixels)[1])


def schema(labels: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """The `response_format` that the agent sends."""
    rule = {"type": "string", "enum": list(labels)}
    body = {
        "type": "object",
        "properties": {"label": rule},
        "required": ["label"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": body}}


def messages(picture: bytes) -> Any:  # noqa: ANN401 - JSON
    """A chat with one picture."""
    url = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
    return [
        {
            "role": "user",
            "content": [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}}],
        }
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("cloud")
    with Served(folder, colour_bundle(folder / "bundle"), "--batch", "4", "--max-body-mb", "1") as served:
        yield served


def test_people_are_told_what_is_served_where_and_how_to_ask(server: Served) -> None:
    assert server.ready["batches"] == [1, 2, 4]
    assert server.ready["accelerator"] == "cpu"
    for said in (INFER, CHAT, "provider: oip", f"url: {server.url}", "1, 2, 4 run as one"):
        assert said in server.said


def test_tritons_client_reads_what_there_is_and_gets_answers(server: Served) -> None:
    client = triton.InferenceServerClient(server.where)
    try:
        assert client.is_server_ready()
        assert client.is_model_ready("tiny", "1")
        assert "image" in [entry["name"] for entry in client.get_model_metadata("tiny")["inputs"]]
        picture = triton.InferInput("image", [1], "BYTES")
        picture.set_data_from_numpy(np.array([jpeg("blue")], dtype=object))
        found = client.infer("tiny", [picture], request_id="r-1")
        assert found.as_numpy("labels")[0] == b"blue"
        assert found.get_response()["id"] == "r-1"
        tensor = triton.InferInput("picture", [1, 3, 8, 8], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 3, 8, 8), np.float32))
        assert client.infer("tiny", [tensor]).as_numpy("scores").shape == (1, 4)
    finally:
        client.close()


def test_openais_client_gets_the_json_it_asked_for_with_probabilities_and_usage(server: Served) -> None:
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20)
    assert [model.id for model in client.models.list()] == ["tiny"]
    done = client.chat.completions.create(
        model="tiny",
        messages=messages(jpeg("green")),
        response_format=schema(("red", "green")),
        logprobs=True,
        top_logprobs=5,
    )
    choice = done.choices[0]
    assert json.loads(choice.message.content or "") == {"label": "green"}
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [top.token for top in choice.logprobs.content[1].top_logprobs] == ["green", "red"]
    assert done.usage is not None
    assert done.usage.prompt_tokens == 86
    with pytest.raises(openai.BadRequestError, match="not stream"):
        client.chat.completions.create(model="tiny", messages=messages(jpeg("red")), stream=True)
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=messages(jpeg("red")))
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("kind", ["oip", "openai"])
def test_the_agents_own_clients_understand_it(server: Served, kind: str) -> None:
    http = CloudHttp(server.url + ("/v1" if kind == "openai" else ""), SystemClock())
    client = OpenInferenceClient(http, "tiny") if kind == "oip" else OpenAiChatClient(http, "tiny")
    question = Question("r-2", Task.CLASSIFY, jpeg("blue"), 32, 32, LABELS, "")
    answer = client.ask(question, time.monotonic() + 15)
    client.close()
    assert answer.label == "blue"
    assert max(answer.probabilities, key=answer.probabilities.__getitem__) == "blue"
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=0.01)


def test_requests_at_once_are_run_together(server: Served) -> None:
    body, headers = picture_request(jpeg("red"))
    wrong: list[bytes] = []

    def client() -> None:
        for _ in range(10):
            answer = ask(server.where, INFER, body=body, headers=headers)
            if answer.status != 200 or tensors_of(answer)["labels"][0] != "red":
                wrong.append(answer.body)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    figures = ask(server.where, "/metrics").body.decode()
    count, total = (_figure(figures, f"vedette_cloud_batch_size_{name}") for name in ("count", "sum"))
    assert total > count


def _figure(text: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v2/models/other/infer", b"{}", 404, "'tiny' of version '1' serves"),
        (INFER, b"{", 400, "is not an inference request"),
        (INFER, b"x" * (2 << 20), 413, "a request may have"),
        ("/v2/nothing", b"", 404, "no such path"),
    ],
)
def test_what_cannot_be_answered_is_told(
    server: Served, path: str, body: bytes, status: int, told: str
) -> None:
    answer = ask(server.where, path, body=body, headers={"Content-Type": "application/json"})
    assert answer.status == status
    assert told in answer.error


def test_errors_of_the_chat_have_openais_form(server: Served) -> None:
    answer = ask(server.where, CHAT, body=b"{}", headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert answer.status == 400
    assert error["type"] == "invalid_request_error"
    assert "model" in error["message"]
    assert ask(server.where, "/v1/nothing").json()["error"]["message"] == "there is no such path"


def test_a_picture_that_is_none_costs_nobody_else_anything(server: Served) -> None:
    body, headers = picture_request(b"\xff\xd8 no picture")
    assert ask(server.where, INFER, body=body, headers=headers).status == 400
    body, headers = picture_request(jpeg("red"))
    assert ask(server.where, INFER, body=body, headers=headers).status == 200


def test_whoever_sends_nothing_after_the_head_is_cut(server: Served) -> None:
    with connect(server.where) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode() + b"{")
        answer = read_answer(connection)
    assert answer.status == 408
    assert "nothing of the body came" in answer.error


def test_a_process_that_dies_costs_its_batch_and_not_the_server(server: Served) -> None:
    body, headers = picture_request(jpeg("red"))
    (before,) = server.models()
    os.kill(before, signal.SIGKILL)
    seen = set()

    def answered() -> bool:
        answer = ask(server.where, INFER, body=body, headers=headers)
        seen.add(answer.status)
        assert answer.status in {200, 503}, answer.body
        if answer.status == 503:
            assert answer.headers["retry-after"]
        assert ask(server.where, "/healthz").status == 200
        return answer.status == 200 and server.models() not in ([], [before])

    until(answered, "an answer of the next process", timeout_s=60)
    assert _figure(ask(server.where, "/metrics").body.decode(), "vedette_cloud_process_losses_total") == 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With tokens, a budget and a certificate."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} front-door\n{OTHER} back-yard\n", encoding="ascii")
    authority = Authority(folder / "authority")
    pair = authority.certificate("server", host="127.0.0.1")
    options = (
        "--tokens",
        str(tokens),
        "--per-minute",
        "3",
        "--tls-cert",
        str(pair.cert),
        "--tls-key",
        str(pair.key),
    )
    with Served(folder, colour_bundle(folder / "bundle"), *options) as served:
        served.ca = str(authority.path)
        yield served


def _question(served: Served, key: str) -> Any:  # noqa: ANN401 - an answer
    http = CloudHttp(served.url, SystemClock(), key=key, ca=served.ca)
    client = OpenInferenceClient(http, "tiny")
    try:
        return client.ask(
            Question("r", Task.CLASSIFY, jpeg("red"), 32, 32, LABELS, ""), time.monotonic() + 15
        )
    finally:
        client.close()


def test_who_does_not_say_who_it_is_gets_nothing(guarded: Served) -> None:
    for key, status in (("", "401"), ("x" * 30, "403")):
        with pytest.raises(CloudError) as caught:
            _question(guarded, key)
        assert caught.value.fault is CloudFault.FORBIDDEN
        assert status in caught.value.cause


def test_a_device_beyond_its_budget_is_told_when_to_come_again_and_others_are_answered(
    guarded: Served,
) -> None:
    for _ in range(3):
        assert _question(guarded, TOKEN).label == "red"
    with pytest.raises(CloudError) as caught:
        _question(guarded, TOKEN)
    error = caught.value
    assert error.fault is CloudFault.BUSY
    assert "3 requests a minute" in error.cause
    assert error.retry_after_s is not None
    assert 50 <= error.retry_after_s <= 62
    assert _question(guarded, OTHER).label == "red"
