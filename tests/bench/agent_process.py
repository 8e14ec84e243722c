"""`vedette-agent run` as a child of a bench: its answers counted, its processes told apart."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.procfs import command_line, family

if TYPE_CHECKING:
    from types import TracebackType

AGENT = Path(sys.executable).with_name("vedette-agent")
ANSWER_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_ROLES = {"worker": "vedette.engine.worker", "source": "vedette.source.child"}


class AgentProcess:
    """Started by `with`, ended by SIGTERM."""

    def __init__(self, configuration: str) -> None:
        self._configuration = configuration
        self._folder = tempfile.TemporaryDirectory()
        self.answers = 0
        self._partial = b""

    def __enter__(self) -> AgentProcess:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        path = Path(self._folder.name) / "agent.yaml"
        path.write_text(self._configuration)
        self._process = subprocess.Popen(
            [str(AGENT), "run", "--config", str(path), "--quiet"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._out.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._folder.cleanup()

    def wait_for(self, answers: int) -> None:
        """Read until that many more frames were answered; failures do not count.

        Raises:
            SystemExit: The agent ended or is mute.
        """
        wanted = self.answers + answers
        while self.answers < wanted:
            if not select.select([self._out], [], [], ANSWER_TIMEOUT_S)[0]:
                raise SystemExit(f"vedette-agent gave no answer within {ANSWER_TIMEOUT_S:.0f} s")
            piece = os.read(self._out.fileno(), 1 << 16)
            if not piece:
                raise SystemExit(f"vedette-agent ended with {self._process.wait(10)}")
            *lines, self._partial = (self._partial + piece).split(b"\n")
            self.answers += sum(b'"failed"' not in line for line in lines)

    def processes(self) -> dict[str, int]:
        """Process id by role: daemon, worker, source."""
        found = {"daemon": self._process.pid}
        for pid in family(self._process.pid)[1:]:
            command = command_line(pid)
            found.update({role: pid for role, module in _ROLES.items() if module in command})
        return found

    def kill_worker(self) -> None:
        """SIGKILL the engine worker, and wait until another one answers.

        Raises:
            SystemExit: None came.
        """
        before = self.processes()["worker"]
        os.kill(before, signal.SIGKILL)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while self.processes().get("worker", before) == before:
            if time.monotonic() > deadline_s:
                raise SystemExit("no new engine worker was started")
            self._drain()
            time.sleep(0.02)
        self._drain()
        self.wait_for(5)

    def _drain(self) -> None:
        """Read what is there, so that nothing blocks and old answers are not taken for new ones."""
        while select.select([self._out], [], [], 0)[0]:
            piece = os.read(self._out.fileno(), 1 << 16)
            if not piece:
                raise SystemExit(f"vedette-agent ended with {self._process.wait(10)}")
            self._partial = (self._partial + piece).rpartition(b"\n")[2]
