"""What asking a large model costs the frames: `python -m tests.bench.escalate_latency`.

The real agent, one live camera, every answer unsure. In each round it runs once without escalation and once
with each kind of large model: one that answers, and four that are at their worst. The bar is p95 of the local
answer, from arrival to answer, over that without escalation, pooled over all rounds: at most 1.05.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from tests.bench.agent_process import AGENT, STOP_TIMEOUT_S
from tests.bench.path import MODELS
from tests.bench.verdict import Verdict, options, table
from tests.stubs.brokers import free_port
from tests.stubs.cloud_scripts import ScriptedCloud, drips, mute, says

from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAR = 1.05
FRAMES = 200
WARM_FRAMES = 20
FPS = 30
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
ANSWER = json.dumps(
    {
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": [1], "data": ["person"]},
            {"name": "scores", "datatype": "FP32", "shape": [1], "data": [0.9]},
        ]
    }
).encode()


@contextlib.contextmanager
def _refuses() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def _scripted(script: Callable[..., None]) -> Iterator[str]:
    with ScriptedCloud(script) as cloud:
        yield cloud.url


LARGE_MODELS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "answers": lambda: _scripted(says(ANSWER)),
    "is away": _refuses,
    "is mute": lambda: _scripted(mute),
    "drips": lambda: _scripted(drips(HEAD + b" " * 5000, 0.02)),
    "says 500": lambda: _scripted(says(b"{}", status="500 Internal Server Error")),
}


def configuration(bundle: str, url: str | None) -> str:
    """One camera at its own speed; with an address, everything is asked about."""
    sections: dict[str, object] = {
        "model": {"factory": str(MODELS / bundle)},
        "cameras": {"front": {"input": f"synthetic:640x480@{FPS}", "live": True}},
    }
    if url is not None:
        sections["escalation"] = {
            "provider": "oip",
            "url": url,
            "model": "large",
            "policy": {"threshold": 1.0},
            "cool_down_s": 0,
            "deadline_ms": 500,
        }
    return json.dumps(sections)


def totals_ms(bundle: str, url: str | None) -> list[float]:
    """Arrival to answer of FRAMES frames after the first WARM_FRAMES."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.yaml"
        path.write_text(configuration(bundle, url))
        process = subprocess.Popen(
            [str(AGENT), "run", "--config", str(path), "--quiet"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        found: dict[int, float] = {}
        deadline_s = time.monotonic() + 120
        assert process.stdout is not None
        for line in process.stdout:
            result = msgspec.json.decode(line, type=Result)
            if result.latency_ms:
                found.setdefault(result.seq, result.latency_ms.total)
            if len(found) >= FRAMES + WARM_FRAMES or time.monotonic() > deadline_s:
                break
        process.terminate()
        process.stdout.close()
        process.wait(STOP_TIMEOUT_S)
    return list(found.values())[WARM_FRAMES:]


def main() -> int:
    """Measure and judge."""
    parser = options("the price of asking a large model", rounds=4)
    parser.add_argument("--bundle", default="person", help="model (default %(default)s)")
    chosen = parser.parse_args()
    verdict = Verdict(f"Frames while a large model is asked, {chosen.bundle}")
    taken: dict[str, list[float]] = {"without": [], **{name: [] for name in LARGE_MODELS}}
    for _ in range(chosen.rounds):
        taken["without"] += totals_ms(chosen.bundle, None)
        for name, opened in LARGE_MODELS.items():
            with opened() as url:
                taken[name] += totals_ms(chosen.bundle, url)
    quantiles = {name: np.percentile(values, [50, 95, 99]) for name, values in taken.items()}
    table(
        ("the large model", "p50 ms", "p95 ms", "p99 ms", "frames"),
        [
            (name, *(f"{value:.2f}" for value in found), str(len(taken[name])))
            for name, found in quantiles.items()
        ],
    )
    for name in LARGE_MODELS:
        verdict.at_most(
            f"p95 while it {name}, over without", quantiles[name][1] / quantiles["without"][1], BAR
        )
    return verdict.exit_status(strict=chosen.strict)


if __name__ == "__main__":
    sys.exit(main())
