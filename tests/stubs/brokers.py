"""Real brokers for tests, each on a free port of loopback: Mosquitto, and iotcore (rumqttd).

with Mosquitto(tmp_path) as broker:
    connect_to(broker.port)
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from iotcore import Broker
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

READY_WITHIN_S = 60.0
_ENDED_WITHIN_S = 30.0


def mosquitto_or_skip() -> str:
    """Where Mosquitto is; without it the test is skipped, and says what to install."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("Mosquitto is not installed: `apt-get install mosquitto`, or make test as root")
    return found


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Mosquitto:
    """A Mosquitto with its own configuration; `kill` is kill -9, `start` may come again after it.

    `users` are names and passwords, without which anybody may come. `lines` go into the file as they are,
    above the listener; `listener_lines` below it, such as those of TLS.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lines: Sequence[str] = (),
        listener_lines: Sequence[str] = (),
        users: dict[str, str] | None = None,
        acl: Path | None = None,
        max_packet_bytes: int | None = None,
        receive_maximum: int | None = None,
        unix_socket: Path | None = None,
    ) -> None:
        self._program = mosquitto_or_skip()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        text = ["set_tcp_nodelay true", "log_type all", "sys_interval 0"]
        if os.geteuid() == 0:
            text.append("user root")  # else it could not read the test's files
        if users is None:
            text.append("allow_anonymous true")
        else:
            text += ["allow_anonymous false", f"password_file {self._password_file(users)}"]
        if acl is not None:
            text.append(f"acl_file {acl}")
        if max_packet_bytes is not None:
            text.append(f"max_packet_size {max_packet_bytes}")
        if receive_maximum is not None:
            text.append(f"max_inflight_messages {receive_maximum}")
        text += [*lines, f"listener {self.port} 127.0.0.1", *listener_lines]
        if unix_socket is not None:
            text.append(f"listener 0 {unix_socket}")
        self._config = folder / "mosquitto.conf"
        self._config.write_text("\n".join(text) + "\n")
        self._log_path = folder / "mosquitto.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What it said."""
        return self._log_path.read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(self._config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until(self._answers, f"Mosquitto answers; it says:\n{self.log}", timeout_s=READY_WITHIN_S)

    def kill(self) -> None:
        """End it as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_ENDED_WITHIN_S)

    def stop(self) -> None:
        """End it in good order: it takes leave of its clients."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(_ENDED_WITHIN_S)

    def freeze(self) -> None:
        """Stop it in the middle, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Mosquitto ended at once:\n{self.log}"
        return port_answers(self.port)

    def _password_file(self, users: dict[str, str]) -> Path:
        path = self._folder / "passwords"
        path.write_text("".join(f"{name}:{password}\n" for name, password in users.items()))
        program = shutil.which("mosquitto_passwd")
        assert program is not None, "mosquitto_passwd comes with Mosquitto"
        subprocess.run([program, "-U", str(path)], check=True, timeout=30.0)
        return path


class Iotcore:
    """rumqttd, which speaks one version of MQTT on a port: 5, as the demo uses it, or 3.1.1."""

    def __init__(self, folder: Path, *, protocol: int = 5, max_payload_bytes: int = 1 << 20) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        config = folder / "rumqttd.toml"
        config.write_text(
            _RUMQTTD.format(protocol=protocol, port=self.port, max_payload_bytes=max_payload_bytes)
        )
        self._broker = Broker(config_path=str(config))

    def __enter__(self) -> Self:
        self._broker.start(READY_WITHIN_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._broker.stop(_ENDED_WITHIN_S)


def port_answers(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


_RUMQTTD = """\
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v{protocol}.1]
name = "only"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
[v{protocol}.1.connections]
connection_timeout_ms = 60000
max_payload_size = {max_payload_bytes}
max_inflight_count = 100
dynamic_filters = true
"""
