"""What a device's link is put together from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from vedette.config.link import MqttResultsConfig
from vedette.link.drain import DrainLimits
from vedette.link.entries import Moment
from vedette.wire.topics import ANNOUNCE_ALL, DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.clock import Clock
    from vedette.link.block_inbox import BlockInbox
    from vedette.link.home_assistant import HomeAssistant
    from vedette.link.outbox import Outbox
    from vedette.link.port import Commands, StateSource
    from vedette.link.reply_memory import ReplyMemory
    from vedette.link.sqlite_file import SqliteFile
    from vedette.mqtt.port import Connection, Subscription, WillMaker
    from vedette.trust.wall_clock import WallClock
    from vedette.wire.plane import Announcement

    Connect = Callable[[Sequence[Subscription], WillMaker], Connection]


class MomentClock:
    """Now, as outbox and presence write it down; `trusted` only where somebody vouches for the wall clock."""

    def __init__(self, boot_id: str, clock: Clock, wall: WallClock) -> None:
        self._boot_id = boot_id
        self._clock = clock
        self._wall = wall

    def now(self) -> Moment:
        """By both clocks."""
        return Moment(
            boot_id=self._boot_id,
            monotonic_s=self._clock.monotonic_ns() / 1e9,
            utc_s=self._wall.utc_s(),
            utc_trusted=self._wall.synchronised() is True,
        )


class LinkIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks, and to whom; `broker` is for people."""

    topics: DeviceTopics
    agent: str
    broker: str
    channel: str = ANNOUNCE_ALL


@dataclass(frozen=True, kw_only=True)
class LinkParts:
    """The ports and the policies. `uniform` draws from a range, `new_session` makes a name that is new.

    `announced` is called on the link's thread and only enqueues. `home` None: no Home Assistant, and what is
    still retained for it is taken back. `blocks` is told of blocks and how the connection stands.
    """

    connect: Connect
    file: SqliteFile
    outbox: Outbox
    memory: ReplyMemory
    state: StateSource
    commands: Commands
    announced: Callable[[Announcement], object]
    clock: Clock
    now: Callable[[], Moment]
    uniform: Callable[[float, float], float]
    new_session: Callable[[], str]
    results: MqttResultsConfig = field(default_factory=MqttResultsConfig)
    drain: DrainLimits = field(default_factory=DrainLimits)
    home: HomeAssistant | None = None
    blocks: BlockInbox | None = None
