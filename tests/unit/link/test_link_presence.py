"""Birth, will, goodbye and the state of updates: what a device says of itself (case 31)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.link.linked_box import TOPICS, LinkedBox

from vedette.mqtt.port import Outgoing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> LinkedBox:
    return LinkedBox(tmp_path).open()


def test_birth_and_will_share_topic_qos_and_retain_and_name_the_session(box: LinkedBox) -> None:
    """Case 31: else a device is shown dead while it works, or the reverse."""
    box.run()
    birth = box.broker.retained[TOPICS.status]
    assert (birth.qos, birth.retain) == (1, True)
    box.broker.go_away()
    will = box.broker.retained[TOPICS.status]
    assert (will.qos, will.retain) == (1, True)
    born, died = box.said(TOPICS.status)
    assert (born["online"], died["online"]) == (True, False)
    assert born["session"] == died["session"]
    assert born["boot_id"] == "boot-1"
    assert born["agent"] == "0.1.0"


def test_each_connection_is_a_new_session(box: LinkedBox) -> None:
    box.run()
    box.broker.go_away()
    box.run()
    box.broker.come_back()
    box.run()
    first, _, second = box.said(TOPICS.status)
    assert second["online"]
    assert first["session"] != second["session"]


def test_a_will_that_comes_late_is_answered_by_a_new_birth(box: LinkedBox) -> None:
    """Case 31: a quick reconnect, where the old session's will arrives after the new birth."""
    box.run()
    late = box.broker.retained[TOPICS.status]
    box.broker.go_away()
    will = box.broker.retained[TOPICS.status]
    box.broker.come_back()
    box.run()
    box.broker.say(will)
    box.run(1.0)
    assert box.said(TOPICS.status)[-1]["online"]
    assert box.broker.retained[TOPICS.status] != late


def test_a_quarrel_about_the_status_is_not_a_storm(box: LinkedBox) -> None:
    box.run()
    before = len(box.said(TOPICS.status))
    for _ in range(100):
        box.broker.say(Outgoing(TOPICS.status, b'{"online": false}', retain=True))
        box.run(0.1)
    ours = [said for said in box.said(TOPICS.status)[before:] if said["online"]]
    assert 1 <= len(ours) <= 3


@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"online": "yes"}'])
def test_rubbish_on_our_own_topic_is_replaced_by_the_truth(box: LinkedBox, rubbish: bytes) -> None:
    box.run()
    box.broker.say(Outgoing(TOPICS.status, rubbish, retain=True))
    box.run(1.0)
    assert b'"online":true' in box.broker.retained[TOPICS.status].payload
    assert box.link.status().bad_messages["bad_status"] == 1


def test_a_clean_stop_says_so_first(box: LinkedBox) -> None:
    """Case 31: not online after a clean stop."""
    box.run()
    assert box.link.close()
    last = box.said(TOPICS.status)[-1]
    assert (last["online"], last["clean"]) == (False, True)
    assert last["session"] == box.said(TOPICS.status)[0]["session"]


def test_a_stop_without_a_broker_waits_for_nobody(box: LinkedBox) -> None:
    box.broker.go_away()
    box.run()
    assert box.link.close()


def test_nothing_else_is_sent_before_the_broker_has_the_birth(box: LinkedBox) -> None:
    box.broker.slow = True
    box.link.turn(0.0)
    assert [message.topic for message in box.broker.published] == [TOPICS.status]
    box.broker.acknowledge()
    box.run()
    assert TOPICS.reported in {message.topic for message in box.broker.published}


def test_a_broker_that_never_answers_the_birth_does_not_silence_the_device(box: LinkedBox) -> None:
    box.broker.slow = True
    box.run(11.0, step_s=1.0)
    assert box.said(TOPICS.reported)


def test_the_state_is_said_in_each_connection_and_when_it_changes(box: LinkedBox) -> None:
    box.run()
    box.state.phase = "fetch"
    box.link.state_changed()
    box.run(0.6)
    box.broker.go_away()
    box.run()
    box.broker.come_back(memory=False)
    box.run(0.6)
    assert [said["phase"] for said in box.said(TOPICS.reported)] == ["idle", "fetch", "fetch"]
    assert box.broker.retained[TOPICS.reported].retain


def test_many_changes_become_two_a_second_and_the_last_one_is_said(box: LinkedBox) -> None:
    box.run()
    for number in range(100):
        box.state.phase = f"phase-{number}"
        box.link.state_changed()
        box.run(0.05)
    box.run(1.0)
    said = [state["phase"] for state in box.said(TOPICS.reported)]
    assert len(said) <= 2 * 6 + 1
    assert said[-1] == "phase-99"


def test_the_sequence_rises_over_a_restart_of_the_agent(box: LinkedBox) -> None:
    box.run()
    box.clock.advance_s(1.0)
    box.restart()
    box.open().run()
    first, second = (said["seq"] for said in box.said(TOPICS.reported))
    assert second > first


def test_a_state_that_the_broker_refuses_is_not_said_for_ever(box: LinkedBox) -> None:
    tried: list[str] = []

    def refuse(message: Outgoing) -> str:
        tried.append(message.topic)
        return "not authorised" if message.topic == TOPICS.reported else ""

    box.broker.refuse = refuse
    box.run(5.0)
    assert tried.count(TOPICS.reported) == 1
    assert box.link.connected
