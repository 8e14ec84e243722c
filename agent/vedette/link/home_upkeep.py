"""What is retained at the broker for Home Assistant: kept up to date, taken back when not wanted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import StorageError
from vedette.link.home_assistant import removal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from vedette.link.home_assistant import HomeAssistant, HomeState
    from vedette.link.sender import Sender
    from vedette.link.sqlite_file import SqliteFile
    from vedette.wire.plane import Reported

_FIND = "SELECT fact FROM facts WHERE name = 'home_topics'"
_STORE = "INSERT OR REPLACE INTO facts VALUES ('home_topics', ?)"


class HomeTopics:
    """The list, on the disk before anything of it is published."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def claim(self, wanted: Sequence[str]) -> list[str]:
        """Remember these; those of an earlier time that are not among them, to be taken back.

        Raises:
            StorageError: The disk refuses.
        """

        def store(database: sqlite3.Connection) -> list[str]:
            known = _known(database)
            if any(topic not in known for topic in wanted):
                _store(database, [*wanted, *(topic for topic in known if topic not in wanted)])
            return [topic for topic in known if topic not in wanted]

        return self._file.run(store)

    def taken_back(self, topic: str) -> None:
        """The broker holds nothing on this topic any more.

        Raises:
            StorageError: The disk refuses; it will be taken back again.
        """
        self._file.run(
            lambda database: _store(database, [known for known in _known(database) if known != topic])
        )


class HomeUpkeep:
    """Says what Home Assistant shows; without `home` only what is left of an earlier time is taken back."""

    def __init__(
        self, home: HomeAssistant | None, topics: HomeTopics, sender: Sender, reported: Callable[[], Reported]
    ) -> None:
        self._home = home
        self._topics = topics
        self._sender = sender
        self._reported = reported

    def open(self) -> None:
        """Before the first connection."""
        home = self._home
        stale: list[str] = []
        try:
            stale = self._topics.claim(() if home is None else home.topics)
        except StorageError:
            self._sender.counts["disk_fault"] += 1
        for topic in stale:
            self._sender.state(topic, partial(removal, topic), partial(self._taken_back, topic))
        if home is not None:
            self._sender.state(home.discovery_topic, home.discovery)
            self._sender.state(home.update_topic, lambda: home.update(self._reported()))

    def show(self, state: HomeState) -> None:
        """What the sensors show from now on."""
        home = self._home
        if home is not None:
            self._sender.state(home.state_topic, lambda: home.state(state))

    def update_changed(self) -> None:
        """The state of updates is new."""
        if self._home is not None:
            self._sender.want(self._home.update_topic)

    def _taken_back(self, topic: str) -> None:
        self._sender.end_state(topic)
        try:
            self._topics.taken_back(topic)
        except StorageError:
            self._sender.counts["disk_fault"] += 1


def _known(database: sqlite3.Connection) -> list[str]:
    row = database.execute(_FIND).fetchone()
    return [] if row is None else msgspec.json.decode(row[0], type=list[str])


def _store(database: sqlite3.Connection, topics: Sequence[str]) -> None:
    database.execute(_STORE, (msgspec.json.encode(topics).decode(),))
