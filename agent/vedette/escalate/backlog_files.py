"""Cases that wait on the disk, one file each, whole or not there; the file's name says all that ranks it."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.escalate.backlog import Backlog, Entry
from vedette.escalate.ticket import KeptCase
from vedette.fsops import Point

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.config.escalation import OfflineConfig

MODEL_DIGITS = 12
_NAME = re.compile(r"(\d{1,12})-([01])(\d{6})-([0-9a-f]{12})-[0-9a-f]{16}\.case")
_MOST = 999_999
_decoder = msgspec.msgpack.Decoder(KeptCase)


class BacklogFiles:
    """The backlog and its folder; `folder` None, or no room on purpose, keeps nothing."""

    def __init__(self, folder: Path | None, limits: OfflineConfig) -> None:
        self._folder = folder if limits.disk else None
        self._backlog = Backlog(limits.disk, limits.max_age_s, limits.drain_per_minute)
        self.under_way: set[str] = set()
        self.fault = ""
        self.damaged = 0
        if self._folder is not None:
            self._scan(self._folder)

    def __len__(self) -> int:
        return len(self._backlog.entries)

    @property
    def size_bytes(self) -> int:
        """What they take on the disk."""
        return self._backlog.size_bytes

    def keep(self, kept: KeptCase, rank: tuple[int, float]) -> bool:
        """Keep a case for later; False where it has no room, or the disk refuses (see `fault`)."""
        if self._folder is None:
            return False
        content = msgspec.msgpack.encode(kept)
        victims = self._backlog.victims(rank, len(content))
        if victims is None:
            return False
        entry = Entry(_name(kept, rank), rank, len(content), kept.utc_s, _model(kept.case.model_sha256))
        try:
            for victim in victims:
                self.remove(victim.name)
            fsops.write_durable(self._folder / entry.name, content, Point.BACKLOG)
        except OSError as error:
            self.fault = f"nothing can be kept for later: {error.strerror}"
            return False
        self.fault = ""
        self._backlog.entries[entry.name] = entry
        return True

    def next_due(self, now_s: float, model_sha256: str) -> tuple[str, KeptCase] | None:
        """A case to ask about now, under way until `done`."""
        entry = self._backlog.next_due(now_s, _model(model_sha256), frozenset(self.under_way))
        if entry is None or self._folder is None:
            return None
        try:
            kept = _decoder.decode((self._folder / entry.name).read_bytes())
        except (OSError, msgspec.DecodeError):
            self.damaged += 1
            self._forget(entry.name)
            return None
        self.under_way.add(entry.name)
        return entry.name, kept

    def done(self, name: str, *, answered: bool) -> None:
        """It was asked about; without an answer it waits for another time."""
        self.under_way.discard(name)
        if answered:
            self._forget(name)

    def expire(self, utc_s: float) -> int:
        """Remove those that are too old; how many."""
        old = [entry for entry in self._backlog.too_old(utc_s) if entry.name not in self.under_way]
        for entry in old:
            self._forget(entry.name)
        return len(old)

    def remove(self, name: str) -> None:
        """Remove one.

        Raises:
            OSError: The disk refuses; it stays.
        """
        if self._folder is not None:
            fsops.unlink(self._folder / name, Point.BACKLOG)
        self._backlog.entries.pop(name, None)

    def _forget(self, name: str) -> None:
        try:
            self.remove(name)
        except OSError as error:  # it would be asked about for ever: it is forgotten until the next start
            self.fault = f"what waits cannot be removed: {error.strerror}"
            self._backlog.entries.pop(name, None)

    def _scan(self, folder: Path) -> None:
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is None:
                if path.name.endswith(".tmp"):  # a write that a power cut ended
                    fsops.unlink(path, Point.BACKLOG)
                continue
            rank = (int(match[2]), int(match[3]) / _MOST)
            entry = Entry(path.name, rank, path.stat().st_size, float(match[1]), match[4])
            self._backlog.entries[path.name] = entry


def _model(sha256: str) -> str:
    return sha256[:MODEL_DIGITS].ljust(MODEL_DIGITS, "0")


def _name(kept: KeptCase, rank: tuple[int, float]) -> str:
    level = round(min(1.0, max(0.0, rank[1])) * _MOST)
    model = _model(kept.case.model_sha256)
    return f"{max(0, int(kept.utc_s))}-{rank[0]}{level:06d}-{model}-{secrets.token_hex(8)}.case"
