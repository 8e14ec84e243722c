"""The installed command as a process: started, signalled, read, and checked for what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.stubs.processes import alive, child_running, children_of
from tests.stubs.running import CALLS_BEFORE_FRAMES, REPOSITORY, STUB, STUB_OPTIONS
from tests.stubs.waiting import until

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

AGENT = Path(sys.executable).parent / "vedette-agent"
SOURCE = "vedette.source.child"
WORKER = "vedette.engine.worker"
# `run` warms up with three inferences, after one of the engine's own check.
CALLS_BEFORE_RUN_FRAMES = CALLS_BEFORE_FRAMES + 2


def write_config(
    folder: Path,
    bundle: Path,
    cameras: dict[str, dict[str, Any]],
    *,
    options: dict[str, str] | None = None,
    **sections: Any,  # noqa: ANN401 - a YAML value is anything
) -> Path:
    """A configuration over the stub engine; with `options=None` over the real one."""
    engine = sections.pop("engine", {})
    if options is not None:
        engine = {"plugins": STUB, "options": {**STUB_OPTIONS, **options}, **engine}
    document = {"model": {"factory": str(bundle)}, "engine": engine, "cameras": cameras, **sections}
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """The environment in which children find the stub engine."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def agent(
    *arguments: str | Path, frames: bytes = b"", timeout_s: float = 30
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    return subprocess.run(
        [AGENT, *arguments],
        input=frames,
        capture_output=True,
        timeout=timeout_s,
        check=False,
        env=environment(),
    )


class Command:
    """A running command whose output is gathered in the background, unless `read_stdout` is off."""

    def __init__(
        self,
        *arguments: str | Path,
        read_stdout: bool = True,
        stdin: int = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
    ) -> None:
        self.process = subprocess.Popen(
            [AGENT, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(),
        )
        self.stderr = bytearray()
        self.stdout = bytearray()
        self._readers: list[threading.Thread] = []
        if self.process.stderr is not None:
            self._read(self.process.stderr.fileno(), self.stderr)
        if read_stdout:
            assert self.process.stdout is not None
            self._read(self.process.stdout.fileno(), self.stdout)

    def _read(self, fd: int, into: bytearray) -> None:
        def gather() -> None:
            while piece := os.read(fd, 65536):
                into.extend(piece)

        thread = threading.Thread(target=gather, daemon=True)
        thread.start()
        self._readers.append(thread)

    @property
    def pid(self) -> int:
        """Of the daemon."""
        return self.process.pid

    @property
    def said(self) -> str:
        """Standard error so far."""
        return self.stderr.decode("utf-8", "replace")

    def lines(self) -> int:
        """Result lines so far."""
        return self.stdout.count(b"\n")

    def until_lines(self, count: int) -> None:
        """Wait for results."""
        until(lambda: self.lines() >= count, f"{count} result lines; stderr: {self.said}")

    def until_said(self, text: str) -> None:
        """Wait for a remark on standard error."""
        until(lambda: text in self.said, f"{text!r} on standard error; there was: {self.said}")

    def until_child(self, module: str) -> int:
        """Wait for a child process that runs a module; its pid."""
        until(lambda: child_running(self.pid, module) is not None, f"a child running {module}")
        pid = child_running(self.pid, module)
        assert pid is not None
        return pid

    def children(self) -> list[int]:
        """The children's pids."""
        return list(children_of(self.pid))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon alone."""
        self.process.send_signal(number)

    def end(self, *, within_s: float) -> int:
        """Wait for the end; the exit code."""
        try:
            status = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s:g} s; stderr: {self.said}") from None
        for reader in self._readers:
            reader.join(5)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            children = self.children()
            self.process.kill()
            self.process.wait(10)
            until(lambda: not any(map(alive, children)), "children of a killed daemon end")
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def whole_lines(output: bytes | bytearray) -> list[dict[str, Any]]:
    """The results in an output that must consist of whole JSON lines."""
    assert not output or output.endswith(b"\n"), f"the last line is cut: {bytes(output[-80:])!r}"
    return [json.loads(line) for line in bytes(output).splitlines()]


def check_books(path: Path, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A summary file in which every frame is accounted for and agrees with the lines; the summary."""
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert summary["imbalance"] == {}
    for camera in summary["cameras"]:
        assert camera["in_flight"] == 0
        lines = [result for result in results if result["camera"] == camera["camera"]]
        failed = [result for result in lines if "failed" in result]
        undelivered = camera["failed"].get("undelivered", 0)
        assert len(failed) == sum(camera["failed"].values()) - undelivered
        assert len(lines) - len(failed) == camera["ok"]
    return summary
