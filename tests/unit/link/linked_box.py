"""A device's link on a fake broker, driven turn by turn with clocks that stand still."""

from __future__ import annotations

import itertools
import json
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from tests.stubs.fake_connection import FakeBroker, FakeConnection

from vedette.clock import ManualClock
from vedette.errors import VedetteError
from vedette.link.device_link import DeviceLink
from vedette.link.drain import DrainLimits
from vedette.link.entries import Moment
from vedette.link.outbox import Outbox
from vedette.link.parts import LinkIdentity, LinkParts
from vedette.link.reply_memory import ReplyMemory
from vedette.link.sqlite_file import SqliteFile
from vedette.mqtt.port import Outgoing, Subscription, WillMaker
from vedette.wire.plane import Announcement, Command, CommandReply, Reported
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOPICS = DeviceTopics.of("plant-a", "cam-7")
AT_ONCE = DrainLimits(rate_per_s=1e6, burst=1000, settle_s=0.0)


class ToldState:
    """Says what the test put in."""

    def __init__(self) -> None:
        self.phase = "idle"

    def reported(self, seq: int) -> Reported:
        return Reported(seq=seq, boot_id="boot-1", utc_s=0.0, phase=self.phase)


class TaughtCommands:
    """Carries out what the test taught, and remembers what was asked."""

    def __init__(self) -> None:
        self.carried_out: list[tuple[str, Command]] = []
        self.bodies: dict[str, Any] = {}
        self.errors: deque[Exception] = deque()

    def carry_out(self, name: str, command: Command) -> CommandReply:
        self.carried_out.append((name, command))
        if self.errors:
            raise self.errors.popleft()
        return CommandReply(id=command.id, ok=True, body=self.bodies.get(name, {"name": name}))


class LinkedBox:
    """One device; `restart` is a kill, after which its folder is all that is left."""

    def __init__(self, folder: Path, broker: FakeBroker | None = None, **parts: Any) -> None:  # noqa: ANN401
        self._folder = folder / "link"
        self._given = parts
        self.broker = broker or FakeBroker()
        self.clock = ManualClock(1_000_000_000_000)
        self.boot_id = "boot-1"
        self.utc_s = 1.7e9
        self.utc_trusted = True
        self.state = ToldState()
        self.commands = TaughtCommands()
        self.announced: list[Announcement] = []
        self._sessions = itertools.count(1)
        self._make()

    def _make(self) -> None:
        given = dict(self._given)
        max_bytes = given.pop("max_bytes", 1_000_000)
        self.file = SqliteFile(self._folder, max_bytes=max_bytes)
        self.outbox = Outbox(self.file, max_bytes=max_bytes, now=self.now)
        self.connection: FakeConnection | None = None
        defaults: dict[str, Any] = {
            "drain": AT_ONCE,
            "uniform": lambda _low, high: high,
            "announced": self.announced.append,
        }
        self.link = DeviceLink(
            LinkIdentity(topics=TOPICS, agent="0.1.0", broker="broker:8883", channel="canary"),
            LinkParts(
                connect=self._connect,
                file=self.file,
                outbox=self.outbox,
                memory=ReplyMemory(self.file, now=self.now),
                state=self.state,
                commands=self.commands,
                clock=self.clock,
                now=self.now,
                new_session=lambda: f"session-{next(self._sessions)}",
                **{**defaults, **given},
            ),
        )

    def _connect(self, subscriptions: Sequence[Subscription], will: WillMaker) -> FakeConnection:
        self.connection = self.broker.connection(subscriptions, will)
        return self.connection

    def now(self) -> Moment:
        return Moment(self.boot_id, self.clock.monotonic_ns() / 1e9, self.utc_s, self.utc_trusted)

    def restart(self, **parts: Any) -> None:  # noqa: ANN401 - those of LinkParts
        """End as by kill -9, and begin anew."""
        if self.connection is not None:
            with self.broker.lock:
                self.broker.end(self.connection, "closed")
        self.file.close()
        self._given.update(parts)
        self._make()

    def run(self, seconds: float = 0.0, *, step_s: float = 0.05) -> None:
        """Turn until nothing more happens at this moment, then the same at each step of the time to come."""
        self._settle()
        for _ in range(round(seconds / step_s)):
            self.clock.advance_s(step_s)
            self._settle()

    def _settle(self) -> None:
        for _ in range(200):
            before = len(self.broker.published), len(self.commands.carried_out)
            self.link.turn(0.0)
            while self.link._commands.run_one(0.0):
                self.link.turn(0.0)
            self.link.turn(0.0)
            if before == (len(self.broker.published), len(self.commands.carried_out)):
                return
        raise AssertionError("the link never comes to rest")

    def open(self) -> LinkedBox:
        """Connect; the command thread is the test's own, so that nothing happens by itself."""
        self.link._commands.start = lambda: None  # type: ignore[method-assign]
        self.link.open()
        return self

    def said(self, topic: str) -> list[dict[str, Any]]:
        """What was published there, oldest first."""
        return [json.loads(message.payload) for message in self.broker.published if message.topic == topic]

    def ask(self, name: str, payload: bytes | Command, **properties: Any) -> None:  # noqa: ANN401 - Outgoing's
        """Send a command as somebody else."""
        content = msgspec.json.encode(payload) if isinstance(payload, Command) else payload
        self.broker.say(Outgoing(f"{TOPICS.branch}/cmd/{name}", content, **properties))


class CommandError(VedetteError):
    """What a command may raise."""
