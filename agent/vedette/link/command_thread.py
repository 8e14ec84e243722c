"""The thread that carries commands out, one at a time, so that none of them holds up the link."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import TYPE_CHECKING

from vedette.errors import StorageError, VedetteError
from vedette.link.reply_memory import repetition
from vedette.wire.plane import COMMAND_EXPIRY_S, CommandReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.link.inbox_parsing import CommandRequest
    from vedette.link.port import Commands
    from vedette.link.reply_memory import ReplyMemory

# Each is at most MAX_COMMAND_BYTES, so that this bounds the bytes too.
MAX_WAITING = 8
_LOOK_EVERY_S = 1.0
_MAX_REMEMBERED_HERE = 64


class CommandThread(threading.Thread):
    """Takes requests and gives `answer` a reply to each; what carries out may raise what it likes."""

    def __init__(
        self,
        commands: Commands,
        memory: ReplyMemory,
        answer: Callable[[CommandRequest, CommandReply], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="link-commands", daemon=True)
        self._commands = commands
        self._memory = memory
        self._answer = answer
        self._clock = clock
        self._requests: queue.Queue[CommandRequest] = queue.Queue(MAX_WAITING)
        self._stopping = threading.Event()
        self._unwritten: dict[tuple[str, str], CommandReply] = {}
        self.counts: Counter[str] = Counter()

    def submit(self, request: CommandRequest) -> bool:
        """Take a request; False when as many wait already as may."""
        try:
            self._requests.put_nowait(request)
        except queue.Full:
            self.counts["busy"] += 1
            return False
        return True

    def run(self) -> None:
        """Carry out until `stop`."""
        while not self._stopping.is_set():
            self.run_one(_LOOK_EVERY_S)

    def run_one(self, timeout_s: float) -> bool:
        """Carry out the next request; False when none came in time."""
        try:
            request = self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return False
        if self._stopping.is_set():
            return False
        self._answer(request, self._reply_to(request))
        return True

    def stop(self, timeout_s: float) -> bool:
        """End it after the command in hand; False when that takes longer."""
        self._stopping.set()
        if self.ident is None:
            return True
        self.join(timeout_s)
        return not self.is_alive()

    def _reply_to(self, request: CommandRequest) -> CommandReply:
        command = request.command
        age_s = (self._clock.monotonic_ns() - request.arrived_ns) / 1e9
        if age_s > COMMAND_EXPIRY_S:
            self.counts["expired"] += 1
            return CommandReply(
                id=command.id, ok=False, error=f"it waited {age_s:.0f} s for others and is not valid any more"
            )
        before = self._take_up(request)
        if before is not None:
            self.counts["repeated"] += 1
            return before
        self.counts[request.name] += 1
        reply = self._carry_out(request)
        if not reply.ok:
            self.counts["failed"] += 1
        self._remember(request.name, reply)
        return reply

    def _carry_out(self, request: CommandRequest) -> CommandReply:
        command = request.command
        try:
            reply = self._commands.carry_out(request.name, command)
        except VedetteError as error:
            return CommandReply(id=command.id, ok=False, error=error.cause, cure=error.cure)
        except Exception as error:  # noqa: BLE001 - an answer is worth more than a dead thread; it is counted
            self.counts["fault"] += 1
            return CommandReply(id=command.id, ok=False, error=f"our bug: {type(error).__name__}: {error}")
        return reply

    def _take_up(self, request: CommandRequest) -> CommandReply | None:
        """What was answered before; on a full disk a command is still carried out, once while we live."""
        before = self._unwritten.get((request.name, request.command.id))
        if before is not None:
            return before
        try:
            return self._memory.take_up(request.name, request.command.id)
        except StorageError:
            self.counts["not_written"] += 1
            return None

    def _remember(self, name: str, reply: CommandReply) -> None:
        try:
            if self._memory.answered(name, reply):
                return
        except StorageError:
            pass
        if len(self._unwritten) >= _MAX_REMEMBERED_HERE:
            self._unwritten.pop(next(iter(self._unwritten)))
        self._unwritten[name, reply.id] = repetition(reply)
