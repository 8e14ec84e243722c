"""Runs a function in a forked process that may be killed at any instant, and hears what it said."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 60


@dataclass
class Outcome:
    """`killed_by` is a signal's number; `said` came before the end; `result` only if there was a good one."""

    killed_by: int | None = None
    said: list[str] = field(default_factory=list)
    result: list[str] | None = None
    error: str | None = None


def run_in_child(
    action: Callable[[Callable[[str], None]], list[str]], *, kill_after_s: float | None = None
) -> Outcome:
    """Fork, act, listen until the end; SIGKILL after `kill_after_s` seconds, SIGALRM when it hangs."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _act(action, writing)
    os.close(writing)
    try:
        heard = _listen(reading, pid, kill_after_s)
    finally:
        os.close(reading)
    _pid, status = os.waitpid(pid, 0)
    outcome = Outcome(killed_by=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None)
    for line in heard.split(b"\n")[:-1]:
        kind, content = msgspec.json.decode(line, type=tuple[str, list[str]])
        if kind == "said":
            outcome.said += content
        elif kind == "result":
            outcome.result = content
        else:
            outcome.error = "".join(content)
    return outcome


def _listen(reading: int, pid: int, kill_after_s: float | None) -> bytes:
    heard = bytearray()
    deadline = time.monotonic() + (TIMEOUT_S + 5 if kill_after_s is None else kill_after_s)
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            os.kill(pid, signal.SIGKILL)
            left_s = 5.0
            deadline += 3600
        ready, _, _ = select.select([reading], [], [], left_s)
        if not ready:
            continue
        block = os.read(reading, 65536)
        if not block:
            return bytes(heard)
        heard += block


def _act(action: Callable[[Callable[[str], None]], list[str]], writing: int) -> NoReturn:
    signal.alarm(TIMEOUT_S)

    def send(kind: str, content: list[str]) -> None:
        left = msgspec.json.encode((kind, content)) + b"\n"
        while left:
            left = left[os.write(writing, left) :]

    try:
        send("result", action(lambda word: send("said", [word])))
    except BaseException:  # noqa: BLE001 - whatever it was, the parent must hear of it
        send("error", [traceback.format_exc()])
    finally:
        os._exit(0)
