"""The server as its own process, as an operator starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.stubs.processes import children_of
from tests.stubs.running import REPOSITORY
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

STOP_S = 20.0


def command(bundle: Path, *options: str) -> list[str]:
    """The command line of a server on a free port."""
    start = [
        sys.executable,
        "-m",
        "vedette_cloud",
        "serve",
        "--model",
        str(bundle),
        "--listen",
        "127.0.0.1:0",
    ]
    return [*start, "--json", *options]


class Served:
    """`with Served(folder, bundle, "--batch", "4") as server: …`; leaving ends it, and checks how."""

    def __init__(self, folder: Path, bundle: Path, *options: str, patience_s: float = 120.0) -> None:
        self._out, self._err = folder / "cloud.out", folder / "cloud.err"
        self._options: Sequence[str] = options
        self._bundle = bundle
        self._patience_s = patience_s
        self.ready: dict[str, Any] = {}
        self.ca: str | None = None

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command(self._bundle, *self._options),
                stdout=out,
                stderr=err,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
        try:
            until(self._is_ready, "the server's ready line", timeout_s=self._patience_s)
        except AssertionError as error:
            self.process.kill()
            self.process.wait(STOP_S)
            raise AssertionError(f"no server: {self.said}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)
            raise
        if kind is None:
            assert status == 0, self.said

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return str(self.ready["address"])

    @property
    def where(self) -> str:
        """Without the scheme."""
        return self.url.partition("://")[2]

    @property
    def said(self) -> str:
        """What it told people."""
        return self._err.read_text(encoding="utf-8")

    def models(self) -> list[int]:
        """Process ids of those that run the model."""
        commands = children_of(self.process.pid)
        return [pid for pid, command in commands.items() if "model_child" in command]

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.said
        line = self._out.read_bytes()
        if line.endswith(b"\n"):
            self.ready = json.loads(line)
        return bool(self.ready)
