"""Carries out what the drain decides: finds the message, hands it over, and books what became of it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError, StorageError
from vedette.link.aside_retry import AsideRetry
from vedette.link.drain import Drain, Item, Source, Verdict
from vedette.link.entries import Entry, Kind, age_s
from vedette.link.port import Keep
from vedette.mqtt.port import Outgoing
from vedette.wire.plane import COMMAND_EXPIRY_S, EVENT_EXPIRY_S, JSON_TYPE, TELEMETRY_EXPIRY_S, CommandReply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from vedette.link.drain import Pick
    from vedette.link.event_writer import EventWriter
    from vedette.link.parts import LinkIdentity, LinkParts
    from vedette.mqtt.port import Acknowledged, Connected, Connection

FLUSH_EVERY_S = 0.5
FLUSH_COUNT = 64
DISK_AGAIN_S = 1.0
MAX_REPLY_BYTES = 1 << 20
_BURST = 256
# Beside its payload an entry's packet has a topic and properties; those set aside must clearly fit.
_PACKET_OVERHEAD_BYTES = 512
_EXPIRY_S = {Kind.EVENT: EVENT_EXPIRY_S, Kind.REPORT: TELEMETRY_EXPIRY_S}
# The report of a message that was set aside has an id of this kind, and is not reported itself.
_ASIDE_ID = "aside:"


class _Reply(msgspec.Struct, frozen=True):
    topic: str
    correlation: bytes
    payload: bytes
    command_id: str
    expires_ns: int
    shortened: bool


class Sender:
    """All that is published at QoS 1; the link's thread only."""

    def __init__(self, identity: LinkIdentity, parts: LinkParts, writer: EventWriter) -> None:
        self._identity = identity
        self._parts = parts
        self._writer = writer
        self._drain = Drain(identity.topics.status, parts.drain, parts.uniform)
        self._states: dict[str, Callable[[], Outgoing]] = {}
        self._on_delivered: dict[str, Callable[[], None]] = {}
        self._replies: dict[int, _Reply] = {}
        self._reply_bytes = 0
        self._last_reply = 0
        self._expired: set[int] = set()
        self._flush_due_ns: int | None = None
        self._disk_again_ns: int | None = None
        self._aside = AsideRetry(parts.uniform)
        self.counts: Counter[str] = Counter()

    def state(
        self, topic: str, make: Callable[[], Outgoing], delivered: Callable[[], None] | None = None
    ) -> None:
        """Say this state from now on: at each connection, and when it is wanted."""
        self._states[topic] = make
        if delivered is not None:
            self._on_delivered[topic] = delivered
        self.want(topic)

    def end_state(self, topic: str) -> None:
        """Say it no more."""
        self._states.pop(topic, None)
        self._on_delivered.pop(topic, None)
        self._drain.forget(Item(Source.STATE, topic))

    def want(self, topic: str) -> None:
        """A state has something new."""
        if topic in self._states:
            self._drain.want(topic, self._now_ns())

    def kept(self) -> None:
        """Something came into the outbox."""
        self._drain.kept()

    def answer(self, topic: str, correlation: bytes, reply: CommandReply, *, shortened: bool = False) -> None:
        """Send a reply while it is of use; too many of them are dropped and counted."""
        payload = msgspec.json.encode(reply)
        if len(payload) > MAX_REPLY_BYTES:
            detail = f"{len(payload)} bytes, at most {MAX_REPLY_BYTES} go"
            payload = msgspec.json.encode(_too_large(reply.id, detail))
        if self._reply_bytes + len(payload) > MAX_REPLY_BYTES:
            self.counts["dropped_reply"] += 1
            return
        self._last_reply += 1
        expires_ns = self._now_ns() + COMMAND_EXPIRY_S * 10**9
        self._replies[self._last_reply] = _Reply(topic, correlation, payload, reply.id, expires_ns, shortened)
        self._reply_bytes += len(payload)
        self._drain.reply(self._last_reply)

    def connected(self, event: Connected) -> None:
        """A connection is up."""
        self._drain.connected(self._now_ns(), event.limits.receive_maximum)
        fits = event.limits.max_packet_bytes - _PACKET_OVERHEAD_BYTES
        self._on_disk(lambda: self._parts.outbox.take_back("too_large", fits))

    def lost(self, kind: str) -> None:
        """The connection ended."""
        self.flush(force=True)
        retried = self._drain.retried
        culprit = self._drain.lost(kind, self._now_ns())
        if culprit is not None and culprit == retried:
            self._failed_again(culprit, "ended_link")
        elif culprit is not None:
            self._give_up(culprit, "ended_link", f"the connection ended ({kind}) each time it was sent")

    def acknowledged(self, event: Acknowledged) -> None:
        """The broker answered."""
        retried = self._drain.retried
        found = self._drain.acknowledged(event.token, self._now_ns(), refused=bool(event.error))
        if found is None:
            return
        item, verdict = found
        if item.source is Source.REPLY:
            self._forget_reply(item.number)
        if event.error:
            self.counts["refused_by_broker"] += 1
        if item == retried and verdict is Verdict.DELIVERED:
            self._aside.arrived(self._now_ns())
        if verdict is Verdict.GIVEN_UP and item == retried:
            self._failed_again(item, "refused")
        elif verdict is Verdict.GIVEN_UP and item.source is Source.ENTRY:
            self._give_up(item, "refused", f"the broker refuses it: {event.error}")
        elif verdict is Verdict.DELIVERED and item.topic in self._on_delivered:
            self._on_delivered[item.topic]()

    def send(self, connection: Connection) -> None:
        """Hand over what may go now."""
        now_ns = self._now_ns()
        if self._disk_again_ns is not None and now_ns >= self._disk_again_ns:
            self._disk_again_ns = None
            self._drain.kept()
        self._on_disk(lambda: self._try_aside_again(now_ns))
        for _ in range(_BURST):
            pick = self._drain.pick(now_ns)
            if pick is None or not self._send_one(connection, pick, now_ns):
                break
        self.flush()

    def flush(self, *, force: bool = False) -> None:
        """Remove what was acknowledged or is too old, a number at a time, since each time is a sync."""
        finished = self._drain.finished
        if not finished and not self._expired:
            return
        now_ns = self._now_ns()
        if self._flush_due_ns is None:
            self._flush_due_ns = now_ns + round(FLUSH_EVERY_S * 1e9)
        if not (force or len(finished) >= FLUSH_COUNT or self._expired or now_ns >= self._flush_due_ns):
            return
        self._flush_due_ns = now_ns + round(DISK_AGAIN_S * 1e9)
        if self._on_disk(lambda: self._remove(finished)):
            self._flush_due_ns = None

    def wait_s(self) -> float:
        """Seconds until there may be something to do without an event; infinite when there will not."""
        now_ns = self._now_ns()
        dues = [due for due in (self._flush_due_ns, self._disk_again_ns) if due is not None]
        aside_s = self._aside.wait_s(now_ns) if self._drain.proven and self._drain.retried is None else None
        waits = [self._drain.wait_s(now_ns), *(() if aside_s is None else (aside_s,))]
        waits += [(due - now_ns) / 1e9 for due in dues]
        return max(0.0, min(waits, default=math.inf))

    def _send_one(self, connection: Connection, pick: Pick, now_ns: int) -> bool:
        """False when nothing more is taken now."""
        try:
            found = self._find(pick, now_ns)
        except StorageError:
            self.counts["disk_fault"] += 1
            self._disk_again_ns = now_ns + round(DISK_AGAIN_S * 1e9)
            found = None
        if found is None:
            self._drain.nothing(pick)
            return True
        item, message = found
        try:
            token = connection.publish(message)
        except BadInputError as error:
            self._give_up(item, "too_large", error.cause)
            return True
        if token is None:
            self._drain.blocked(now_ns)
            return False
        self._drain.sent(item, token, now_ns)
        return True

    def _find(self, pick: Pick, now_ns: int) -> tuple[Item, Outgoing] | None:
        item = pick.item
        if item.source is Source.STATE:
            make = self._states.get(item.topic)
            return None if make is None else (item, make())
        if item.source is Source.REPLY:
            return self._find_reply(item, now_ns)
        while (entry := self._next_entry(pick)) is not None:
            message = self._message(entry)
            if message is not None:
                return Item(Source.ENTRY, number=entry.number, keep=entry.keep), message
            self._expired.add(entry.number)
            if len(self._expired) >= FLUSH_COUNT:
                self._remove(())
        return None

    def _find_reply(self, item: Item, now_ns: int) -> tuple[Item, Outgoing] | None:
        reply = self._replies.get(item.number)
        if reply is None:
            return None
        left_s = (reply.expires_ns - now_ns) / 1e9
        if left_s < 1.0:
            self.counts["expired_reply"] += 1
            self._forget_reply(item.number)
            return None
        return item, Outgoing(
            reply.topic,
            reply.payload,
            content_type=JSON_TYPE,
            correlation=reply.correlation,
            expiry_s=int(left_s),
        )

    def _next_entry(self, pick: Pick) -> Entry | None:
        number = pick.item.number
        if number:
            return None if number in self._expired else self._parts.outbox.read(number)
        excluded = self._expired.union(self._drain.excluded)
        return self._parts.outbox.next(pick.item.keep, newest=pick.newest, excluded=excluded)

    def _message(self, entry: Entry) -> Outgoing | None:
        """The message, or None when it is of no use to anybody any more; update state always is."""
        expiry_s = _EXPIRY_S[entry.kind]
        if entry.keep is Keep.NEWEST:
            expiry_s = int(expiry_s - age_s(entry.kept_at, self._parts.now()))
        topics = self._identity.topics
        topic = topics.event if entry.kind is Kind.EVENT else topics.telemetry
        if expiry_s < 1:
            return None
        return Outgoing(topic, entry.payload, content_type=entry.content_type, expiry_s=expiry_s)

    def _give_up(self, item: Item, why: str, detail: str) -> None:
        """Send a message no more, and say so; an entry stays on the disk."""
        self._drain.forget(item)
        self.counts["set_aside"] += 1
        self._aside.set_aside(self._now_ns())
        if item.source is Source.REPLY:
            self._give_up_reply(item.number, why, detail)
        elif item.source is Source.STATE:
            self._states.pop(item.topic, None)
            self._report({"topic": item.topic, "why": why, "detail": detail}, Keep.NEWEST)
        else:
            self._on_disk(lambda: self._give_up_entry(item.number, why, detail))

    def _give_up_entry(self, number: int, why: str, detail: str) -> None:
        entry = self._parts.outbox.set_aside(number, why)
        if entry is None or entry.event_id.startswith(_ASIDE_ID):
            return
        told = {"id": entry.event_id, "what": entry.kind.value, "bytes": len(entry.payload)}
        self._report({**told, "why": why, "detail": detail}, entry.keep)

    def _try_aside_again(self, now_ns: int) -> None:
        """Give one entry another chance, once the connection proved itself.

        Raises:
            StorageError: The disk refuses; it is tried again later.
        """
        wait_s = self._aside.wait_s(now_ns)
        if wait_s is None or wait_s > 0 or not self._drain.proven or self._drain.retried is not None:
            return
        self._aside.failed(now_ns)  # unless it arrives
        entry = self._parts.outbox.take_back_one(self._aside.last_number)
        if entry is None:
            self._aside.tried_all()
            return
        self._aside.last_number = entry.number
        self._drain.retry(Item(Source.ENTRY, number=entry.number, keep=entry.keep))

    def _failed_again(self, item: Item, why: str) -> None:
        """Set it aside once more; that was told the first time."""
        self._drain.forget(item)
        self._on_disk(lambda: self._set_aside_again(item.number, why))

    def _set_aside_again(self, number: int, why: str) -> None:
        self._parts.outbox.set_aside(number, why)

    def _give_up_reply(self, number: int, why: str, detail: str) -> None:
        reply = self._replies.get(number)
        self._forget_reply(number)
        if reply is not None and why == "too_large" and not reply.shortened:
            shorter = _too_large(reply.command_id, detail)
            self.answer(reply.topic, reply.correlation, shorter, shortened=True)

    def _report(self, data: dict[str, object], keep: Keep) -> None:
        try:
            self._writer.write("message_set_aside", data, keep, f"{_ASIDE_ID}{self._parts.new_session()}")
        except StorageError:
            self.counts["disk_fault"] += 1
        self._drain.kept()

    def _forget_reply(self, number: int) -> None:
        reply = self._replies.pop(number, None)
        if reply is not None:
            self._reply_bytes -= len(reply.payload)

    def _remove(self, finished: Collection[int]) -> None:
        """Take entries off the disk.

        Raises:
            StorageError: The disk refuses; they stay excluded, and it is tried again.
        """
        if finished:
            self._parts.outbox.remove(finished)
            self._drain.removed(finished)
        if self._expired:
            self._parts.outbox.remove(self._expired, expired=True)
            self.counts["expired"] += len(self._expired)
            self._expired.clear()

    def _on_disk(self, work: Callable[[], None]) -> bool:
        """Whether the disk did it; a fault is counted, and what is not done now comes again."""
        try:
            work()
        except StorageError:
            self.counts["disk_fault"] += 1
            return False
        return True

    def _now_ns(self) -> int:
        return self._parts.clock.monotonic_ns()


def _too_large(command_id: str, detail: str) -> CommandReply:
    return CommandReply(
        id=command_id,
        ok=False,
        error=f"the answer is too large: {detail}",
        cure="ask for less, or raise the broker's maximum packet size",
    )
