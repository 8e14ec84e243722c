"""Commands that were taken up, and the replies, on the disk: the second arrival of one is not carried out.

A command is written down before it is begun. One that was begun and never answered, because the agent was
ended, is answered with just that: nobody knows how far it came, so it is not begun again (casebook 29).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.link.entries import Moment, age_s
from vedette.wire.plane import CommandReply

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from vedette.link.sqlite_file import SqliteFile

MAX_COUNT = 512
MAX_AGE_S = 86400.0
MAX_REPLY_BYTES = 4096

_FIND = "SELECT reply FROM replies WHERE name = ? AND id = ?"
_ADD = (
    "INSERT INTO replies VALUES (?, ?, (SELECT COALESCE(MAX(number), 0) + 1 FROM replies), ?, ?, ?, ?, NULL)"
)
_MOMENTS = "SELECT number, boot_id, monotonic_s, utc_s, utc_trusted FROM replies ORDER BY number DESC"
_FORGET = "DELETE FROM replies WHERE number = ?"
_STORE = "UPDATE replies SET reply = ? WHERE name = ? AND id = ?"


class ReplyMemory:
    """The newest commands with their replies, bounded in number, age and bytes; any thread."""

    def __init__(
        self,
        file: SqliteFile,
        *,
        now: Callable[[], Moment],
        max_count: int = MAX_COUNT,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._file = file
        self._now = now
        self._max_count = max_count
        self._max_age_s = max_age_s

    def take_up(self, name: str, command_id: str) -> CommandReply | None:
        """Write down that a command is begun; what to answer instead when it was before.

        Raises:
            StorageError: The disk refuses.
        """
        now = self._now()

        def write(database: sqlite3.Connection) -> tuple[bytes | None, ...] | None:
            row: tuple[bytes | None, ...] | None = database.execute(_FIND, (name, command_id)).fetchone()
            if row is None:
                self._forget_old(database, now)
                moment = (now.boot_id, now.monotonic_s, now.utc_s, now.utc_trusted)
                database.execute(_ADD, (name, command_id, *moment))
            return row

        row = self._file.run(write)
        return None if row is None else _repeated(command_id, row[0])

    def answered(self, name: str, reply: CommandReply) -> bool:
        """Write down the answer, of a large one only how large it was; False when it was not taken up here.

        Raises:
            StorageError: The disk refuses; a second arrival hears that the first was not finished.
        """
        content = msgspec.json.encode(_bounded(reply))
        return self._file.run(
            lambda database: database.execute(_STORE, (content, name, reply.id)).rowcount == 1
        )

    def _forget_old(self, database: sqlite3.Connection, now: Moment) -> None:
        for place, row in enumerate(database.execute(_MOMENTS).fetchall(), start=1):
            kept_at = Moment(row[1], row[2], row[3], bool(row[4]))
            if place >= self._max_count or age_s(kept_at, now) > self._max_age_s:
                database.execute(_FORGET, (row[0],))


def repetition(reply: CommandReply) -> CommandReply:
    """What a second arrival is answered."""
    return msgspec.structs.replace(_bounded(reply), repeated=True)


def _bounded(reply: CommandReply) -> CommandReply:
    size = len(msgspec.json.encode(reply))
    if size <= MAX_REPLY_BYTES:
        return reply
    return msgspec.structs.replace(reply, body={"not_kept_bytes": size}, error=reply.error[:MAX_REPLY_BYTES])


def _repeated(command_id: str, content: bytes | None) -> CommandReply:
    if content is None:
        return CommandReply(
            id=command_id,
            ok=False,
            error="the agent ended while it carried this out; how far it came is not known",
            cure="look at `status`, then ask again under a new id",
            repeated=True,
        )
    return repetition(msgspec.json.decode(content, type=CommandReply))
