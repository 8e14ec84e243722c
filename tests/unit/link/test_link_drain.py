"""What goes to the broker, in which order and how fast (cases 29, 30, 45, 46)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.stubs.fake_connection import FakeBroker
from tests.unit.link.linked_box import TOPICS, LinkedBox

from vedette.link.drain import DrainLimits
from vedette.link.entries import Moment, age_s
from vedette.link.port import Keep
from vedette.wire.plane import EVENT_EXPIRY_S, TELEMETRY_EXPIRY_S

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.mqtt.port import Outgoing


@pytest.fixture
def box(tmp_path: Path) -> LinkedBox:
    return LinkedBox(tmp_path)


def told(box: LinkedBox) -> list[str]:
    """The events that arrived, by id."""
    return [event["id"] for event in box.said(TOPICS.event)]


def queue(box: LinkedBox, count: int, keep: Keep = Keep.ALWAYS, prefix: str = "e") -> list[str]:
    return [box.link.event("test", {"n": n}, keep=keep, event_id=f"{prefix}{n}") for n in range(count)]


def reports(box: LinkedBox) -> list[int]:
    return [int(message.payload) for message in box.broker.published if message.topic == TOPICS.telemetry]


def test_what_was_queued_before_there_was_a_broker_arrives_in_order(box: LinkedBox) -> None:
    wanted = queue(box, 50)
    box.open().run(1.0)
    assert told(box) == wanted
    assert box.link.status().waiting_events == 0


def test_an_event_says_what_it_is(box: LinkedBox) -> None:
    box.link.event("update_result", {"result": "success"}, keep=Keep.ALWAYS, event_id="u-1:4")
    box.open().run(0.1)
    (message,) = (message for message in box.broker.published if message.topic == TOPICS.event)
    assert (message.qos, message.retain, message.expiry_s) == (1, False, EVENT_EXPIRY_S)
    event = json.loads(message.payload)
    assert event["id"] == "u-1:4"
    assert event["kind"] == "update_result"
    assert event["boot_id"] == "boot-1"
    assert event["monotonic_s"] == 1000.0
    assert event["data"] == {"result": "success"}


def test_nothing_leaves_the_disk_before_the_broker_has_it(box: LinkedBox) -> None:
    """Case 29: a hundred events, the connection cut before fifty of them are acknowledged, kill -9."""
    wanted = queue(box, 100)
    box.broker.slow = True
    box.open()
    box.link.turn(0.0)
    box.broker.acknowledge()  # the birth
    box.clock.advance_s(0.1)
    for _ in range(4):
        box.link.turn(0.0)
        box.broker.acknowledge()
    box.link.turn(0.0)
    sent_before = len(told(box))
    assert 50 <= sent_before < 100
    box.broker.slow = False
    box.restart()
    box.open().run(2.0)
    arrived = told(box)
    assert sorted(set(arrived), key=wanted.index) == wanted
    assert len(arrived) > 100, "the ones without an acknowledgement came again, under their ids"


def test_a_broker_that_restarts_without_memory_costs_nothing(box: LinkedBox) -> None:
    wanted = queue(box, 40)
    box.open()
    box.broker.slow = True
    box.link.turn(0.0)
    box.broker.go_away()
    box.run()
    box.broker.come_back(memory=False)
    box.broker.slow = False
    box.run(1.0)
    assert sorted(set(told(box)), key=wanted.index) == wanted
    assert TOPICS.status in box.broker.retained
    assert TOPICS.reported in box.broker.retained


def test_state_goes_first_then_events_then_figures(box: LinkedBox) -> None:
    box.link.telemetry(b"1", "text/plain")
    queue(box, 2)
    box.open().run(1.0)
    topics = [message.topic for message in box.broker.published]
    assert topics == [TOPICS.status, TOPICS.reported, TOPICS.event, TOPICS.event, TOPICS.telemetry]


def test_the_newest_figures_are_interleaved_with_the_oldest(box: LinkedBox) -> None:
    """Case 45: live data is not hours late behind a backlog."""
    for number in range(6):
        box.link.telemetry(str(number).encode(), "text/plain")
    box.open().run(1.0)
    assert reports(box) == [5, 0, 4, 1, 3, 2]


def test_the_backlog_goes_at_a_limited_rate_after_a_pause(tmp_path: Path) -> None:
    """Case 45: a server that comes back is not hit by all that waited."""
    limits = DrainLimits(rate_per_s=10.0, burst=5, settle_s=4.0)
    box = LinkedBox(tmp_path, drain=limits)
    queue(box, 100)
    box.open().run(3.9)
    assert told(box) == []
    box.run(2.1)
    assert 15 <= len(told(box)) <= 25
    box.run(10.0)
    assert len(told(box)) == 100
    box.link.event("live", {}, keep=Keep.ALWAYS, event_id="live")
    box.run()
    assert told(box)[-1] == "live", "without a backlog an event goes at once"


def test_the_pause_is_drawn_anew_in_each_connection(tmp_path: Path) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    box = LinkedBox(tmp_path, uniform=uniform, drain=DrainLimits(settle_s=7.0)).open()
    for _ in range(3):
        box.run()
        box.broker.go_away()
        box.run()
        box.broker.come_back()
    box.run()
    assert drawn.count((0.0, 7.0)) == 4


def test_what_is_on_its_way_stays_below_what_the_broker_allows(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path, FakeBroker(receive_maximum=9))
    queue(box, 100)
    box.broker.slow = True
    box.open()
    box.link.turn(0.0)
    box.broker.acknowledge()
    box.clock.advance_s(0.1)
    box.link.turn(0.0)
    box.link.turn(0.0)
    assert len(told(box)) == 5, "room is left for state and replies"


def test_old_figures_are_dropped_and_counted_and_update_state_never_is(box: LinkedBox) -> None:
    for number in range(150):
        box.link.telemetry(str(number).encode(), "text/plain")
    wanted = queue(box, 3)
    box.clock.advance_s(TELEMETRY_EXPIRY_S + 1)
    box.link.telemetry(b"999", "text/plain")
    box.clock.advance_s(EVENT_EXPIRY_S)
    box.link.telemetry(b"1000", "text/plain")
    box.open().run(1.0)
    assert reports(box) == [1000]
    assert told(box) == wanted
    assert box.link.status().dropped_reports == 151
    assert box.link.status().waiting_reports == 0


def test_the_expiry_that_is_left_goes_with_the_message(box: LinkedBox) -> None:
    box.link.telemetry(b"1", "text/plain")
    box.clock.advance_s(600)
    box.open().run(0.5)
    (message,) = (message for message in box.broker.published if message.topic == TOPICS.telemetry)
    assert message.expiry_s is not None
    assert TELEMETRY_EXPIRY_S - 602 < message.expiry_s <= TELEMETRY_EXPIRY_S - 600


def vouched(boot: str, monotonic_s: float, utc_s: float) -> Moment:
    return Moment(boot, monotonic_s, utc_s, utc_trusted=True)


@pytest.mark.parametrize(
    ("kept_at", "now", "age"),
    [
        pytest.param(vouched("a", 10, 99), vouched("a", 25, 5), 15, id="same boot, clock set back"),
        pytest.param(vouched("a", 10, 5), vouched("b", 7, 1005), 1000, id="clocks trusted"),
        pytest.param(Moment("a", 10, 0), vouched("b", 7, 1.7e9), 7, id="clock was at 1970"),
        pytest.param(vouched("a", 10, 1.7e9), Moment("b", 7, 0), 7, id="clock is at 1970"),
        pytest.param(vouched("a", 10, 2e9), vouched("b", 7, 1e9), 7, id="trusted, and still back"),
        pytest.param(Moment("a", 99, 0), Moment("a", 50, 0), 0, id="never negative"),
    ],
)
def test_an_age_is_what_is_certain(kept_at: Moment, now: Moment, age: float) -> None:
    """Case 46."""
    assert age_s(kept_at, now) == age


def test_a_clock_that_jumps_drops_nothing(box: LinkedBox) -> None:
    """Case 46: set forward by years while the figures wait."""
    box.link.telemetry(b"1", "text/plain")
    box.utc_s += 1e8
    box.open().run(0.5)
    assert reports(box) == [1]


def is_poison(message: Outgoing) -> bool:
    return b'"poison":true' in message.payload


def test_a_message_that_ends_the_link_twice_is_set_aside_and_told_of(box: LinkedBox) -> None:
    """Case 30: no endless loop; what came with it arrives."""
    wanted = queue(box, 10)
    box.link.event("bad", {"poison": True}, keep=Keep.ALWAYS, event_id="poison")
    wanted += queue(box, 10, prefix="f")
    box.broker.hang_up = lambda message: "closed" if is_poison(message) else ""
    box.open().run(5.0)
    arrived = told(box)
    assert set(wanted) <= set(arrived)
    assert "poison" not in arrived
    assert 2 <= box.link.status().connects <= 4
    (aside,) = (event for event in box.said(TOPICS.event) if event["kind"] == "message_set_aside")
    assert aside["data"]["id"] == "poison"
    assert aside["data"]["why"] == "ended_link"
    assert box.link.status().set_aside == 1
    assert box.outbox.counts().set_aside == 1, "it is kept, not deleted"


def test_what_was_set_aside_is_tried_again_after_a_restart(box: LinkedBox) -> None:
    box.link.event("bad", {"poison": True}, keep=Keep.ALWAYS, event_id="poison")
    box.broker.hang_up = lambda message: "closed" if is_poison(message) else ""
    box.open().run(2.0)
    assert "poison" not in told(box)
    box.broker.hang_up = lambda _message: ""
    box.restart()
    box.open().run(2.0)
    assert "poison" in told(box)


@pytest.mark.parametrize("how", ["hang_up", "refuse"])
def test_what_was_set_aside_is_tried_again_by_itself(box: LinkedBox, how: str) -> None:
    """A network that flaps looks like a poison message (case 30): no restart is needed to have it told."""
    box.link.event("bad", {"poison": True}, keep=Keep.ALWAYS, event_id="poison")
    wanted = queue(box, 10)
    setattr(box.broker, how, lambda message: "closed" if is_poison(message) else "")
    box.open().run(60.0, step_s=0.5)
    assert box.outbox.counts().set_aside == 1
    setattr(box.broker, how, lambda _message: "")
    box.run(500.0, step_s=10.0)
    assert box.outbox.counts().set_aside == 1, "not at once: it may well be at fault"
    box.run(600.0, step_s=10.0)
    assert "poison" in told(box)
    assert set(wanted) <= set(told(box))
    assert box.outbox.counts().set_aside == 0


def test_what_stays_poison_is_tried_less_and_less_often_and_told_of_once(box: LinkedBox) -> None:
    for number in range(2):
        data: dict[str, object] = {"poison": True}
        box.link.event("bad", data, keep=Keep.ALWAYS, event_id=f"poison{number}")
    box.broker.hang_up = lambda message: "closed" if is_poison(message) else ""
    box.open().run(60.0, step_s=0.5)
    connects = box.link.status().connects
    assert box.outbox.counts().set_aside == 2
    box.run(10 * 3600.0, step_s=60.0)
    assert 6 <= box.link.status().connects - connects <= 10, "one end of the link for each try"
    aside = [event for event in box.said(TOPICS.event) if event["kind"] == "message_set_aside"]
    assert sorted(event["data"]["id"] for event in aside) == ["poison0", "poison1"]
    box.broker.hang_up = lambda _message: ""
    box.run(2 * 3600.0, step_s=60.0)
    assert {"poison0", "poison1"} <= set(told(box))


def test_a_broker_that_comes_and_goes_makes_no_suspects(box: LinkedBox) -> None:
    """Ends that are no message's fault: all had been acknowledged."""
    box.open().run()
    for number in range(10):
        box.link.event("test", {}, keep=Keep.ALWAYS, event_id=f"e{number}")
        box.run(0.05)
        box.broker.go_away("closed")
        box.run()
        box.broker.come_back()
        box.run(0.05)
    assert sorted(told(box)) == sorted(f"e{number}" for number in range(10))
    assert box.link.status().set_aside == 0


def test_innocent_messages_beside_poison_are_cleared(box: LinkedBox) -> None:
    for number in range(15):
        box.link.telemetry(str(number).encode(), "text/plain")
    box.broker.hang_up = lambda message: "closed" if message.payload == b"14" else ""
    box.open().run(5.0)
    assert sorted(reports(box)) == list(range(14))


def test_a_state_that_ends_the_link_is_said_no_more(box: LinkedBox) -> None:
    box.broker.hang_up = lambda message: "packet_too_large" if message.topic == TOPICS.reported else ""
    wanted = queue(box, 3)
    box.open().run(5.0)
    assert [name for name in told(box) if name in wanted] == wanted
    assert box.link.connected


def test_an_event_above_the_brokers_limit_is_set_aside_until_it_fits(tmp_path: Path) -> None:
    """Case 30: the limit is known; nothing larger is sent, and a larger limit brings it back."""
    box = LinkedBox(tmp_path, FakeBroker(max_packet_bytes=12_000))
    box.link.event("large", {"text": "x" * 40_000}, keep=Keep.ALWAYS, event_id="large")
    box.link.event("small", {}, keep=Keep.ALWAYS, event_id="small")
    box.open().run(1.0)
    assert "small" in told(box)
    assert "large" not in told(box)
    (aside,) = (event for event in box.said(TOPICS.event) if event["kind"] == "message_set_aside")
    assert aside["data"]["why"] == "too_large"
    assert "12000" in aside["data"]["detail"]
    assert box.link.status().connects == 1
    box.broker.go_away()
    box.broker.limits = FakeBroker(max_packet_bytes=100_000).limits
    box.run()
    box.broker.come_back()
    box.run(1.0)
    assert "large" in told(box)


def test_a_broker_that_refuses_everything_loses_nothing(box: LinkedBox) -> None:
    """A wrong access list: tried again less and less often, and all arrives when it is mended."""
    wanted = queue(box, 20)
    tries: list[Outgoing] = []

    def refuse(message: Outgoing) -> str:
        tries.append(message)
        return "not authorised" if message.topic == TOPICS.event else ""

    box.broker.refuse = refuse
    box.open().run(600.0, step_s=1.0)
    assert box.link.status().set_aside == 0
    assert len(tries) < 400
    box.broker.refuse = lambda _message: ""
    box.run(301.0, step_s=1.0)
    assert sorted(told(box), key=wanted.index) == wanted


def test_one_event_that_the_broker_refuses_among_others_is_set_aside(box: LinkedBox) -> None:
    box.link.event("bad", {"poison": True}, keep=Keep.ALWAYS, event_id="poison")
    wanted = queue(box, 20)
    box.broker.refuse = lambda message: "payload format invalid" if is_poison(message) else ""
    box.open().run(60.0, step_s=0.5)
    assert set(wanted) <= set(told(box))
    (aside,) = (event for event in box.said(TOPICS.event) if event["kind"] == "message_set_aside")
    assert aside["data"]["why"] == "refused"
    assert "payload format invalid" in aside["data"]["detail"]


def test_a_damaged_outbox_is_told_of(box: LinkedBox, tmp_path: Path) -> None:
    queue(box, 3)
    box.file.close()
    (tmp_path / "link" / "outbox.sqlite3").write_bytes(b"rubbish" * 5000)
    box.open().run(1.0)
    (damaged,) = (event for event in box.said(TOPICS.event) if event["kind"] == "outbox_damaged")
    assert damaged["data"]["moved_to"] == "outbox.damaged.sqlite3"


def test_a_disk_that_refuses_costs_neither_the_link_nor_the_commands(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("no folder")
    box = LinkedBox(tmp_path).open()
    box.run(2.0, step_s=0.5)
    assert box.link.connected
    assert box.said(TOPICS.status)
    assert box.said(TOPICS.reported)
    (tmp_path / "link").unlink()
    box.link.event("test", {}, keep=Keep.ALWAYS, event_id="after")
    box.run(2.0, step_s=0.5)
    assert told(box) == ["after"]


def test_data_that_json_has_not_is_our_bug_and_is_not_sent(box: LinkedBox) -> None:
    from vedette.errors import InternalError

    with pytest.raises(InternalError, match="test"):
        box.link.event("test", {"thing": object()}, keep=Keep.ALWAYS)
    box.open().run(0.5)
    assert told(box) == []


def test_numbers_that_json_has_not_become_null(box: LinkedBox) -> None:
    data: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "large": 1 << 63}
    box.link.event("test", data, keep=Keep.ALWAYS, event_id="e")
    box.open().run(0.5)
    assert box.said(TOPICS.event)[0]["data"] == {"nan": None, "inf": None, "large": 1 << 63}


def test_what_went_wrong_stands_in_the_status(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path, max_bytes=30_000).open()
    box.broker.refuse = lambda message: "quota exceeded" if message.topic == TOPICS.event else ""
    queue(box, 40, Keep.NEWEST)
    box.link.event("fill", {"text": "x" * 25_000}, keep=Keep.ALWAYS)
    box.run(1.0)
    status = box.link.status()
    assert status.faults["dropped_events"] > 20
    assert status.faults["refused_by_broker"] >= 1
    assert status.broker == "broker:8883"
    assert status.since_s == pytest.approx(1.0)
    assert status.waiting_bytes <= 30_000
