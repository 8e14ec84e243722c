"""The HTTP door as the daemon runs it: beside cameras, alone, and what it tells of both."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.integration.door.asking import Answer, ask, binary_request, tensors_of
from tests.stubs.opened_door import INPUT, OpenedDoor, picture_call
from tests.stubs.played_bundles import played_bundle, played_worker
from tests.stubs.running import REPOSITORY, camera, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.runtime.camera import CameraState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIVE = "synthetic:64x48@30"
SCORES = {"layout": "scores", "activation": "given", "labels": {"count": 4}}


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed bundle for the stub engine, which worker processes can import."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return stub_bundle(tmp_path / "bundle")


@pytest.fixture
def agent(tmp_path: Path, bundle: Path) -> Iterator[OpenedDoor]:
    """A door beside a live camera; the model answers with its input's mean."""
    echo = worker(bundle, answer="echo")
    with OpenedDoor(tmp_path, echo, camera("front", LIVE, live=True)) as opened:
        opened.until_ready()
        yield opened


def test_requests_are_answered_beside_a_camera_and_each_goes_home(agent: OpenedDoor) -> None:
    """The camera's lines stay what they were; the door's answers go to whoever asked."""
    agent.until_answers("front", 3)
    for value in (0, 128, 255):
        answer = agent.infer(*picture_call(value))
        assert answer.status == 200
        result = json.loads(tensors_of(answer)["result"][0])
        assert (result["camera"], result["task"]) == ("http", "classify")
        assert result["top"][0]["score"] == pytest.approx(value / 255, abs=0.01)
        assert result["latency_ms"]["total"] > 0
    agent.until_answers("front", 3)
    assert agent.counts().ok == 3


def test_a_raw_tensor_reaches_the_engine_as_it_is_and_its_outputs_come_back_as_they_are(
    agent: OpenedDoor,
) -> None:
    """No scaling, no labels: what a client of a model server expects, in binary form and in JSON."""
    given = np.full((1, 3, 8, 8), 7.5, "<f4")
    body, headers = binary_request([(INPUT, given.tobytes())], parameters={"binary_data_output": True})
    answer = agent.infer(body, headers)
    assert answer.status == 200
    outputs = tensors_of(answer)
    assert list(outputs) == ["stub_output_0"]
    assert np.frombuffer(outputs["stub_output_0"], "<f4").tolist() == [7.5] * 4
    plain = json.dumps({"inputs": [{**INPUT, "data": [1.25] * given.size}]}).encode()
    assert tensors_of(agent.infer(plain, {}))["stub_output_0"] == [1.25] * 4


@pytest.mark.usefixtures("bundle")
def test_an_integer_models_outputs_come_in_their_own_type(tmp_path: Path) -> None:
    """int8 is not dequantised: the client knows its model's scale, as the metadata's type says."""
    two = stub_bundle(tmp_path / "two", output={**SCORES, "names": ["stub_output_0"]})
    stub = worker(
        two,
        input="1x3x8x8:int8",
        outputs="1x4:int8,1x2:float32",
        quantisation="0.5,3",
        answer="echo",
        input_quantisation="0.0039,-128",
    )
    with OpenedDoor(tmp_path, stub) as agent:
        agent.until_ready()
        metadata = ask(agent.url, "/v2/models/tiny").json()
        own = [entry for entry in metadata["outputs"] if entry["name"].startswith("stub")]
        assert [entry["datatype"] for entry in own] == ["INT8", "FP32"]
        tensor = {**INPUT, "datatype": "INT8"}
        body, headers = binary_request([(tensor, bytes([5]) * 192)])
        outputs = tensors_of(agent.infer(body, headers))
        assert outputs == {"stub_output_0": [5, 5, 5, 5], "stub_output_1": [5.0, 5.0]}


@pytest.mark.usefixtures("bundle")
def test_outputs_that_no_message_can_carry_are_an_error_with_both_sizes(tmp_path: Path) -> None:
    """A segmentation's tensor is larger than what the daemon passes on: 500 with the cause, no hang."""
    two = stub_bundle(tmp_path / "two", output={**SCORES, "names": ["stub_output_0"]})
    stub = worker(two, outputs="1x4:float32,1x300000:float32")
    with OpenedDoor(tmp_path, stub) as agent:
        agent.until_ready()
        answer = agent.infer(*binary_request([(INPUT, bytes(768))]))
        assert answer.status == 500
        assert "bad_output (the answer has 1,20" in answer.error


@pytest.mark.usefixtures("bundle")
def test_a_tensor_that_came_for_the_model_before_is_refused_and_counted_to_no_model(
    tmp_path: Path,
) -> None:
    """Sizes change with a switch: the request may be sent again, the new model's trial does not suffer."""
    small = played_bundle(tmp_path / "small", run_s="0.4")
    large = played_bundle(
        tmp_path / "large",
        spec={"input": {"size": [16, 16], "layout": "nchw", "range": [0, 1]}},
        input="1x3x16x16:float32",
    )
    with OpenedDoor(tmp_path, played_worker(small)) as agent:
        agent.until_ready()
        agent.daemon.live.switch(large, trial=True)
        until(lambda: agent.daemon.live.serving() == small, "both are there")
        body, headers = binary_request([(INPUT, bytes(768))])
        answers: list[Answer] = []
        deadline_s = time.monotonic() + 15
        while not any(answer.status != 200 for answer in answers) and time.monotonic() < deadline_s:
            answers.append(agent.infer(body, headers))
        refused = answers[-1]
        assert (refused.status, refused.error) in {
            (503, "version 'large' took over while the request waited"),
            (400, refused.error),
        }
        assert agent.daemon.live.stats().failed == 0


def test_with_a_door_the_end_of_all_files_is_no_end(tmp_path: Path, bundle: Path) -> None:
    """Others may still ask; without a door the same file ends the daemon (see the tests of `run`)."""
    file = camera("clip", "synthetic:64x48?frames=5")
    with OpenedDoor(tmp_path, worker(bundle), file) as agent:
        agent.until_ready()
        until(lambda: agent.daemon.cameras[0].state is CameraState.ENDED, "the file has ended")
        until(lambda: agent.answers_of("clip") == 5, "and was answered")
        assert agent.infer(*picture_call()).status == 200
        assert agent.running


def test_while_the_model_loads_the_door_says_what_is_going_on(tmp_path: Path, bundle: Path) -> None:
    """Case 2: who asks before the model is ready is told so at once, with what it is busy with."""
    slow = worker(bundle, load_s="10", load_steps="10")
    with OpenedDoor(tmp_path, slow) as agent:
        until(lambda: agent.url, "the door is open before the model is loaded")
        until(
            lambda: "stub: step" in ask(agent.url, "/readyz").body.decode(),
            "the step of loading is named",
        )
        began_s = time.monotonic()
        answer = agent.infer(*picture_call())
        assert time.monotonic() - began_s < 8
        assert answer.status == 503
        assert answer.error.startswith("loading: ")
        assert int(answer.headers["retry-after"]) >= 1
        assert ask(agent.url, "/healthz").status == 200
        agent.until_ready()
        assert agent.infer(*picture_call()).status == 200


def test_a_model_that_cannot_be_served_is_said_to_be_so(tmp_path: Path, bundle: Path) -> None:
    """Readiness names the cause for as long as it lasts."""
    with OpenedDoor(tmp_path, worker(bundle, load_fail="bundle"), outlives_model=True) as agent:
        until(lambda: agent.url, "the door is open")
        until(
            lambda: "the stub does not take this model" in ask(agent.url, "/readyz").body.decode(),
            f"the cause is told; said {agent.said}",
        )
        assert ask(agent.url, "/readyz").status == 503


def test_the_figures_are_those_of_the_ledger(agent: OpenedDoor) -> None:
    """Counts, stages and memory of every camera, the door included, as Prometheus reads them."""
    for _ in range(3):
        agent.infer(*picture_call())
    agent.until_answers("front", 2)
    text = ask(agent.url, "/metrics").body.decode()
    assert 'vedette_frames_ok_total{camera="http"} 3.0' in text
    assert (
        'vedette_stage_duration_seconds_count{camera="http",model="tiny",stage="total",version="1"} 3.0'
        in text
    )
    assert 'vedette_frames_ok_total{camera="front"}' in text
    assert "vedette_model_ready 1.0" in text
    assert 'vedette_accelerator_info{accelerator="cpu",runtime="stub 1.0"} 1.0' in text
    for name in ("vedette_resident_memory_bytes", 'vedette_source_resident_memory_bytes{camera="front"}'):
        value = next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[-1]
        assert float(value) > 1 << 20


def test_the_preview_shows_the_cameras_pictures_and_answers(agent: OpenedDoor) -> None:
    """The daemon hands the camera's ring over, and what was seen in it."""
    until(lambda: ask(agent.url, "/preview/picture/front").status == 200, "a picture of the camera")
    shown = ask(agent.url, "/preview/picture/front")
    picture = cv2.imdecode(np.frombuffer(shown.body, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    until(lambda: "front" in ask(agent.url, "/preview/state").json()["answers"], "its answers")
    state = ask(agent.url, "/preview/state").json()
    assert state["pictures"] == ["front"]
    assert "http" not in state["answers"], "what others ask is nobody's business"
