"""A small HTTP client for the door: raw enough to send what no library would."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_S = 20.0


class Answer(NamedTuple):
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json()["error"])


def connect(where: str) -> socket.socket:
    """A connection to `http://host:port` or `unix:PATH`."""
    if where.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_S)
        connection.connect(where.removeprefix("unix:"))
        return connection
    host, _, port = where.removeprefix("http://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S)


def read_answer(connection: socket.socket) -> Answer:
    """One response; empty when the server only closed."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            assert not received, f"the answer ends in its head: {bytes(received)!r}"
            raise ConnectionResetError("closed without an answer")
        received += piece
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = int(headers.get("content-length", "0"))
    while len(body) < size:
        piece = connection.recv(65536)
        assert piece, "the answer ends early"
        body += piece
    return Answer(int(first.split(" ")[1]), headers, body)


def send_request(
    connection: socket.socket,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write a request with a Content-Length, unless `headers` say otherwise; an empty one is left out."""
    peer = connection.getpeername()
    host = f"127.0.0.1:{peer[1]}" if isinstance(peer, tuple) else "box"
    fields = {"Host": host, "Content-Length": str(len(body)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in fields.items() if v)]
    connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


def ask(
    where: str, path: str, *, method: str = "", body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answer:
    """One request on a connection of its own."""
    with connect(where) as connection:
        send_request(connection, method or ("POST" if body else "GET"), path, body=body, headers=headers)
        return read_answer(connection)


def door_figures(where: str, *names: str) -> list[int]:
    """What the door counts of itself."""
    door = ask(where, "/preview/state").json()["door"]
    return [door[name] for name in names]


def binary_request(
    inputs: Sequence[tuple[dict[str, Any], bytes]],
    **fields: Any,  # noqa: ANN401 - JSON is anything
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request in binary form: each input's JSON beside its bytes."""
    entries = [
        {**entry, "parameters": {**entry.get("parameters", {}), "binary_data_size": len(data)}}
        for entry, data in inputs
    ]
    head = json.dumps({**fields, "inputs": entries}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream",
    }
    return head + b"".join(data for _, data in inputs), headers


def picture_request(data: bytes, **fields: Any) -> tuple[bytes, dict[str, str]]:  # noqa: ANN401 - JSON
    """A request with an encoded picture."""
    packed = struct.pack("<I", len(data)) + data
    return binary_request([({"name": "image", "shape": [1], "datatype": "BYTES"}, packed)], **fields)


def tensors_of(answer: Answer) -> dict[str, Any]:
    """The outputs of a response by name: values of JSON, or the bytes of binary ones."""
    head_size = int(answer.headers.get("inference-header-content-length", len(answer.body)))
    found: dict[str, Any] = {}
    at = head_size
    for output in json.loads(answer.body[:head_size])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = output["data"]
        else:
            found[output["name"]] = answer.body[at : at + size]
            at += size
    assert at == len(answer.body)
    return found
