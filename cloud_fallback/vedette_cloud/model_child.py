"""The process that runs the model: `python -m vedette_cloud.model_child SOCKET_FD PARENT_PID SPEC`."""

from __future__ import annotations

import gc
import socket
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import VedetteError
from vedette.frame.lifeline import tie_to_parent
from vedette_cloud.batch_model import Asked, load_batch_model
from vedette_cloud.messages import (
    SIZES_BYTES,
    Answered,
    ChildSpec,
    Fatal,
    Loaded,
    Progress,
    pack,
    sizes_of,
    to_child,
)

if TYPE_CHECKING:
    from vedette_cloud.batch_model import BatchModel
    from vedette_cloud.messages import Answer, Ask, FromChild

# Batches that failed as a whole, one after the other: a fresh process is the cure.
FAILURES_BEFORE_EXIT = 5
EXIT_SICK = 75


class GoneError(Exception):
    """The server hung up."""


def main(arguments: list[str]) -> int:
    """Load, say so, and answer until the server hangs up."""
    tie_to_parent(int(arguments[1]))
    spec = msgspec.json.decode(arguments[2], type=ChildSpec)
    with socket.socket(fileno=int(arguments[0])) as line:
        line.setblocking(True)  # noqa: FBT003 - the socket's own signature
        try:
            return _serve(line, spec)
        except (GoneError, BrokenPipeError, ConnectionResetError):
            return 0


def _serve(line: socket.socket, spec: ChildSpec) -> int:
    try:
        model = load_batch_model(spec, lambda said: _send(line, Progress(said)))
    except VedetteError as error:
        _send(line, Fatal(error.exit_code, error.cause, error.cure))
        return error.exit_code
    gc.collect()
    gc.freeze()
    _send(line, Loaded(model.description(), model.sizes, model.one_by_one))
    failures = 0
    while failures < FAILURES_BEFORE_EXIT:
        message, frames = _receive(line)
        started_ns = time.monotonic_ns()
        answers = _answer(model, message, frames)
        _send(line, Answered(answers, time.monotonic_ns() - started_ns))
        failures = failures + 1 if all(one.result.failed for one in answers) else 0
    sys.stderr.write(f"{FAILURES_BEFORE_EXIT} batches in a row failed; a new process may help\n")
    return EXIT_SICK


def _answer(model: BatchModel, message: Ask, frames: memoryview) -> tuple[Answer, ...]:
    asked, at = [], 0
    for question in message.questions:
        end = at + question.format.frame_bytes
        asked.append(Asked(question, frames[at:end]))
        at = end
    return model.answer(asked)


def _send(line: socket.socket, message: FromChild) -> None:
    line.sendall(pack(message))


def _receive(line: socket.socket) -> tuple[Ask, memoryview]:
    head_bytes, frames_bytes = sizes_of(bytes(_exactly(line, SIZES_BYTES)))
    head = bytes(_exactly(line, head_bytes))
    return to_child(head), _exactly(line, frames_bytes)


def _exactly(line: socket.socket, size_bytes: int) -> memoryview:
    """That many bytes; the wait for them ends when the server does."""
    whole = memoryview(bytearray(size_bytes))
    at = 0
    while at < size_bytes:
        count = line.recv_into(whole[at:])
        if not count:
            raise GoneError
        at += count
    return whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
