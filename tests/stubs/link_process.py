"""A device's link in a process of its own, to be killed.

`python -m tests.stubs.link_process FOLDER PORT` connects. With `--events N` it first keeps N events, named
e0, e1 and so on; then it says `ready` and drains until its input ends.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
from pathlib import Path

from vedette.clock import Clock, SystemClock
from vedette.link.device_link import DeviceLink
from vedette.link.drain import DrainLimits
from vedette.link.link_thread import LinkThread
from vedette.link.outbox import Outbox
from vedette.link.parts import LinkIdentity, LinkParts, MomentClock
from vedette.link.port import Keep
from vedette.link.reply_memory import ReplyMemory
from vedette.link.sqlite_file import SqliteFile
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import BrokerOptions, Subscription, WillMaker
from vedette.trust.wall_clock import SystemWallClock
from vedette.wire.plane import Announcement, Command, CommandReply, Reported
from vedette.wire.topics import DeviceTopics

TOPICS = DeviceTopics.of("plant-a", "cam-7")


class PlainState:
    """A box at rest."""

    def reported(self, seq: int) -> Reported:
        return Reported(seq=seq, boot_id="boot", utc_s=0.0, phase="idle")


class CountingCommands:
    """Answers with how many commands it carried out in this process."""

    def __init__(self) -> None:
        self.count = 0

    def carry_out(self, name: str, command: Command) -> CommandReply:
        self.count += 1
        return CommandReply(id=command.id, ok=True, body={"name": name, "count": self.count})


def made_link(
    folder: Path,
    options: BrokerOptions,
    *,
    drain: DrainLimits,
    clock: Clock | None = None,
    announced: list[Announcement] | None = None,
    max_bytes: int = 16_000_000,
) -> LinkThread:
    """A link as the daemon puts it together, not started."""
    clock = clock or SystemClock()
    now = MomentClock("boot", clock, SystemWallClock()).now
    file = SqliteFile(folder, max_bytes=max_bytes)
    heard: list[Announcement] = [] if announced is None else announced

    def connect(subscriptions: list[Subscription], will: WillMaker) -> PahoConnection:
        return PahoConnection(options, subscriptions, will)

    parts = LinkParts(
        connect=connect,  # type: ignore[arg-type]
        file=file,
        outbox=Outbox(file, max_bytes=max_bytes, now=now),
        memory=ReplyMemory(file, now=now),
        state=PlainState(),
        commands=CountingCommands(),
        announced=heard.append,
        clock=clock,
        now=now,
        uniform=random.SystemRandom().uniform,
        new_session=lambda: secrets.token_hex(8),
        drain=drain,
    )
    return LinkThread(DeviceLink(LinkIdentity(topics=TOPICS, agent="test", broker="loopback"), parts))


def quick_options(port: int, **others: object) -> BrokerOptions:
    """A broker on loopback, with short waits; without a session to keep, its will is not delayed."""
    chosen = {"retry_min_s": 0.05, "retry_max_s": 0.3, "session_expiry_s": 0, "client_id": "cam-7", **others}
    return BrokerOptions(host="127.0.0.1", port=port, **chosen)  # type: ignore[arg-type]


def main() -> None:
    """Keep events, connect, drain."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--rate", type=float, default=300.0)
    asked = parser.parse_args()
    drain = DrainLimits(rate_per_s=asked.rate, burst=5, settle_s=0.1)
    thread = made_link(asked.folder, quick_options(asked.port), drain=drain)
    for number in range(asked.events):
        thread.link.event("test", {"n": number}, keep=Keep.ALWAYS, event_id=f"e{number}")
    thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    thread.stop()


if __name__ == "__main__":
    main()
