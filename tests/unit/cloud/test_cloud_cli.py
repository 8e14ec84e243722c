"""The command line of the server: what excludes what, and an exit code for each family of errors."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.stubs.cloud_bundles import colour_bundle
from tests.stubs.running import REPOSITORY

from vedette.errors import UsageError
from vedette_cloud.listening import parse_address

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "t" * 24


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vedette_cloud", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (("--listen", "0.0.0.0:0"), 2, "add --tokens FILE"),
        (("--listen", "nowhere"), 2, "is no address"),
        (("--tls-cert", "x"), 2, "belong together"),
        (("--least", "3", "--processes", "2"), 2, "--processes is the most replicas"),
        (("--ray-address", "auto"), 2, "--engine ray"),
        (("--tokens", "not-there"), 78, "cannot be read"),
        (("--tls-cert", "no.pem", "--tls-key", "no.key"), 78, "cannot be used"),
        (("--per-minute", "0"), 2, "--per-minute"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_loaded(
    tmp_path: Path, options: tuple[str, ...], status: int, told: str
) -> None:
    done = run("serve", "--model", str(tmp_path), *options)
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_no_bundle_is_bad_input_and_a_taken_port_is_something_away(tmp_path: Path) -> None:
    done = run("serve", "--model", str(tmp_path / "nothing"), "--listen", "127.0.0.1:0")
    assert done.returncode == 65, done.stderr
    assert "Traceback" not in done.stderr
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--model", str(colour_bundle(tmp_path / "b")), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 69, done.stderr
    assert "choose another --listen" in done.stderr


def test_a_token_file_is_checked_by_line(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} box\n{TOKEN} other\n", encoding="ascii")
    done = run("serve", "--model", str(tmp_path), "--tokens", str(tokens))
    assert done.returncode == 78
    assert "tokens:2" in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(
    ("text", "host", "private"),
    [("127.0.0.1:0", "127.0.0.1", True), ("[::1]:8500", "::1", True), ("192.0.2.1:1", "192.0.2.1", False)],
)
def test_addresses_are_read(text: str, host: str, private: bool) -> None:  # noqa: FBT001 - a table's column
    address = parse_address(text)
    assert (address.host, address.is_private) == (host, private)


@pytest.mark.parametrize("text", ["", ":1", "::1:80", "[::1]", "a:b", "a:65536", "[a]:1x", "1.2.3.4:²"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_help_is_quick_and_loads_no_model() -> None:
    code = (
        "import sys; import vedette_cloud.cli; print(*{'numpy','cv2','starlette','ray'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=REPOSITORY
    )
    assert not done.stdout.strip()
