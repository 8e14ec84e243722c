"""The device on the MQTT plane: implements `link.port.Link` over a `mqtt.port.Connection`.

`turn` is the life of the thread `link`: take what came, pass on what is due, send what may go. Everything
else may be called by other threads, and leaves something for the next turn.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError, StorageError
from vedette.link.announcements import AnnouncementDelay
from vedette.link.command_thread import CommandThread
from vedette.link.event_writer import EventWriter
from vedette.link.home_upkeep import HomeTopics, HomeUpkeep
from vedette.link.inbox import Inbox
from vedette.link.port import Keep, LinkStatus
from vedette.link.presence import Presence
from vedette.link.result_outlet import ResultOutlet
from vedette.link.result_selection import ResultSelection
from vedette.link.sender import Sender
from vedette.mqtt.port import Acknowledged, Arrived, Connected, Lost, Outgoing
from vedette.wire.plane import JSON_TYPE

if TYPE_CHECKING:
    from vedette.link.home_assistant import HomeState
    from vedette.link.inbox import Handler
    from vedette.link.inbox_parsing import CommandRequest
    from vedette.link.parts import LinkIdentity, LinkParts
    from vedette.mqtt.port import Connection, Event, Limits, Refused
    from vedette.wire.messages import Result
    from vedette.wire.plane import CommandReply, Reported

STOP_WAIT_S = 1.0
BIRTH_AGAIN_S = 5.0
_EVENTS_A_TURN = 256


class DeviceLink:
    """The link of one device; `LinkThread` drives it."""

    def __init__(self, identity: LinkIdentity, parts: LinkParts) -> None:
        self._identity = identity
        self._parts = parts
        topics = identity.topics
        self._writer = EventWriter(parts.outbox, parts.now)
        self._sender = Sender(identity, parts, self._writer)
        self._presence = Presence(
            topics.status, topics.device, identity.agent, now=parts.now, new_session=parts.new_session
        )
        self._delay = AnnouncementDelay(parts.uniform)
        self._commands = CommandThread(parts.commands, parts.memory, self._answer, parts.clock)
        self._inbox = Inbox(
            topics,
            channel=identity.channel,
            clock=parts.clock,
            presence=self._presence,
            delay=self._delay,
            submit=self._commands.submit,
            answer=self._sender.answer,
        )
        self._blocks = parts.blocks
        if parts.blocks is not None:
            blocks = parts.blocks
            self._inbox.route(topics.block_data, lambda arrived: blocks.arrived(arrived.payload))
        self._results = ResultOutlet(topics, ResultSelection(parts.results), parts.clock)
        self._home = HomeUpkeep(parts.home, HomeTopics(parts.file), self._sender, self._reported)
        self._home_state: HomeState | None = None
        self._connection: Connection | None = None
        self._limits: Limits | None = None
        self._since_ns = parts.clock.monotonic_ns()
        self._last_loss = ""
        self._connects = 0
        self._last_seq = 0
        self._refused: dict[str, str] = {}
        self._answers: deque[tuple[CommandRequest, CommandReply]] = deque()  # as many as commands may wait
        self._kept = threading.Event()
        self._changed = threading.Event()
        self._birth_again_ns = 0
        self._damaged_told = 0
        self._ending = False

    def event(self, kind: str, data: dict[str, object], *, keep: Keep, event_id: str = "") -> str:
        """Keep an event durably and send it when it can be; `port.Link.event` says the rest.

        Raises:
            StorageError: No room for one that may not be dropped, or the disk refuses.
        """
        found = self._writer.write(kind, data, keep, event_id)
        self._kept.set()
        self.wake()
        return found

    def telemetry(self, payload: bytes, content_type: str) -> None:
        """Keep a report, dropping the oldest ones when there is no room.

        Raises:
            StorageError: The disk refuses; it was not kept.
        """
        self._parts.outbox.put_report(payload, content_type)
        self._kept.set()
        self.wake()

    def result(self, result: Result) -> None:
        """Offer an answer; whether it is sent is up to the configured rate."""
        if self._results.offer(result, connected=self.connected) and self.connected:
            self.wake()

    def state_changed(self) -> None:
        """`StateSource.reported` would say something new."""
        self._changed.set()
        self.wake()

    def home_state(self, state: HomeState) -> None:
        """What a dashboard is to show from now on; nothing happens where none was configured."""
        self._home_state = state
        self.wake()

    def route(self, topic: str, handler: Handler, qos: int = 0) -> None:
        """Subscribe to a topic, and give what comes to `handler` on the link's thread; it only enqueues.

        Raises:
            InternalError: The link was opened already.
        """
        if self._connection is not None:
            raise InternalError(f"{topic} is routed after the link was opened")
        self._inbox.route(topic, handler, qos)

    def send(self, message: Outgoing) -> bool:
        """Publish at QoS 0 now or not at all; False when there is no connection, or no room in it.

        Raises:
            BadInputError: It is larger than the broker takes.
        """
        connection = self._connection
        return connection is not None and connection.publish(message) is not None

    @property
    def connected(self) -> bool:
        """Whether the broker is there."""
        return self._limits is not None

    @property
    def limits(self) -> Limits | None:
        """What the broker allows in this connection; None while there is none."""
        return self._limits

    def status(self) -> LinkStatus:
        """How it stands."""
        counts = self._parts.outbox.counts()
        connection = self._connection
        bad = dict(self._inbox.bad)
        if connection is not None:
            health = connection.health()
            bad |= {"too_large": health.too_large_arrivals, "dropped": health.dropped_arrivals}
        faults = {**self._sender.counts, "dropped_events": counts.dropped_events, "damaged": counts.damaged}
        set_aside = faults.pop("set_aside", 0)
        limits = self._limits
        return LinkStatus(
            connected=limits is not None,
            broker=self._identity.broker,
            protocol=0 if limits is None else limits.protocol,
            since_s=(self._parts.clock.monotonic_ns() - self._since_ns) / 1e9,
            last_loss=self._last_loss,
            connects=self._connects,
            waiting_events=counts.events,
            waiting_reports=counts.reports,
            waiting_bytes=counts.waiting_bytes,
            dropped_reports=counts.dropped_reports,
            dropped_results=self._results.dropped,
            set_aside=set_aside,
            bad_messages={word: count for word, count in bad.items() if count},
            commands=dict(self._commands.counts),
            faults={word: count for word, count in faults.items() if count},
        )

    # What follows is the link's thread's.

    def open(self) -> None:
        """Look at the disk, and begin to connect; a disk that refuses is tried again with each message."""
        try:
            self._parts.outbox.open()
            self._parts.outbox.take_back("ended_link")
            self._parts.outbox.take_back("refused")
        except StorageError:
            self._sender.counts["disk_fault"] += 1
        topics = self._identity.topics
        self._sender.state(topics.status, self._presence.birth)
        self._sender.state(topics.reported, self._make_reported)
        self._home.open()
        self._connection = self._parts.connect(self._inbox.subscriptions(), self._presence.will)
        self._connection.start()
        self._commands.start()

    def turn(self, longest_s: float) -> None:
        """Wait for something to do, at most so long, and do it."""
        connection = self._opened()
        wait_s = min(longest_s, self._wait_s())
        for _ in range(_EVENTS_A_TURN):
            event = connection.next_event(wait_s)
            if event is None:
                break
            self._take(event)
            wait_s = 0.0
        self._pass_on()
        self._tell_of_damage()
        if self.connected:
            self._sender.send(connection)
            self._results.send(connection)

    def close(self, timeout_s: float = STOP_WAIT_S) -> bool:
        """Say goodbye and end the connection; False when something did not end in time."""
        self._ending = True
        connection = self._opened()
        if self.connected:
            self._say_goodbye(connection, timeout_s)
        self._sender.flush(force=True)
        ended = connection.stop(timeout_s / 2)
        ended = self._commands.stop(timeout_s / 2) and ended
        self._limits = None
        self._parts.file.close()
        return ended

    def _take(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._inbox.take(event)
        elif isinstance(event, Acknowledged):
            self._sender.acknowledged(event)
        elif isinstance(event, Connected):
            self._connected(event)
        elif isinstance(event, Lost):
            self._lost(event)
        else:
            self._subscription_refused(event)

    def _connected(self, event: Connected) -> None:
        self._limits = event.limits
        self._since_ns = self._parts.clock.monotonic_ns()
        self._connects += 1
        self._results.reconnected()
        self._sender.connected(event)
        if self._blocks is not None:
            self._blocks.connected(event.limits)

    def _lost(self, event: Lost) -> None:
        if self._limits is not None:
            self._since_ns = self._parts.clock.monotonic_ns()
        self._limits = None
        self._last_loss = f"{event.kind}: {event.reason}"
        self._sender.lost(event.kind)
        if self._blocks is not None:
            self._blocks.lost(self._last_loss)

    def _subscription_refused(self, event: Refused) -> None:
        self._inbox.bad["subscription_refused"] += 1
        if self._blocks is not None and event.filter == self._identity.topics.block_data:
            self._blocks.lost(f"the broker refuses the subscription to blocks: {event.reason}")
        if self._refused.get(event.filter) != event.reason:
            self._refused[event.filter] = event.reason
            self._tell("subscription_refused", {"filter": event.filter, "reason": event.reason}, Keep.NEWEST)

    def _pass_on(self) -> None:
        """What other threads left, and what is due."""
        now_ns = self._parts.clock.monotonic_ns()
        announcement = self._delay.due(now_ns)
        if announcement is not None:
            try:
                self._parts.announced(announcement)
            except Exception:  # noqa: BLE001 - a hint is not worth the link; counted
                self._inbox.bad["handler_fault"] += 1
        while self._answers:
            request, reply = self._answers.popleft()
            self._sender.answer(request.response_topic, request.correlation, reply)
        if self._kept.is_set():
            self._kept.clear()
            self._sender.kept()
        if self._changed.is_set():
            self._changed.clear()
            self._sender.want(self._identity.topics.reported)
            self._home.update_changed()
        home_state, self._home_state = self._home_state, None
        if home_state is not None:
            self._home.show(home_state)
        if self._inbox.contradicted and now_ns >= self._birth_again_ns:
            self._inbox.contradicted = False
            self._birth_again_ns = now_ns + round(BIRTH_AGAIN_S * 1e9)
            self._sender.want(self._identity.topics.status)

    def _tell_of_damage(self) -> None:
        replaced = self._parts.file.take_replaced()
        if replaced is not None:
            self._tell("outbox_damaged", msgspec.structs.asdict(replaced), Keep.ALWAYS)
        damaged = self._parts.outbox.counts().damaged
        if damaged > self._damaged_told:
            self._tell(
                "outbox_damaged", {"reason": "rows", "rows": damaged - self._damaged_told}, Keep.ALWAYS
            )
            self._damaged_told = damaged

    def _tell(self, kind: str, data: dict[str, object], keep: Keep) -> None:
        try:
            self._writer.write(kind, data, keep)
        except StorageError:
            self._sender.counts["disk_fault"] += 1
        self._sender.kept()

    def _reported(self) -> Reported:
        # Rises over restarts of the agent within a boot, without a counter on the disk.
        self._last_seq = max(self._last_seq + 1, self._parts.clock.monotonic_ns() // 10**6)
        return self._parts.state.reported(self._last_seq)

    def _make_reported(self) -> Outgoing:
        payload = msgspec.json.encode(self._reported())
        return Outgoing(self._identity.topics.reported, payload, retain=True, content_type=JSON_TYPE)

    def _say_goodbye(self, connection: Connection, timeout_s: float) -> None:
        """Publish that we end, and wait for the broker to have it."""
        clock = self._parts.clock
        deadline_ns = clock.monotonic_ns() + round(timeout_s * 1e9)
        while (event := connection.next_event(0.0)) is not None and self.connected:
            self._take(event)
        token = connection.publish(self._presence.goodbye())
        while self.connected and (left_s := (deadline_ns - clock.monotonic_ns()) / 1e9) > 0:
            event = connection.next_event(left_s)
            if event is None or (isinstance(event, Acknowledged) and event.token == token):
                return
            self._take(event)
            if token is None:  # as many were on their way as may be
                token = connection.publish(self._presence.goodbye())

    def _wait_s(self) -> float:
        now_ns = self._parts.clock.monotonic_ns()
        results_s = self._results.wait_s() if self.connected else math.inf
        return min(self._sender.wait_s(), self._delay.wait_s(now_ns), results_s)

    def _answer(self, request: CommandRequest, reply: CommandReply) -> None:
        self._answers.append((request, reply))
        self.wake()

    def wake(self) -> None:
        """Let a waiting turn go on; any thread."""
        connection = self._connection
        if connection is not None and not self._ending:
            connection.wake()

    def _opened(self) -> Connection:
        if self._connection is None:
            raise InternalError("the link was used before it was opened")
        return self._connection
