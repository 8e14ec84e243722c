"""Where an arrival goes: to the commands, to the announcements, to who asked for its topic, or to the count.

Runs on the link's thread. One bad message is one count more, and the next one is looked at as ever.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from vedette.link.inbox_parsing import (
    BadMessageError,
    parse_announcement,
    parse_command,
    response_topic,
)
from vedette.mqtt.port import Subscription
from vedette.wire.plane import CommandReply
from vedette.wire.topics import ANNOUNCE_ALL, announcements

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.link.announcements import AnnouncementDelay
    from vedette.link.inbox_parsing import CommandRequest
    from vedette.link.presence import Presence
    from vedette.mqtt.port import Arrived
    from vedette.wire.topics import DeviceTopics

    Handler = Callable[[Arrived], None]
    # Says an answer: where to, its correlation, and what.
    Answer = Callable[[str, bytes, CommandReply], object]


class Inbox:
    """The topics that a device hears."""

    def __init__(
        self,
        topics: DeviceTopics,
        *,
        channel: str,
        clock: Clock,
        presence: Presence,
        delay: AnnouncementDelay,
        submit: Callable[[CommandRequest], bool],
        answer: Answer,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._presence = presence
        self._delay = delay
        self._submit = submit
        self._answer = answer
        self._command_prefix = topics.commands.removesuffix("+")
        self._announcements = {announcements(ANNOUNCE_ALL), announcements(channel)}
        self._routes: dict[str, tuple[Handler, int]] = {}
        self.bad: Counter[str] = Counter()
        self.contradicted = False

    def route(self, topic: str, handler: Handler, qos: int = 0) -> None:
        """Give what arrives on a topic to `handler`, which only enqueues; before the link starts."""
        self._routes[topic] = (handler, qos)

    def subscriptions(self) -> list[Subscription]:
        """What to ask the broker for."""
        # A retained command that comes while we listen is the one that would come again later.
        wanted = [
            Subscription(self._topics.commands, retain_as_published=True),
            Subscription(self._topics.status),
        ]
        wanted += [Subscription(topic) for topic in sorted(self._announcements)]
        return wanted + [Subscription(topic, qos) for topic, (_, qos) in self._routes.items()]

    def take(self, arrived: Arrived) -> None:
        """Look at one arrival; raises nothing, whatever it is."""
        route = self._routes.get(arrived.topic)
        try:
            if route is not None:
                route[0](arrived)
            elif arrived.topic.startswith(self._command_prefix):
                self._take_command(arrived.topic.removeprefix(self._command_prefix), arrived)
            elif arrived.topic in self._announcements:
                self._take_announcement(arrived)
            elif arrived.topic == self._topics.status:
                self._take_status(arrived)
            else:
                self.bad["unknown_topic"] += 1
        except BadMessageError as error:
            self.bad[error.kind] += 1
        except (ValueError, msgspec.MsgspecError, RecursionError):
            self.bad["bad_status"] += 1
            self.contradicted = True  # our own state was overwritten with rubbish
        except Exception:  # noqa: BLE001 - of a handler; the next arrival must not suffer for it
            self.bad["handler_fault"] += 1

    def _take_command(self, name: str, arrived: Arrived) -> None:
        try:
            request = parse_command(name, arrived, self._topics, self._clock.monotonic_ns())
        except BadMessageError as error:
            if not arrived.retained and (arrived.response_topic or arrived.correlation):
                refusal = CommandReply(id="", ok=False, error=error.cause, cure=error.cure)
                self._answer(response_topic(arrived, name, self._topics), arrived.correlation, refusal)
            raise
        if not self._submit(request):
            busy = CommandReply(
                id=request.command.id, ok=False, error="busy: other commands wait", cure="ask again later"
            )
            self._answer(request.response_topic, request.correlation, busy)

    def _take_status(self, arrived: Arrived) -> None:
        # What is remembered from before is replaced by this connection's birth anyway.
        if not arrived.retained:
            self.contradicted |= self._presence.contradicted_by(arrived.payload)

    def _take_announcement(self, arrived: Arrived) -> None:
        if arrived.payload:  # an empty one takes a retained one back
            self._delay.heard(parse_announcement(arrived.payload), self._clock.monotonic_ns())
