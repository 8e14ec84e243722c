"""Our clients against servers that were not written here; each runs where it is installed.

They bring hundreds of megabytes and versions of their own, so they live in environments of their own:
`VEDETTE_MLSERVER` names the `mlserver` command of one (`pip install mlserver pillow`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
import requests
from tests.stubs.brokers import free_port
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.open_inference import OpenInferenceClient
from vedette.escalate.port import CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.slow]

MLSERVER = os.environ.get("VEDETTE_MLSERVER") or shutil.which("mlserver") or ""
RUNTIME = """
import io

from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec, StringCodec
from mlserver.types import InferenceResponse
from PIL import Image
import numpy as np


class Brightness(MLModel):
    async def load(self):
        return True

    async def predict(self, request):
        (encoded,) = Base64Codec.decode_input(request.inputs[0])
        picture = np.asarray(Image.open(io.BytesIO(encoded)).convert("L"))
        label = "light" if picture.mean() > 127 else "dark"
        outputs = [
            StringCodec.encode_output("labels", [label]),
            NumpyCodec.encode_output("scores", np.array([0.75], "float32")),
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""


@pytest.fixture
def mlserver(tmp_path: Path) -> Iterator[str]:
    """MLServer with a model that looks at the picture."""
    http, grpc, metrics = free_port(), free_port(), free_port()
    (tmp_path / "brightness.py").write_text(RUNTIME)
    model = {"name": "brightness", "implementation": "brightness.Brightness"}
    (tmp_path / "model-settings.json").write_text(json.dumps(model))
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([MLSERVER, "start", "."], cwd=tmp_path, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{http}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return requests.get(f"{url}/v2/models/brightness/ready", timeout=2).status_code == 200
        except requests.RequestException:
            return False

    try:
        until(ready, "MLServer is ready", timeout_s=120, every_s=0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def client_of(url: str, model: str) -> OpenInferenceClient:
    """MLServer has no binary extension."""
    return OpenInferenceClient(CloudHttp(url, SystemClock()), model, binary=False)


def question_of(grey: int) -> Question:
    _, jpeg = cv2.imencode(".jpg", np.full((48, 64, 3), grey, np.uint8))
    return Question("r-1", Task.CLASSIFY, jpeg.tobytes(), 64, 48, ("light", "dark"), "")


@pytest.mark.skipif(not MLSERVER, reason="MLServer is not installed: see VEDETTE_MLSERVER in this file")
def test_mlserver_answers_what_it_sees(mlserver: str) -> None:
    client = client_of(mlserver, "brightness")
    for grey, label in ((20, "dark"), (230, "light")):
        answer = client.ask(question_of(grey), time.monotonic() + 30)
        assert answer.label == label
        assert answer.probabilities[label] == pytest.approx(0.75)
    nobody = client_of(mlserver, "nobody")
    with pytest.raises(CloudError) as caught:
        nobody.ask(question_of(20), time.monotonic() + 30)
    assert (caught.value.fault, caught.value.final) == (CloudFault.REJECTED, True)
    client.close()
    nobody.close()
