"""What waits between callers and network is bounded, and only the newest network thread is heard."""

from __future__ import annotations

import threading

import pytest

from vedette.errors import BadInputError
from vedette.mqtt.exchange import MAX_UNREAD_ACKNOWLEDGEMENTS, OVERHEAD_BYTES, Exchange
from vedette.mqtt.port import Acknowledged, Arrived, Connected, Event, Limits, Lost, Outgoing, Refused

LIMITS = Limits(protocol=5, max_packet_bytes=1000, receive_maximum=3)
UP = Connected(LIMITS, session_present=False, number=1)


def _arrival(payload: bytes = b"") -> Arrived:
    return Arrived("t", payload, retained=False, qos=0)


def _open(limit_bytes: int = 10_000) -> tuple[Exchange, int]:
    exchange = Exchange(limit_bytes)
    generation = exchange.take_over(lambda: None)
    exchange.opened(generation, UP, [], [])
    assert exchange.next_event(0.0)[0] == UP
    return exchange, generation


def _drain(exchange: Exchange) -> list[Event]:
    events = []
    while (event := exchange.next_event(0.0)[0]) is not None:
        events.append(event)
    return events


def test_nothing_is_taken_before_the_connection_is_up() -> None:
    exchange = Exchange(1000)
    exchange.take_over(lambda: None)
    assert exchange.publish(Outgoing("t", b"")) is None


def test_events_come_in_their_order_and_early_arrivals_after_connected() -> None:
    exchange = Exchange(10_000)
    generation = exchange.take_over(lambda: None)
    early, refused = _arrival(b"early"), Refused("f", "no")
    exchange.opened(generation, UP, [refused], [early])
    exchange.arrived(generation, _arrival(b"late"))
    assert _drain(exchange) == [UP, refused, early, _arrival(b"late")]


def test_arrivals_beyond_the_bound_are_dropped_and_counted_and_acknowledgements_are_not() -> None:
    exchange, generation = _open(3 * (OVERHEAD_BYTES + 101))
    tokens = [exchange.publish(Outgoing("t", b"")) for _ in range(3)]
    for _ in range(5):
        exchange.arrived(generation, _arrival(bytes(100)))
    for token in tokens:
        assert token is not None
        exchange.acknowledged(generation, Acknowledged(token))
    events = _drain(exchange)
    assert [type(event) for event in events] == [Arrived] * 3 + [Acknowledged] * 3
    assert exchange.dropped_arrivals == 2
    exchange.arrived(generation, _arrival(bytes(100)))
    assert _drain(exchange) == [_arrival(bytes(100))], "what was taken makes room again"


def test_as_many_are_in_flight_as_the_broker_allows_and_no_more() -> None:
    exchange, generation = _open()
    tokens = [exchange.publish(Outgoing("t", b"")) for _ in range(4)]
    assert tokens == [1, 2, 3, None]
    assert exchange.publish(Outgoing("t", b"", qos=0)) == 4, "QoS 0 is not in flight"
    exchange.acknowledged(generation, Acknowledged(2))
    assert exchange.publish(Outgoing("t", b"")) == 5


def test_what_waits_for_the_network_is_bounded_in_bytes() -> None:
    exchange, generation = _open(2000)
    taken = 0
    while exchange.publish(Outgoing("t", bytes(500), qos=0)) is not None:
        taken += 1
    assert taken == 3
    assert exchange.next_outgoing(generation) is not None
    assert exchange.publish(Outgoing("t", bytes(500), qos=0)) is not None


def test_a_message_above_the_bound_goes_when_nothing_else_waits() -> None:
    exchange, _ = _open(100)
    assert exchange.publish(Outgoing("t", bytes(500), qos=0)) is not None
    assert exchange.publish(Outgoing("t", b"", qos=0)) is None


def test_what_the_broker_does_not_take_is_refused_with_its_limit() -> None:
    """Case 30: it would only end the connection."""
    exchange, _ = _open()
    header = 1 + 2 + 2 + 1 + 2 + 1
    assert exchange.publish(Outgoing("t", bytes(1000 - header))) == 1
    with pytest.raises(BadInputError, match=r"1001 bytes .* 1000"):
        exchange.publish(Outgoing("t", bytes(1001 - header)))


def test_a_loss_forgets_what_was_in_flight_and_of_failures_in_a_row_first_and_last_stay() -> None:
    exchange, generation = _open()
    token = exchange.publish(Outgoing("t", b""))
    assert token is not None
    for attempt in range(1000):
        exchange.lost(generation, Lost("refused", str(attempt), 1.0))
    exchange.acknowledged(generation, Acknowledged(token))
    assert exchange.next_outgoing(generation) is None
    assert _drain(exchange) == [Lost("refused", "0", 1.0), Lost("refused", "999", 1.0)]
    assert exchange.losses == 1000
    assert exchange.last_loss == "refused: 999"


def test_a_network_thread_that_was_replaced_is_not_heard() -> None:
    exchange, old = _open()
    token = exchange.publish(Outgoing("t", b""))
    assert token is not None
    new = exchange.take_over(lambda: None)
    exchange.arrived(old, _arrival())
    exchange.acknowledged(old, Acknowledged(token))
    exchange.opened(old, UP, [], [])
    exchange.lost(old, Lost("closed", "", 1.0))
    assert exchange.next_outgoing(old) is None
    assert not exchange.connected
    assert not exchange.is_current(old)
    assert exchange.is_current(new)
    assert _drain(exchange) == []


def test_who_publishes_and_never_reads_is_held_back() -> None:
    exchange = Exchange(1 << 30)
    generation = exchange.take_over(lambda: None)
    limits = Limits(protocol=5, max_packet_bytes=1000, receive_maximum=65_535)
    exchange.opened(generation, Connected(limits, session_present=False, number=1), [], [])
    sent = 0
    while (token := exchange.publish(Outgoing("t", b""))) is not None:
        assert exchange.next_outgoing(generation) is not None
        exchange.acknowledged(generation, Acknowledged(token))
        sent += 1
    assert sent == MAX_UNREAD_ACKNOWLEDGEMENTS
    _drain(exchange)
    assert exchange.publish(Outgoing("t", b"")) is not None


def test_a_wait_ends_when_it_is_woken() -> None:
    exchange, _ = _open()
    waker = threading.Timer(0.05, exchange.wake)
    waker.start()
    assert exchange.next_event(10.0) == (None, True)
    waker.join()
    assert exchange.next_event(0.0) == (None, False), "a wake is for one wait"


def test_the_network_is_woken_for_the_first_message_that_waits() -> None:
    woken: list[int] = []
    exchange = Exchange(10_000)
    generation = exchange.take_over(lambda: woken.append(1))
    exchange.opened(generation, UP, [], [])
    exchange.publish(Outgoing("t", b"", qos=0))
    exchange.publish(Outgoing("t", b"", qos=0))
    assert woken == [1]
    while exchange.next_outgoing(generation) is not None:
        pass
    exchange.publish(Outgoing("t", b"", qos=0))
    assert woken == [1, 1]
