"""A box that updates itself and has a broker: the installed daemon, Mosquitto, block servers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import yaml
from tests.stubs.fleet import FLEET
from tests.stubs.updated_box import UpdatedBox

from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DEVICE = "box-1"
TOPICS = DeviceTopics.of("lab", DEVICE)
PASSWORD = "a"  # noqa: S105 - a test's
# A poll that never comes: what happens, happens because it was announced.
HOURS_S = 14_400


class LinkedAgent(UpdatedBox):
    """An `UpdatedBox` with an `mqtt` section; without `metadata` blocks are its only way."""

    def __init__(
        self,
        folder: Path,
        short: Path,
        *,
        factory: Path,
        root: Path,
        port: int,
        via: Sequence[str] = ("mqtt",),
        metadata: str | None = None,
        mqtt: dict[str, Any] | None = None,
        telemetry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, short, factory=factory, repository=metadata or "/nowhere", root=root)
        document = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        document["device"]["site"] = TOPICS.site
        document["mqtt"] = {"host": "127.0.0.1", "port": port, **(mqtt or {})}
        document["telemetry"] = telemetry or {"interval_s": 1}
        document["update"] |= {"via": list(via), "poll_s": HOURS_S}
        if metadata is None:
            del document["update"]["metadata"]
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")


@contextlib.contextmanager
def serve_blocks(repo: Path, port: int, *options: str, password: str = "") -> Iterator[None]:
    """The operator's block server, announcing what is there at once."""
    where = ("--broker", f"127.0.0.1:{port}", "--spread-s", "0")
    command: list[str | Path] = [FLEET, "serve-blocks", repo, *where, *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
        env={**os.environ, "VEDETTE_MQTT_PASSWORD": password},
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait(10)
