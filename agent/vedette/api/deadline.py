"""A limit on how long a task may take over a part of its work, in a running event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Deadline:
    """`with Deadline(2.0, error): …` raises `error` when the block takes longer; costs one timer.

    asyncio.timeout does this from Python 3.11 on; asyncio.wait_for starts a task each time.
    """

    def __init__(self, limit_s: float, error: Exception) -> None:
        self._limit_s = limit_s
        self._error = error
        self._fired = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._limit_s), self._fire)
        return self

    def _fire(self) -> None:
        self._fired = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fired and kind is asyncio.CancelledError:
            uncancel = getattr(self._task, "uncancel", None)  # Python 3.11 and later count cancellations
            if uncancel is not None:
                uncancel()
            raise self._error from None
