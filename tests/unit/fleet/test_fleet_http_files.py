"""The static server, over real sockets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
import requests

from vedette.clock import SystemClock
from vedette.errors import UnavailableError
from vedette_fleet.http_files import FileServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOB = bytes(range(256)) * 2000
NAME = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    for name in ("metadata", "targets/models/demo", "blobs", "staged"):
        (folder / name).mkdir(parents=True)
    (folder / "blobs" / NAME).write_bytes(BLOB)
    (folder / "metadata" / "timestamp.json").write_bytes(b"{}")
    (folder / "targets" / "models" / "demo" / "empty.json").write_bytes(b"")
    (folder / "staged" / "2.root.json").write_bytes(b"{}")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "blobs" / "link").symlink_to(tmp_path / "secret")
    (folder / "targets" / "out").symlink_to(tmp_path)
    return folder


@contextlib.contextmanager
def serving(root: Path, **limits: float) -> Iterator[FileServer]:
    with FileServer(("127.0.0.1", 0), root, clock=SystemClock(), log=[].append, **limits) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)


@pytest.fixture
def server(root: Path) -> Iterator[FileServer]:
    with serving(root) as running:
        yield running


def get(server: FileServer, path: str, **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.get(server.url + path, headers=named, timeout=5)


def connect(server: FileServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=5)


def test_a_blob_comes_whole_and_in_parts(server: FileServer) -> None:
    whole = get(server, f"/blobs/{NAME}")
    assert (whole.status_code, whole.content) == (200, BLOB)
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = get(server, f"/blobs/{NAME}", Range="bytes=1000-99999", If_Range=whole.headers["ETag"])
    assert (part.status_code, part.content) == (206, BLOB[1000:100_000])
    assert part.headers["Content-Range"] == f"bytes 1000-99999/{len(BLOB)}"
    rest = get(server, f"/blobs/{NAME}", Range="bytes=100000-")
    assert BLOB[:1000] + part.content + rest.content == BLOB


def test_a_range_past_the_end_is_416_with_the_size(server: FileServer) -> None:
    answer = get(server, f"/blobs/{NAME}", Range=f"bytes={len(BLOB)}-")
    assert (answer.status_code, answer.content) == (416, b"")
    assert answer.headers["Content-Range"] == f"bytes */{len(BLOB)}"


def test_a_replaced_file_has_another_tag(server: FileServer, root: Path) -> None:
    first = get(server, "/metadata/timestamp.json")
    path = root / "metadata" / "timestamp.json"
    (root / "metadata" / "new").write_bytes(b"[]")
    os.utime(root / "metadata" / "new", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    (root / "metadata" / "new").replace(path)
    second = get(server, "/metadata/timestamp.json", Range="bytes=1-", If_Range=first.headers["ETag"])
    assert (second.status_code, second.content) == (200, b"[]")
    known = get(server, "/metadata/timestamp.json", If_None_Match=second.headers["ETag"])
    assert (known.status_code, known.content) == (304, b"")


def test_head_tells_the_size_without_the_bytes(server: FileServer) -> None:
    answer = requests.head(f"{server.url}/blobs/{NAME}", timeout=5)
    assert (answer.status_code, answer.headers["Content-Length"]) == (200, str(len(BLOB)))
    assert get(server, "/targets/models/demo/empty.json").content == b""


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metadata/",
        "/blobs",
        "/blobs/link",
        "/targets/out/secret",
        "/blobs/../../secret",
        "/blobs/%2e%2e/%2e%2e/secret",
        "/staged/2.root.json",
        "/targets/models",
        "/blobs/absent",
        "/blobs/" + "a" * 300,
    ],
)
def test_no_listing_no_link_and_no_way_out(server: FileServer, path: str) -> None:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"secret" not in answer.read()
    connection.close()


def test_other_methods_are_refused_and_one_connection_serves_many(server: FileServer) -> None:
    assert requests.put(f"{server.url}/blobs/{NAME}", data=b"x", timeout=5).status_code == 501
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    for _ in range(3):
        connection.request("GET", "/metadata/timestamp.json")
        assert connection.getresponse().read() == b"{}"
    connection.close()


def test_a_fifo_among_the_blobs_does_not_hang_the_server(server: FileServer, root: Path) -> None:
    os.mkfifo(root / "blobs" / "fifo")
    assert get(server, "/blobs/fifo").status_code == 404


def test_a_sender_that_drips_its_request_is_cut_off(root: Path) -> None:
    with serving(root, head_timeout_s=0.2) as server, connect(server) as slow:
        slow.sendall(b"GET /metadata/timestamp.json HTTP/1.1\r\nX: ")
        assert slow.recv(100) == b"", "closed, although a byte a minute would go on for ever"


def test_a_reader_that_takes_nothing_is_cut_off_and_its_place_is_free_again(root: Path) -> None:
    (root / "blobs" / "big").write_bytes(bytes(32 << 20))
    with serving(root, stall_timeout_s=0.2, max_connections=1) as server, connect(server) as stuck:
        stuck.sendall(b"GET /blobs/big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert get(server, "/metadata/timestamp.json").content == b"{}"


def test_too_many_connections_are_told_to_come_back(root: Path) -> None:
    with serving(root, max_connections=1) as server, connect(server) as first:
        first.sendall(b"GET /metadata/timestamp.json HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(10) == b"HTTP/1.1 2"
        answer = get(server, "/metadata/timestamp.json")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_a_port_in_use_is_said(server: FileServer, root: Path) -> None:
    lines: list[str] = []
    with pytest.raises(UnavailableError, match="cannot listen on"):
        FileServer(("127.0.0.1", server.server_port), root, clock=SystemClock(), log=lines.append)


def test_what_a_peer_sends_is_logged_without_control_characters(root: Path) -> None:
    lines: list[str] = []
    with FileServer(("127.0.0.1", 0), root, clock=SystemClock(), log=lines.append) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with connect(server) as peer:
            peer.sendall(b"GET /\x1b[31mred HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while peer.recv(4096):
                pass
        thread.join(5)
    assert lines
    assert all(line.isprintable() for line in lines)
