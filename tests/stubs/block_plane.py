"""Both ends of the block protocol on a real broker: servers as processes or threads, and a device."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.stubs.mqtt_waiting import QUICK
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.link.block_fetcher import BlockFetcher
from vedette.link.block_inbox import BlockInbox
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import Arrived, BrokerOptions, Connected, Lost, Refused, Subscription
from vedette.wire.topics import BLOCK_REQUESTS, DeviceTopics
from vedette_fleet.block_files import BlockFiles
from vedette_fleet.block_queue import LIMIT_BYTES, BlockQueue
from vedette_fleet.block_server import BlockServer
from vedette_fleet.cli.broker import PASSWORD_VARIABLE, serve_until_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from vedette_fleet.block_server import ServerFigures

COMMAND = [sys.executable, "-c", "from vedette_fleet.cli.main import main; main()"]
_ENDED_WITHIN_S = 30.0


def make_repository(folder: Path, files: dict[str, bytes] | None = None, *blobs: bytes) -> Path:
    """A repository's folder with files by path, and blobs by their hash; enough to be served."""
    contents = {
        "metadata/timestamp.json": b'{"signed":{"version":1,"meta":{"snapshot.json":{"version":1}}}}',
        "metadata/1.snapshot.json": b'{"signed":{"version":1,"meta":{"rollouts.json":{"version":1}}}}',
        **(files or {}),
        **{f"blobs/{hashlib.sha256(blob).hexdigest()}": blob for blob in blobs},
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


class BlockDevice:
    """A device that has nothing but MQTT: a connection, a thread that reads it, and the fetcher."""

    def __init__(
        self,
        port: int,
        *,
        name: str = "cam-7",
        site: str = "plant-a",
        stall_s: float = 5.0,
        max_packet_bytes: int = 256 << 10,
        password: str = "",
    ) -> None:
        topics = DeviceTopics.of(site, name)
        clock = SystemClock()
        self.inbox = BlockInbox(clock)
        options = BrokerOptions(
            host="127.0.0.1",
            port=port,
            username=name if password else "",
            password=password,
            retry_min_s=0.05,
            retry_max_s=0.3,
            max_packet_bytes=max_packet_bytes,
        )
        self._connection = PahoConnection(
            options, [Subscription(topics.block_data, qos=0)], supervision=QUICK, name=name
        )
        self.fetcher = BlockFetcher(
            topics,
            self._connection.publish,
            self.inbox,
            clock=clock,
            draw=random.Random(1).random,  # noqa: S311 - jitter
            stall_s=stall_s,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="link", daemon=True)

    def __enter__(self) -> Self:
        self._connection.start()
        self._thread.start()
        until(lambda: self.inbox.standing.limits is not None, "the device is connected")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._connection.wake()
        self._thread.join(_ENDED_WITHIN_S)
        self._connection.stop()

    def blob(self, content: bytes) -> bytes:
        """Fetch a blob of this content as a whole."""
        return b"".join(self.fetcher.blob(hashlib.sha256(content).hexdigest(), 0, len(content)))

    def _read(self) -> None:
        while not self._stop.is_set():
            event = self._connection.next_event(0.5)
            if isinstance(event, Arrived):
                self.inbox.arrived(event.payload)
            elif isinstance(event, Connected):
                self.inbox.connected(event.limits)
            elif isinstance(event, Lost):
                self.inbox.lost(event.reason)
            elif isinstance(event, Refused):
                self.inbox.lost(f"{event.filter} is refused: {event.reason}")


@contextlib.contextmanager
def block_server(
    port: int, root: Path, *, bytes_per_s: float | None = None, limit_bytes: int = LIMIT_BYTES
) -> Iterator[ServerFigures]:
    """A server on a thread of this process; its counts."""
    options = BrokerOptions(
        host="127.0.0.1",
        port=port,
        session_expiry_s=0,
        retry_min_s=0.05,
        retry_max_s=0.3,
        queue_bytes=2 << 20,
    )
    connection = PahoConnection(options, [Subscription(BLOCK_REQUESTS, qos=0)], name="blocks")
    files, stop = BlockFiles(root), threading.Event()
    server = BlockServer(
        connection,
        files,
        clock=SystemClock(),
        log=lambda _line: None,
        bytes_per_s=bytes_per_s,
        queue=BlockQueue(limit_bytes=limit_bytes),
    )
    thread = threading.Thread(
        target=serve_until_stopped, args=(connection, [server], stop), name="block-server", daemon=True
    )
    connection.start()
    thread.start()
    until(lambda: connection.health().connected, "the block server is connected")
    try:
        yield server.figures
    finally:
        stop.set()
        thread.join(_ENDED_WITHIN_S)
        connection.stop()
        files.close()


class ServerProcess:
    """`vedette-fleet serve-blocks` as people start it; `said` is its standard error."""

    def __init__(
        self,
        port: int,
        root: Path,
        log: Path,
        options: Sequence[str] = ("--no-announce",),
        *,
        password: str = "",
    ) -> None:
        self._log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                [*COMMAND, "serve-blocks", str(root), "--broker", f"127.0.0.1:{port}", *options],
                stdout=subprocess.DEVNULL,
                stderr=said,
                stdin=subprocess.DEVNULL,
                env={**os.environ, PASSWORD_VARIABLE: password},
            )

    def __enter__(self) -> Self:
        until(lambda: "connected to the broker" in self.said, "the block server is connected")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def said(self) -> str:
        """What it told."""
        return self._log.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait(_ENDED_WITHIN_S)

    def terminate(self) -> int:
        """Ask it to end, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_ENDED_WITHIN_S)
