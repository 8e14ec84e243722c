"""Frames through a pipe, ours against a naive reader: `python -m tests.bench.pipe_reader`.

This process writes a 640x480 bgr24 frame into the 64 KiB pipe that is a reader's standard input, and waits
for the line on its standard output before it writes the next one. Both readers run the person model on one
thread. Bar: what `vedette-agent pipe` costs over the engine in one process is at most half of what the naive
reader costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tests.bench.path import MODELS, columns
from tests.bench.quiet import compare
from tests.bench.verdict import Verdict, options, table

from vedette.engine.messages import WorkerSpec
from vedette.engine.model import load_model
from vedette.runtime.benchmark import straight_script, synthetic_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AGENT = Path(sys.executable).with_name("vedette-agent")
BUNDLE = "person"
MODEL_FILE = MODELS / BUNDLE / "person_vww_int8.tflite"
WIDTH, HEIGHT = 640, 480
ANSWER_TIMEOUT_S = 60.0
SHARE = 0.5


class Reader:
    """A child that answers each frame on its standard input with one line on its standard output."""

    def __init__(self, command: Sequence[str], frame: bytes) -> None:
        self._frame = memoryview(frame)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()

    def __call__(self) -> bytes:
        """One frame there, one line back.

        Raises:
            SystemExit: The reader ended or is mute.
        """
        left = self._frame
        while left:
            left = left[os.write(self._in, left) :]
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._out], [], [], ANSWER_TIMEOUT_S)[0]:
                raise SystemExit(f"{self._process.args!r} gave no answer within {ANSWER_TIMEOUT_S:.0f} s")
            piece = os.read(self._out, 65536)
            if not piece:
                raise SystemExit(f"{self._process.args!r} ended with {self._process.wait(10)}")
            line += piece
        return line

    def close(self) -> None:
        """End of input; a reader that does not end is killed."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait(10)


@contextlib.contextmanager
def readers(frame: bytes) -> Iterator[dict[str, Reader]]:
    """Both of them, running."""
    naive = [sys.executable, "-m", "tests.bench.naive_reader", str(MODEL_FILE), str(WIDTH), str(HEIGHT)]
    ours = [str(AGENT), "pipe", "--model", str(MODELS / BUNDLE), "--threads", "1", "--format", "rawvideo"]
    ours += ["--size", f"{WIDTH}x{HEIGHT}", "--pix-fmt", "bgr24", "--quiet"]
    with contextlib.ExitStack() as stack:
        running = {}
        for name, command in (("naive reader", naive), ("vedette-agent pipe", ours)):
            running[name] = Reader(command, frame)
            stack.callback(running[name].close)
        yield running


def main() -> int:
    """Measure and judge."""
    arguments = options("frames through a pipe, ours against a naive reader", rounds=12).parse_args()
    verdict = Verdict(
        f"Pipe: {WIDTH}x{HEIGHT} bgr24 through a 64 KiB pipe, {BUNDLE}, closed loop, microseconds"
    )
    frame = synthetic_frame(WIDTH, HEIGHT)
    model = load_model(WorkerSpec(bundle=str(MODELS / BUNDLE), threads=1), lambda _: None)
    try:
        with readers(frame.tobytes()) as running:
            check_same_answer(running)
            floor = straight_script(model, frame)
            found = compare({"floor: one process, no pipe": floor, **running}, rounds=arguments.rounds)
    finally:
        model.close()
    floor_figures, naive, ours = found.figures.values()
    rows = [[name, *columns(figures), ""] for name, figures in found.figures.items()]
    rows.append(["overhead of the naive reader", *columns(naive - floor_figures), "1"])
    share = (ours - floor_figures).p50 / (naive - floor_figures).p50
    rows.append(["overhead of vedette-agent pipe", *columns(ours - floor_figures), f"{share:.2f}"])
    table(("", "p50", "p95", "p99", "share"), rows)
    print(found.noise)
    verdict.at_most("our overhead as a share of the naive reader's", share, SHARE, noisy=found.noisy)
    return verdict.exit_status(strict=arguments.strict)


def check_same_answer(running: dict[str, Reader]) -> None:
    """Two readers that disagree do not do the same work."""
    naive, ours = (json.loads(reader()) for reader in running.values())
    top = ours["top"][0]
    if top["index"] != naive["index"] or not np.isclose(top["score"], naive["score"], atol=0.01):
        raise SystemExit(f"the readers disagree: {naive} against {top}")


if __name__ == "__main__":
    sys.exit(main())
