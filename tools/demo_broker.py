"""The demo's MQTT broker: rumqttd, which the package iotcore carries; MQTT 5 on a free port of loopback."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY_WITHIN_S = 60.0
ENDED_WITHIN_S = 30.0

CONFIG = """\
# Written by tools/demo.py.
id = 0

[router]
id = 0
max_connections = 20
max_outgoing_packet_count = 200
max_segment_size = 10485760
max_segment_count = 10

[v5.1]
name = "demo"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1

[v5.1.connections]
connection_timeout_ms = 10000
max_payload_size = 262144
max_inflight_count = 100
dynamic_filters = true
"""


@contextlib.contextmanager
def embedded_broker(folder: Path) -> Iterator[int]:
    """A broker for as long as the block lasts; its port.

    Raises:
        UnavailableError: There is none for this platform, or it does not start.
    """
    try:
        from iotcore import Broker  # noqa: PLC0415 - its wheel does not exist for every platform
    except ImportError as error:
        raise UnavailableError(
            f"the embedded broker cannot be loaded: {error}", cure="pip install 'iotcore>=0.4'"
        ) from error
    port = free_port()
    config = folder / "broker.toml"
    config.write_text(CONFIG.format(port=port), encoding="utf-8")
    broker = Broker(config_path=str(config))
    try:
        broker.start(READY_WITHIN_S)
    except (OSError, RuntimeError) as error:
        raise UnavailableError(
            f"the embedded broker did not start: {error}", cure=f"python -m iotcore --config {config}"
        ) from error
    try:
        yield port
    finally:
        broker.stop(ENDED_WITHIN_S)


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
