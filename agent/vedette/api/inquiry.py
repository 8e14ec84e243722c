"""A question to the daemon that many may ask at once: asked once, its answer kept for a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from vedette.errors import InternalError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from vedette.clock import Clock

T = TypeVar("T")


class Inquiry(Generic[T]):
    """Asks with `ask`, which blocks and has a time-out of its own, on a thread of `pool`.

    An answer, or the failure to get one, is given again for `fresh_s`. An older answer, up to `keep_s`, is
    given while a new one is fetched. One event loop owns it.
    """

    def __init__(
        self, ask: Callable[[], T], *, pool: Executor, clock: Clock, fresh_s: float, keep_s: float = 0.0
    ) -> None:
        self._ask = ask
        self._pool = pool
        self._clock = clock
        self._fresh_ns = round(fresh_s * 1e9)
        self._keep_ns = round(keep_s * 1e9)
        self._answer: T | None = None
        self._failure: VedetteError | None = None
        self._asked_ns = 0
        self._under_way: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """The answer.

        Raises:
            VedetteError: Why the daemon gives none.
        """
        age_ns = self._clock.monotonic_ns() - self._asked_ns
        known = bool(self._asked_ns)
        if known and age_ns < self._fresh_ns:
            return self._known()
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._fetch())
        if known and self._failure is None and age_ns < self._keep_ns:
            return self._known()
        await asyncio.shield(self._under_way)
        return self._known()

    def peek(self) -> T | None:
        """A good answer that need not be waited for, None where there is none; an old one is fetched anew."""
        age_ns = self._clock.monotonic_ns() - self._asked_ns
        if self._answer is None or age_ns >= max(self._fresh_ns, self._keep_ns) or not self._asked_ns:
            return None
        if age_ns >= self._fresh_ns and self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._fetch())
        return self._answer

    def forget(self) -> None:
        """What is known is no longer true: the next `get` asks."""
        self._asked_ns = 0

    def _known(self) -> T:
        if self._failure is not None:
            raise self._failure
        if self._answer is None:
            raise InternalError("an inquiry ended without an answer")
        return self._answer

    async def _fetch(self) -> None:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._ask)
            if answer != self._answer:  # the same object says that nothing has changed
                self._answer = answer
            self._failure = None
        except VedetteError as error:
            self._answer, self._failure = None, error
        finally:
            self._under_way = None
            self._asked_ns = self._clock.monotonic_ns()
