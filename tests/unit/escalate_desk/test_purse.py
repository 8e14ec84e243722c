"""A crash gives nothing back, and what is spent is on the disk first (case 51)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs.asked_cases import escalation_config, says
from tests.stubs.fake_cloud import FakeCloud

from vedette import fsops
from vedette.clock import ManualClock
from vedette.config.escalation import AuditConfig, BudgetConfig
from vedette.escalate.budgets import DAY_S, Spent
from vedette.escalate.paid_client import PaidClient
from vedette.escalate.port import CloudError, Question, Usage
from vedette.escalate.purse import Purse
from vedette.fsops import Kind, Operation
from vedette.journal import Journal
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from pathlib import Path

NOON_S = 20_000 * DAY_S + DAY_S / 2
QUESTION = Question("r", Task.CLASSIFY, b"jpeg", 1, 1, ("cat",), "")


class Box:
    """A box that is started again and again on one folder."""

    def __init__(self, folder: Path | None, *, per_day: int = 20, audits: int = 10) -> None:
        self.clock = ManualClock(10**12)
        self.utc_s = NOON_S
        self._folder = folder
        self._config = escalation_config(
            budget=BudgetConfig(per_day=per_day), audit=AuditConfig(share=0.02, per_day=audits)
        )
        self.start()

    def start(self) -> None:
        self.purse = Purse(self._config, self._folder, self.clock, lambda: self.utc_s, boot="boot")

    def wait_s(self, seconds: float) -> None:
        self.clock.advance_s(seconds)
        self.utc_s += seconds


def on_disk(folder: Path) -> Spent:
    found = Journal(folder, "spent", Spent).read()
    assert found is not None
    return found


@given(st.lists(st.sampled_from(["ask", "audit", "wait", "long", "kill", "stop"]), max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_schedule_of_restarts_makes_a_call_more(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Budget of 20 a day, restarts half-way (case 51)."""
    folder = tmp_path_factory.mktemp("purse")
    box = Box(folder, per_day=6, audits=3)
    made = {"ask": 0, "audit": 0}
    for step in steps:
        if step in made:
            made[step] += box.purse.take(audit=step == "audit")
        elif step in {"wait", "long"}:
            box.wait_s(1.0 if step == "wait" else 1000.0)
            box.purse.tick()
        else:
            if step == "stop":
                box.purse.close()
            box.start()
    assert made["ask"] <= 6
    assert made["audit"] <= 3


def test_what_is_written_is_at_least_what_was_spent_at_every_moment(tmp_path: Path) -> None:
    box = Box(tmp_path, per_day=100_000)
    made = 0
    for _ in range(400):
        made += box.purse.take(audit=False)
        assert on_disk(tmp_path).calls >= made
        box.wait_s(0.01)
    assert made > 0


def test_the_disk_sees_at_most_one_write_a_second(tmp_path: Path) -> None:
    box = Box(tmp_path, per_day=100_000)
    writes: list[Operation] = []

    class Watch:
        def before(self, operation: Operation) -> None:
            if operation.kind is Kind.SYNC:
                writes.append(operation)

    box.purse.take(audit=False)
    with fsops.traced(Watch()):
        for _ in range(1000):
            box.purse.take(audit=False)
            box.purse.cost(100_000, Usage())
            box.purse.tick()
            box.wait_s(0.01)
    assert 1 <= len(writes) <= 11


def test_a_clean_end_leaves_what_was_really_spent(tmp_path: Path) -> None:
    box = Box(tmp_path, per_day=20_000)
    assert box.purse.take(audit=False)
    assert on_disk(tmp_path).calls > 1  # set aside in advance
    box.purse.close()
    assert on_disk(tmp_path).calls == 1


def test_where_the_record_is_lost_today_counts_as_spent(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.purse.take(audit=False)
    box.purse.close()
    for copy in (0, 1):
        (tmp_path / f"spent.rec.{copy}").write_bytes(b"\xff" * 4096)
    box.start()
    assert "spent" in box.purse.lost
    assert not box.purse.take(audit=False)
    assert box.purse.grant(0, 0).tokens == 0
    box.wait_s(DAY_S)
    box.purse.tick()
    assert box.purse.grant(0, 0).tokens > 0


def test_a_disk_that_refuses_ends_spending_until_it_works_again(tmp_path: Path) -> None:
    box = Box(tmp_path)

    class Full:
        def before(self, operation: Operation) -> None:
            if operation.kind in {Kind.WRITE, Kind.CREATE}:
                raise OSError(28, "No space left on device")

    with fsops.traced(Full()):
        assert not box.purse.take(audit=False)
        assert "cannot be written down" in box.purse.fault
        assert box.purse.grant(0, 0).tokens == 0
        assert box.purse.exhausted(audit=False)
    box.wait_s(3000)
    box.purse.tick()
    assert box.purse.fault == ""
    assert box.purse.take(audit=False)


def test_what_is_on_its_way_is_not_granted_again() -> None:
    box = Box(None, per_day=10_000)
    free = box.purse.grant(0, 0)
    taken = box.purse.grant(5, 3)
    assert (free.tokens - taken.tokens, free.audit_tokens - taken.audit_tokens) == (5, 3)
    assert box.purse.grant(10**6, 10**6)[:2] == (0, 0)


def test_a_second_try_costs_a_second_time_and_needs_money() -> None:
    box = Box(None, per_day=10_000)
    busy = CloudError(CloudFault.BUSY, "busy", sent_bytes=70, usage=Usage(10, 0))
    paid = PaidClient(FakeCloud(busy, "cat"), box.purse)
    assert box.purse.take(audit=False)
    paid.begin(audit=False)
    with pytest.raises(CloudError):
        paid.ask(QUESTION, 1.0)
    assert paid.ask(QUESTION, 1.0).label == "cat"
    assert box.purse.spent.calls == 2
    assert box.purse.spent.bytes == 70 + 4


def test_without_money_for_a_second_try_the_first_ones_fault_stands() -> None:
    box = Box(None, per_day=1)
    client = FakeCloud(CloudError(CloudFault.SERVER, "down"), "cat")
    paid = PaidClient(client, box.purse)
    box.wait_s(DAY_S / 2)
    assert box.purse.take(audit=False)
    paid.begin(audit=False)
    for _ in range(2):
        with pytest.raises(CloudError, match="down"):
            paid.ask(QUESTION, 1.0)
    assert len(client.asked) == 1


def test_figures_name_limits_and_what_is_left_of_them() -> None:
    box = Box(None, per_day=20_000)
    box.purse.take(audit=False)
    box.purse.cost(says("cat").sent_bytes, Usage())
    spend = box.purse.spend()
    assert (spend.calls_minute, spend.calls_day, spend.calls_day_limit) == (1, 1, 20_000)
    assert (spend.bytes_day, spend.bytes_day_limit, spend.money_day_limit) == (1000, None, None)
