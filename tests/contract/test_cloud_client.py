"""What whoever asks a large model may rely on, for both real clients and the fake."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.cloud_scripts import ScriptedCloud, mute, says
from tests.stubs.fake_cloud import FakeCloud

from vedette.clock import SystemClock
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.open_inference import OpenInferenceClient
from vedette.escalate.openai_chat import OpenAiChatClient
from vedette.escalate.port import CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from vedette.escalate.port import CloudClient

    Opening: TypeAlias = Callable[[str], contextlib.AbstractContextManager[CloudClient]]

QUESTION = Question("r-1", Task.CLASSIFY, b"\xff\xd8 picture", 64, 48, ("cat", "dog"), "")
OIP = json.dumps(
    {
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": [1], "data": ["dog"]},
            {"name": "scores", "datatype": "FP32", "shape": [1], "data": [0.9]},
        ]
    }
).encode()
CHAT = json.dumps({"choices": [{"message": {"content": '{"label": "dog"}'}}]}).encode()
BUSY = says(b"{}", status="503 Service Unavailable", headers="Retry-After: 2\r\n")
SLACK_S = 12.0


@contextlib.contextmanager
def _fake(mood: str) -> Iterator[CloudClient]:
    busy = CloudError(CloudFault.BUSY, "later", retry_after_s=2.0, sent_bytes=3)
    said: dict[str, str | CloudError | None] = {"good": "dog", "busy": busy, "mute": None}
    client = FakeCloud(said[mood])
    yield client
    client.close()


def _over_http(answer: bytes, make: Callable[[CloudHttp], CloudClient]) -> Opening:
    @contextlib.contextmanager
    def opened(mood: str) -> Iterator[CloudClient]:
        with ScriptedCloud({"good": says(answer), "busy": BUSY, "mute": mute}[mood]) as cloud:
            client = make(CloudHttp(cloud.url, SystemClock()))
            yield client
            client.close()

    return opened


CLIENTS: dict[str, Opening] = {
    "fake": _fake,
    "oip": _over_http(OIP, lambda http: OpenInferenceClient(http, "large")),
    "oip, json": _over_http(OIP, lambda http: OpenInferenceClient(http, "large", binary=False)),
    "openai": _over_http(CHAT, lambda http: OpenAiChatClient(http, "large")),
}


@pytest.fixture(params=sorted(CLIENTS))
def client_in(request: pytest.FixtureRequest) -> Opening:
    return CLIENTS[request.param]


def test_an_answer_says_what_it_is_and_what_it_cost(client_in: Opening) -> None:
    with client_in("good") as client:
        for _ in range(2):
            answer = client.ask(QUESTION, time.monotonic() + 10)
            assert answer.label == "dog"
            assert answer.sent_bytes >= len(QUESTION.jpeg)
            assert answer.took_s > 0


def test_a_wish_to_be_asked_later_comes_with_the_fault(client_in: Opening) -> None:
    with client_in("busy") as client, pytest.raises(CloudError) as caught:
        client.ask(QUESTION, time.monotonic() + 10)
    error = caught.value
    assert (error.fault, error.retry_after_s, error.final) == (CloudFault.BUSY, 2.0, False)
    assert error.sent_bytes > 0


@pytest.mark.parametrize("left_s", [0.2, 0.0, -5.0])
def test_nobody_waits_beyond_the_deadline(client_in: Opening, left_s: float) -> None:
    with client_in("mute") as client:
        began_s = time.monotonic()
        with pytest.raises(CloudError) as caught:
            client.ask(QUESTION, began_s + left_s)
        assert time.monotonic() - began_s < max(0.0, left_s) + SLACK_S
    assert caught.value.fault is CloudFault.DEADLINE
