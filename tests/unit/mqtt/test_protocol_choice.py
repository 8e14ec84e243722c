"""Which version of MQTT a broker is spoken to in."""

from __future__ import annotations

from vedette.clock import ManualClock
from vedette.mqtt.protocol_choice import GUESS_HOLDS_S, MQTT_3_1_1, MQTT_5, ProtocolChoice


def test_five_comes_first_and_stays() -> None:
    choice = ProtocolChoice(ManualClock())
    for _ in range(3):
        assert choice.next() == MQTT_5
        choice.accepted(MQTT_5)


def test_a_broker_that_says_no_is_remembered() -> None:
    clock = ManualClock()
    choice = ProtocolChoice(clock)
    choice.refused()
    for _ in range(3):
        assert choice.next() == MQTT_3_1_1
        choice.accepted(MQTT_3_1_1)
        clock.advance_s(GUESS_HOLDS_S + 1)


def test_a_broker_that_hangs_up_twice_is_tried_with_the_old_version() -> None:
    choice = ProtocolChoice(ManualClock())
    choice.hung_up(MQTT_5)
    assert choice.next() == MQTT_5
    choice.hung_up(MQTT_5)
    assert choice.next() == MQTT_3_1_1


def test_hanging_up_on_the_old_version_too_is_trouble_and_not_a_version() -> None:
    choice = ProtocolChoice(ManualClock())
    seen = []
    for _ in range(6):
        seen.append(choice.next())
        choice.hung_up(seen[-1])
    assert seen == [MQTT_5, MQTT_5, MQTT_3_1_1] * 2


def test_a_guess_is_held_for_an_hour_and_then_asked_again() -> None:
    clock = ManualClock()
    choice = ProtocolChoice(clock)
    choice.hung_up(MQTT_5)
    choice.hung_up(MQTT_5)
    choice.accepted(MQTT_3_1_1)
    clock.advance_s(GUESS_HOLDS_S - 1)
    assert choice.next() == MQTT_3_1_1
    choice.accepted(MQTT_3_1_1)
    clock.advance_s(2)
    assert choice.next() == MQTT_5


def test_a_failure_of_another_kind_between_two_hang_ups_tells_nothing() -> None:
    choice = ProtocolChoice(ManualClock())
    for _ in range(5):
        choice.hung_up(MQTT_5)
        choice.failed_otherwise()
        assert choice.next() == MQTT_5
