"""A server as people write it around ONNX Runtime: FastAPI, OpenCV, NumPy, one `session.run`, JSON out.

It does what the agent's door does for the same request and no more: a picture of raw RGB bytes, the same
crop, size and normalisation, the same model with as many threads, the five likeliest labels. Nothing in it is
slow on purpose: float32 throughout, no copy that could be left out without effort, uvicorn as it comes. The
model inside `async def` is the quickest form for one client, for there is no hop to a thread; `Form.THREADS`
is the other usual one.
"""

from __future__ import annotations

import socket
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import onnxruntime
import uvicorn
import yaml
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOP = 5


class Form(str, Enum):
    """Where the model runs."""

    INLINE = "inline"  # in the event loop
    THREADS = "threads"  # in the thread pool


class Classifier:
    """The model and the steps around it."""

    def __init__(self, bundle: Path, threads: int) -> None:
        spec = yaml.safe_load((bundle / "model.yaml").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            bundle / spec["file"], options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        self._size: tuple[int, int] = tuple(spec["input"]["size"])
        self._mean = np.float32(spec["input"]["mean"][0])
        self._std = np.float32(spec["input"]["std"][0])
        self._labels = (bundle / "labels.txt").read_text(encoding="utf-8").splitlines()

    def top(self, body: bytes, height: int, width: int) -> list[dict[str, Any]]:
        """The likeliest labels of an RGB picture."""
        picture: NDArray[np.uint8] = np.frombuffer(body, np.uint8).reshape(height, width, 3)
        side = min(height, width)
        y, x = (height - side) // 2, (width - side) // 2
        small = cv2.resize(picture[y : y + side, x : x + side], self._size)
        tensor = ((small.astype(np.float32) - self._mean) / self._std).transpose(2, 0, 1)[np.newaxis]
        logits: NDArray[np.float32] = self._session.run(None, {self._input: tensor})[0][0]
        weights = np.exp(logits - logits.max())
        scores = weights / weights.sum()
        return [
            {"label": self._labels[index], "index": int(index), "score": float(scores[index])}
            for index in np.argsort(scores)[::-1][:TOP]
        ]


def build(bundle: Path, threads: int, form: Form) -> FastAPI:
    """The application."""
    classifier = Classifier(bundle, threads)
    app = FastAPI()

    @app.get("/ready")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/classify")
    async def classify(request: Request, height: int, width: int) -> dict[str, Any]:
        body = await request.body()
        if form is Form.THREADS:
            return {"top": await run_in_threadpool(classifier.top, body, height, width)}
        return {"top": classifier.top(body, height, width)}

    return app


def main(arguments: list[str]) -> None:
    """Serve on an inherited listening socket: `FD BUNDLE THREADS FORM`."""
    fd, bundle, threads, form = int(arguments[0]), Path(arguments[1]), int(arguments[2]), Form(arguments[3])
    listener = socket.socket(fileno=fd)
    # No annotation of the endpoint may be a forward reference that FastAPI cannot resolve.
    server = uvicorn.Server(uvicorn.Config(build(bundle, threads, form), log_level="warning"))
    server.run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1:])
