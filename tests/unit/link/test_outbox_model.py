"""The outbox against a model of it: whatever happens in whatever order, it holds what it must."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from vedette.errors import StorageError
from vedette.link.entries import Kind, Moment, cost_bytes
from vedette.link.outbox import Outbox
from vedette.link.port import Keep
from vedette.link.sqlite_file import SqliteFile

LIMIT_BYTES = 8000
SIZES = st.integers(0, 3000)
# In memory where there is such a folder, since each step is a sync.
_QUICK = Path("/dev") / "shm"


class OutboxMachine(RuleBasedStateMachine):
    """Events that may not be dropped are all there until they are removed, in order; the rest is counted."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=_QUICK if os.access(_QUICK, os.W_OK) else None))
        self.always: dict[str, int] = {}
        self.brought = self.removed = self.refused = 0
        self.dropped_before = 0
        self.open()

    def open(self) -> None:
        self.file = SqliteFile(self.folder / "link", max_bytes=LIMIT_BYTES)
        self.outbox = Outbox(self.file, max_bytes=LIMIT_BYTES, now=lambda: Moment("b", 1.0))
        self.outbox.open()

    def teardown(self) -> None:
        self.file.close()
        shutil.rmtree(self.folder)

    @rule(size=SIZES)
    def bring_an_event_that_may_not_be_dropped(self, size: int) -> None:
        held_bytes = sum(cost_bytes(bytes(one)) for one in self.always.values())
        if held_bytes + cost_bytes(bytes(size)) + 20 > LIMIT_BYTES:
            with pytest.raises(StorageError, match="the outbox is full"):
                self.outbox.put_event(lambda _id, _lost: bytes(size), Keep.ALWAYS)
            return
        name = self.outbox.put_event(lambda _id, _lost: bytes(size), Keep.ALWAYS)
        assert name not in self.always
        self.always[name] = size

    @rule(size=SIZES)
    def bring_an_event_that_may_be_dropped(self, size: int) -> None:
        self.brought += 1
        self.outbox.put_event(lambda _id, _lost: bytes(size), Keep.NEWEST)

    @rule(size=SIZES)
    def bring_a_report(self, size: int) -> None:
        self.brought += 1
        self.outbox.put_report(bytes(size), "x")

    @rule(target=taken, keep=st.sampled_from(Keep), newest=st.booleans())
    def take(self, keep: Keep, *, newest: bool) -> int:
        entry = self.outbox.next(keep, newest=newest, excluded=())
        if entry is None:
            return 0
        if keep is Keep.ALWAYS:
            names = list(self.always)
            assert entry.event_id == names[-1 if newest else 0]
            assert len(entry.payload) == self.always[entry.event_id]
        return entry.number

    @rule(number=consumes(taken))
    def remove(self, number: int) -> None:
        entry = self.outbox.read(number)
        self.outbox.remove([number])
        assert self.outbox.read(number) is None
        if entry is not None and entry.keep is Keep.ALWAYS:
            del self.always[entry.event_id]
        elif entry is not None:
            self.removed += 1

    @rule()
    def restart(self) -> None:
        counts = self.outbox.counts()
        self.dropped_before += counts.dropped_events + counts.dropped_reports
        self.file.close()
        self.open()

    @invariant()
    def the_books_balance(self) -> None:
        counts = self.outbox.counts()
        assert counts.waiting_bytes <= LIMIT_BYTES
        waiting = counts.events + counts.reports - len(self.always)
        dropped = self.dropped_before + counts.dropped_events + counts.dropped_reports
        assert self.brought == waiting + self.removed + dropped
        rows = self.file.run(
            lambda database: database.execute(
                "SELECT kind, COUNT(*), SUM(cost_bytes) FROM entries GROUP BY kind"
            ).fetchall()
        )
        assert sum(row[2] for row in rows) == counts.waiting_bytes
        assert {Kind(row[0]): row[1] for row in rows}.get(Kind.REPORT, 0) == counts.reports


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
