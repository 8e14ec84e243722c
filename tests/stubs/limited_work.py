"""Work for a limited child that does what the spec says: one word, such as `crash`."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S = 3600.0


def work(spec: bytes, tell: Callable[[bytes], None]) -> None:
    """Play it."""
    tell(b"begun")
    _PLAYS[spec.decode()](tell)
    tell(b"ended")


def _crash(_tell: Callable[[bytes], None]) -> None:
    ctypes.string_at(0)


def _hang(_tell: Callable[[bytes], None]) -> None:
    time.sleep(HOUR_S)


def _swell(_tell: Callable[[bytes], None]) -> None:
    held = [bytearray(os.urandom(1 << 20)) * 64]
    while True:
        held.append(bytearray(held[0]))
        time.sleep(0.01)


def _spin(_tell: Callable[[bytes], None]) -> None:
    while True:
        pass


def _fail(_tell: Callable[[bytes], None]) -> None:
    raise RuntimeError("the work is broken")


def _flood(tell: Callable[[bytes], None]) -> None:
    while True:
        tell(b"x" * 1000)


def _shout(_tell: Callable[[bytes], None]) -> None:
    sys.stderr.write("noise\n" * 100_000 + "last words\n")


def _limits(tell: Callable[[bytes], None]) -> None:
    tell(str(os.getpriority(os.PRIO_PROCESS, 0)).encode())
    tell(str(resource.getrlimit(resource.RLIMIT_CORE)[0]).encode())
    tell(Path("/proc/self/oom_score_adj").read_bytes().strip())


_PLAYS = {
    "crash": _crash,
    "hang": _hang,
    "swell": _swell,
    "spin": _spin,
    "raise": _fail,
    "flood": _flood,
    "shout": _shout,
    "limits": _limits,
}
