"""What helps to find a fault from afar: versions, configuration, the last lines said, how all stands."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec

import vedette
from vedette.runtime.commands_bodies import shrink
from vedette.source.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.log import Log
    from vedette.runtime.status import StatusDesk

PACKAGES = (
    *("onnxruntime", "onnxruntime-gpu", "ai-edge-litert", "tflite-runtime"),
    *("opencv-python-headless", "numpy", "msgspec", "paho-mqtt", "tuf"),
)
# Oldest lines first, then what can be asked for in other ways.
_CUTS = (("log",), ("status", "releases"), ("config",), ("packages",), ("status", "update"), ("status",))


class Diagnosis:
    """Puts it together anew each time."""

    def __init__(
        self,
        daemon: Daemon,
        desk: StatusDesk,
        *,
        log: Log,
        config: dict[str, Any],
        complete: Callable[[AgentStatus], AgentStatus],
    ) -> None:
        self._daemon = daemon
        self._desk = desk
        self._log = log
        self._config = config
        self._complete = complete

    def put_together(self, *, room_bytes: int) -> dict[str, Any]:
        """The body of the reply; `log` is newest first, so that the oldest go when there is no room.

        Raises:
            UnavailableError: The supervisor did not answer, or the broker takes next to nothing.
        """
        status = self._complete(self._desk.ask(self._daemon))
        lines = [
            {"age_s": line.age_s, "level": line.level.value, "text": redact_url(line.text)}
            for line in reversed(self._log.newest())
        ]
        body = {
            "agent": vedette.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "packages": _installed(),
            "log_level": self._log.level.value,
            "status": msgspec.to_builtins(status),
            "config": self._config,
            "log": lines,
        }
        return shrink(body, _CUTS, room_bytes)


def _installed() -> dict[str, str]:
    found = {name: _version_of(name) for name in PACKAGES}
    return {name: version for name, version in found.items() if version}


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
