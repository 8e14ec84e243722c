"""Work that may wait for a network, in a thread of its own: who judges a candidate must not wait with it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Do it in a thread, which does not keep the process from ending."""
    future: Future[T] = Future()
    threading.Thread(target=_run, args=(work, future), name=name, daemon=True).start()
    return future


def inline(work: Callable[[], T], _name: str) -> Future[T]:
    """Do it now, for worlds that never wait."""
    future: Future[T] = Future()
    _run(work, future)
    return future


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whatever it was, it belongs to whoever asks for the result
        future.set_exception(error)
