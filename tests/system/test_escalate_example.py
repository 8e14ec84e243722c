"""The example of a large model does what its comments promise, with a real server beside it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.commands import Command, agent
from tests.stubs.running import REPOSITORY
from tests.stubs.waiting import until

from vedette.telemetry.summary import RunSummary
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.engine]

EXAMPLE = REPOSITORY / "agent" / "examples" / "escalate.yaml"
CLOUD = Path(sys.executable).with_name("vedette-cloud")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of `imagenet-large`."""
    out = tmp_path_factory.mktemp("cloud") / "ready.json"
    command: list[str | Path] = [
        CLOUD,
        "serve",
        "--model",
        REPOSITORY / "models" / "imagenet-large",
        "--batch",
        "1",
    ]
    with out.open("wb") as ready:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--json"], stdout=ready)
    try:
        until(lambda: out.read_bytes().endswith(b"\n"), "the server answers", timeout_s=120)
        yield msgspec.json.decode(out.read_bytes())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.fixture
def config(cloud: str) -> Iterator[Path]:
    """The example in a folder with a short path, pointed at the server."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    (folder / "models").symlink_to(REPOSITORY / "models")
    (folder / "agent" / "examples").mkdir(parents=True)
    text = EXAMPLE.read_text(encoding="utf-8").replace("http://127.0.0.1:8500", cloud)
    path = folder / "agent" / "examples" / "escalate.yaml"
    path.write_text(text, encoding="utf-8")
    yield path
    shutil.rmtree(folder)


def test_the_example_asks_corrects_and_says_what_it_did(config: Path) -> None:
    checked = agent("check-config", config)
    assert checked.returncode == 0, checked.stderr
    assert b"0.98 of what it gets right, with confidence 0.95" in checked.stdout
    figures = config.parent / "summary.json"
    with Command("run", "--config", config, "--summary-json", figures) as run:
        until(
            lambda: run.stdout.count(b'"source":"cloud"') >= 5,
            "five answers",
            timeout_s=120,
        )

        def screen() -> str:
            return agent("status", "--config", config).stdout.decode()

        until(lambda: "of 20,000 calls today" in screen(), "figures of the asking process", every_s=0.5)
        shown = screen()
        run.signal(signal.SIGTERM)
        assert run.end(within_s=20) == 0, run.said
        results = [msgspec.json.decode(line, type=Result) for line in bytes(run.stdout).splitlines()]
    assert "escalates  to imagenet-large at " in shown
    assert "not calibrated yet" in shown
    local = {one.seq: one for one in reversed(results) if one.source == "local"}
    for one in results:
        if one.source == "cloud":
            assert one.top
            assert one.escalation is not None
            before = local[one.seq].top
            assert before
            same = one.top[0].label == before[0].label
            assert one.escalation.outcome == ("agreed" if same else "answered")
    summary = msgspec.json.decode(figures.read_bytes(), type=RunSummary)
    assert summary.imbalance == {}
    assert summary.escalation is not None
    told = summary.escalation.outcomes
    assert told["answered"][1] + told["agreed"][1] == sum(one.source == "cloud" for one in results)
    assert "large model: asked about" in run.said
    shards = list((config.parents[2] / "build" / "escalate-demo" / "escalation" / "training").iterdir())
    assert shards
