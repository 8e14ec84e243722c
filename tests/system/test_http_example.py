"""The example of frames by HTTP does what its comments promise."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.stubs.commands import Command, agent
from tests.stubs.running import REPOSITORY
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

BASH = shutil.which("bash") or "/bin/bash"
EXAMPLE = REPOSITORY / "agent" / "examples" / "http.yaml"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that looks like the repository's root, with a short path and a photograph."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    (folder / "models").symlink_to(REPOSITORY / "models")
    (folder / "agent" / "examples").mkdir(parents=True)
    shade = np.linspace(0, 255, 320 * 240 * 3, dtype=np.uint8).reshape(240, 320, 3)
    assert cv2.imwrite(str(folder / "photo.jpg"), shade)
    yield folder
    shutil.rmtree(folder)


def script_of(text: str) -> str:
    """The comments' commands after the one that starts the agent, without the remarks behind them."""
    lines = [line[4:] for line in text.splitlines() if line.startswith("#   ")]
    start = next(number for number, line in enumerate(lines) if line.startswith("curl"))
    return "\n".join(re.sub(r" {3,}\S.*$", "", line) for line in lines[start:])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_works_as_its_comments_say(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = EXAMPLE.read_text(encoding="utf-8").replace("127.0.0.1:9477", f"127.0.0.1:{port}")
    config = place / "agent" / "examples" / "http.yaml"
    config.write_text(text, encoding="utf-8")
    checked = agent("check-config", config)
    assert checked.returncode == 0, checked.stderr
    with Command("run", "--config", config) as run:
        ready = ["curl", "-sf", f"http://127.0.0.1:{port}/readyz"]
        until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, "it is ready")
        asked = subprocess.run(
            [BASH, "-euo", "pipefail", "-c", script_of(text)],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        run.signal(signal.SIGTERM)
        assert run.end(within_s=10) == 0, run.said
    assert asked.count('"model_name":"person"') == 2, asked
    assert asked.count('"name":"labels"') >= 2, asked
    assert '{camera="http"' in asked
