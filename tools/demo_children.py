"""The demo's child processes: installed commands as one would type them, ended whatever happens."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

STOP_TIMEOUT_S = 30.0
POLL_S = 0.2
LAST_WORDS = 12


def installed(name: str) -> list[str]:
    """An installed command; the agent is also found as a module where the environment has no script for it.

    Raises:
        UnavailableError: It is not installed.
    """
    script = Path(sys.executable).parent / name
    if script.exists():
        return [str(script)]
    if name == "vedette-agent":
        return [sys.executable, "-m", "vedette"]
    raise UnavailableError(
        f"{name} is not installed in this environment", cure="make demo, or pip install '.[demo]'"
    )


def shown(path: Path) -> str:
    """A path as one would type it: relative where it lies below the current folder."""
    here = Path.cwd()
    return shlex.quote(
        str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)
    )


def typed(command: Sequence[str | Path]) -> str:
    """A command as one would type it here."""
    program, *rest = command
    words = (shown(word) if isinstance(word, Path) else shlex.quote(word) for word in rest)
    return " ".join([shown(Path(program)), *words])


def end_on_signals() -> None:
    """Let SIGTERM and a closed terminal end the demo as Ctrl-C does, which ends its children too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)


class Child:
    """A running command; its talk goes to `log`, its answers to `stdout`, by default the same file."""

    def __init__(self, command: Sequence[str | Path], *, log: Path, stdout: Path | None = None) -> None:
        self._command = [*command]
        self._log = log
        with log.open("wb") as talk, (stdout or log).open("ab" if stdout is None else "wb") as answers:
            self._process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=answers, stderr=talk
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def wait(self, timeout_s: float, on_wait: Callable[[], None] = lambda: None) -> None:
        """Wait for its good end.

        Raises:
            UnavailableError: It failed or took too long; the message holds what it said last.
        """
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(min(POLL_S, left_s))
                if status:
                    raise self.failure(f"ended with exit code {status}")
                return
            on_wait()
        raise self.failure(f"took longer than {timeout_s:.0f} s")

    def check_alive(self) -> None:
        """Whether it still runs.

        Raises:
            UnavailableError: It ended; the message holds what it said last.
        """
        status = self._process.poll()
        if status is not None:
            raise self.failure(f"ended too early, with exit code {status}")

    def finish(self) -> None:
        """Ask it to end, and wait until it did.

        Raises:
            UnavailableError: It did not, or not with exit code 0.
        """
        self.check_alive()
        self._process.terminate()
        self.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Leave no process behind, whatever happened."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def failure(self, what: str) -> UnavailableError:
        """An error with what it said last, and the command to repeat by hand."""
        name = Path(self._command[0]).name
        subject = "the agent" if name == "vedette-agent" or name.startswith("python") else name
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:]
        return UnavailableError(
            "\n".join([f"{subject} {what}; it said last:", *(f"    {line}" for line in said)]),
            cure=f"run it by hand: {typed(self._command)}",
        )
