"""One process that runs the model, as the server's event loop sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError, UnavailableError, rebuild_error
from vedette_cloud.messages import (
    SIZES_BYTES,
    Answered,
    Ask,
    Fatal,
    Loaded,
    Progress,
    from_child,
    pack,
    sizes_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette_cloud.messages import Answer, ChildSpec, FromChild, Question

LOAD_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 2.0
KEPT_STDERR_BYTES = 8192
# One thread each: the engine's own pool is sized on purpose.
_QUIET_POOLS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ProcessLostError(UnavailableError):
    """The process died, or hung and was killed; what it had in hand is lost."""


class ModelProcess:
    """Started, asked one batch at a time, and stopped; one that was lost is not used again."""

    def __init__(self, spec: ChildSpec, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._say = say
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._stderr = b""
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """For tests that kill it."""
        return None if self._child is None else self._child.pid

    async def start(self) -> Loaded:
        """Load the model.

        Raises:
            ProcessLostError: It died, or took longer than any model may.
            VedetteError: The model cannot be served; the family says whose fault it is.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), msgspec.json.encode(self._spec).decode()]
            try:
                self._child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "vedette_cloud.model_child", *arguments),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env={**os.environ, **_QUIET_POOLS},
                )
            except OSError as error:
                ours.close()
                raise ProcessLostError(f"no process for the model can be started: {error}") from error
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen())
        try:
            return await asyncio.wait_for(self._loaded(), LOAD_TIMEOUT_S)
        except asyncio.TimeoutError:
            await self.stop()
            raise ProcessLostError(f"the model was not loaded within {LOAD_TIMEOUT_S:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def answer(
        self, questions: Sequence[Question], frames: Sequence[memoryview], timeout_s: float
    ) -> tuple[tuple[Answer, ...], int]:
        """Have one batch answered.

        Returns:
            The answers in order, and the nanoseconds that the run took in the process.

        Raises:
            ProcessLostError: The process is gone, and what it had in hand with it.
        """
        if self._writer is None:
            raise InternalError("a process that was not started is asked")
        writer = self._writer
        try:
            writer.write(pack(Ask(tuple(questions)), sum(len(frame) for frame in frames)))
            for frame in frames:
                writer.write(frame)
            message = await asyncio.wait_for(self._exchange(writer), timeout_s)
        except asyncio.TimeoutError:
            await self.stop()
            raise ProcessLostError(f"the model's process did not answer within {timeout_s:g} s") from None
        except (ConnectionError, asyncio.IncompleteReadError, InternalError) as error:
            lost = await self._lost(error)
            raise lost from error
        if not isinstance(message, Answered) or len(message.answers) != len(questions):
            await self.stop()
            raise ProcessLostError("the model's process answered what was not asked")
        return message.answers, message.run_ns

    @property
    def ended(self) -> bool:
        """It died while nobody asked it anything."""
        return self._child is not None and self._child.returncode is not None

    async def found_ended(self) -> ProcessLostError:
        """Why, for whoever found it dead."""
        return await self._lost(UnavailableError("it ended"))

    async def stop(self) -> None:
        """End it, by force where hanging up is not enough."""
        if self._writer is not None:
            self._writer.close()
        child = self._child
        if child is not None and child.returncode is None:
            try:
                await asyncio.wait_for(child.wait(), 0.2)
            except asyncio.TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(child.wait(), STOP_TIMEOUT_S)
        if self._listening is not None:
            self._listening.cancel()

    async def _exchange(self, writer: asyncio.StreamWriter) -> FromChild:
        await writer.drain()
        return await self._receive()

    async def _loaded(self) -> Loaded:
        while True:
            try:
                message = await self._receive()
            except (ConnectionError, asyncio.IncompleteReadError, InternalError) as error:
                lost = await self._lost(error)
                raise lost from error
            if isinstance(message, Progress):
                self._say(message.line)
            elif isinstance(message, Fatal):
                raise rebuild_error(message.exit_code, message.cause, message.cure)
            elif isinstance(message, Loaded):
                return message

    async def _receive(self) -> FromChild:
        if self._reader is None:
            raise InternalError("a process that was not started is listened to")
        head_bytes, _ = sizes_of(await self._reader.readexactly(SIZES_BYTES))
        return from_child(await self._reader.readexactly(head_bytes))

    async def _lost(self, error: Exception) -> ProcessLostError:
        await self.stop()
        status = None if self._child is None else self._child.returncode
        how = str(error) if status is None else describe_exit(status)
        said = self._last_words()
        return ProcessLostError(f"the model's process ended ({how})" + (f": {said}" if said else ""))

    async def _listen(self) -> None:
        """Keep the end of what it says on standard error."""
        child = self._child
        if child is None or child.stderr is None:
            return
        while piece := await child.stderr.read(65536):
            self._stderr = (self._stderr + piece)[-KEPT_STDERR_BYTES:]

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:300]


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
