"""The control socket: one line in, one line out, and nobody can hold it up."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vedette.api.control import ControlServer, ask
from vedette.api.messages import AbortRequest, CheckRequest, ImportRequest, Request, StatusRequest
from vedette.errors import BadInputError, ConfigError, InternalError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A path short enough for a socket, wherever pytest puts its folders."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield Path("control.sock")
    os.chdir(before)


def answer(request: Request) -> bytes:
    if isinstance(request, StatusRequest):
        return b'{"phase":"idle"}'
    if isinstance(request, ImportRequest):
        raise BadInputError(f"{request.folder} holds no repository", cure="give the right folder")
    if isinstance(request, AbortRequest):
        raise InternalError("a bug")
    return b"true"


@pytest.fixture
def server(path: Path) -> Iterator[ControlServer]:
    running = ControlServer(path, answer)
    running.start()
    yield running
    running.stop()


@pytest.mark.usefixtures("server")
def test_a_question_gets_its_answer(path: Path) -> None:
    """Body for body, as often as one asks."""
    assert ask(path, StatusRequest()) == b'{"phase":"idle"}'
    assert ask(path, CheckRequest()) == b"true"


@pytest.mark.usefixtures("server")
def test_errors_keep_their_family_and_cure(path: Path) -> None:
    """The command line exits as if the daemon had been it."""
    with pytest.raises(BadInputError, match="no repository") as refused:
        ask(path, ImportRequest("/media/stick"))
    assert refused.value.cure == "give the right folder"
    with pytest.raises(InternalError, match="a bug"):
        ask(path, AbortRequest())


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"type":"format-disk"}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"]
)
def test_nonsense_is_answered_and_hurts_nothing(path: Path, line: bytes) -> None:
    """The next good request works."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(line)
        assert line == b"\n" or b"not understood" in client.recv(65536)
    assert ask(path, StatusRequest()) == b'{"phase":"idle"}'


@pytest.mark.usefixtures("server")
def test_only_its_owner_may_open_it(path: Path) -> None:
    """Who may open it may control the daemon."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_leftover_is_replaced_and_a_running_daemon_is_not(path: Path, tmp_path: Path) -> None:
    """After kill -9 the socket stays; it must not stop the next start."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    first = ControlServer(path, answer)
    first.start()
    with pytest.raises(UnavailableError, match="another vedette-agent"):
        ControlServer(path, answer)
    first.stop()
    assert not (tmp_path / path).exists()


def test_nobody_there_is_said_with_the_cure(path: Path) -> None:
    """Not an empty answer."""
    with pytest.raises(UnavailableError, match="no vedette-agent answers"):
        ask(path, StatusRequest())


def test_a_path_of_any_length_will_do(tmp_path: Path) -> None:
    """The kernel takes 107 bytes; a state folder deep in somebody's tree is none of its business."""
    deep = tmp_path / ("x" * 90) / ("y" * 90)
    running = ControlServer(deep / "control.sock", answer)
    running.start()
    try:
        assert ask(deep / "control.sock", CheckRequest()) == b"true"
        with pytest.raises(UnavailableError, match="another vedette-agent runs"):
            ControlServer(deep / "control.sock", answer)
    finally:
        running.stop()


def test_a_place_where_no_socket_can_be_is_a_configuration_error(tmp_path: Path) -> None:
    """A name that is too long by itself; a folder that is a file. With the cure."""
    (tmp_path / "file").touch()
    for path in (tmp_path / ("x" * 120), tmp_path / "file" / "control.sock"):
        with pytest.raises(ConfigError, match="cannot be made") as refused:
            ControlServer(path, answer)
        assert "control.socket" in str(refused.value.cure)
