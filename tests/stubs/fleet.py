"""An update repository as an operator makes it: the installed command, and real HTTP."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FLEET = Path(sys.executable).with_name("vedette-fleet")
TIMEOUT_S = 60
# So short that a test can wait for it, and judged by few frames; a loaded machine must not fail a good model.
QUICK_TRIAL = (
    *("--jitter-s", "0", "--trial-min-s", "2", "--trial-min-frames", "30", "--trial-max-s", "60"),
    *("--error-rate", "0.1"),
)


class Operator:
    """Publishes into `folder`/repo with owner `demo`."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "repo"
        self._cwd = folder
        self.run("init", "repo", "--owner", "demo")

    @property
    def root(self) -> Path:
        """What a device must be given."""
        return self.repo / "metadata" / "1.root.json"

    def run(self, *arguments: str | Path) -> str:
        """The installed command to its good end; what it printed."""
        done = subprocess.run(
            [FLEET, *arguments], cwd=self._cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def release(self, bundle: Path, *options: str) -> dict[str, Any]:
        """Publish a bundle."""
        found: dict[str, Any] = json.loads(self.run("release", bundle, "--owner", "demo", "--json", *options))
        return found

    def roll_out(self, name: str, release: str, *options: str) -> None:
        """Offer a release to everybody, for a quick trial."""
        self.run("rollout", "start", name, "--release", release, *QUICK_TRIAL, *options)


@contextlib.contextmanager
def serve_files(repo: Path) -> Iterator[str]:
    """The repository over HTTP; the URL."""
    process = subprocess.Popen([FLEET, "serve-files", repo, "--port", "0", "--quiet"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait(10)
            process.stdout.close()
