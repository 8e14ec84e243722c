"""A network thread that died or is deaf is found and replaced (case 32)."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_waiting import QUICK, Connections, await_event, connected
from tests.stubs.waiting import until

from vedette.mqtt.network_thread import Supervision
from vedette.mqtt.paho_connection import MAX_ABANDONED
from vedette.mqtt.port import Arrived, Connected, Lost, Outgoing, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.mqtt.port import Connection

LISTEN = [Subscription("a/#")]
NAME = "mqtt"
DYING = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as started:
        yield started


def test_the_usual_limits_find_it_within_ten_seconds() -> None:
    usual = Supervision()
    assert usual.deaf_after_s + usual.look_every_s + usual.turn_s <= 10.0


def _kill(thread: threading.Thread) -> None:
    """Let SystemExit rise in another thread, at whatever instruction it is."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def _network_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def _hears(connection: Connection) -> None:
    assert connection.publish(Outgoing("a/b", b"heard", qos=0)) is not None
    assert await_event(connection, Arrived).payload == b"heard"


@DYING
def test_a_thread_that_died_is_replaced(broker: Mosquitto, connections: Connections) -> None:
    connection = connections.to(broker.port, LISTEN)
    connected(connection)
    (thread,) = _network_threads()
    _kill(thread)
    lost = await_event(connection, Lost)
    assert (lost.kind, "died" in lost.reason) == ("silent", True)
    assert not thread.is_alive()
    assert await_event(connection, Connected).number == 2
    assert connection.health().thread_restarts == 1
    _hears(connection)


@DYING
def test_a_thread_that_dies_while_it_pauses_is_replaced_too(connections: Connections) -> None:
    connection = connections.to(1, retry_min_s=100.0, retry_max_s=100.0)
    connection.start()
    await_event(connection, Lost)
    (thread,) = _network_threads()
    _kill(thread)
    await_event(connection, Lost)
    assert connection.health().thread_restarts == 1
    assert connection.stop()


def test_a_thread_that_something_blocks_is_replaced_and_later_ends_unheard(
    broker: Mosquitto, connections: Connections
) -> None:
    release = threading.Event()
    asked: list[int] = []

    def blocks_once() -> Outgoing | None:
        asked.append(1)
        if len(asked) == 1:
            release.wait(30.0)
        return None

    connection = connections.to(broker.port, LISTEN, blocks_once, client_id="box")
    connection.start()
    began_s = time.monotonic()
    lost = await_event(connection, Lost)
    assert (lost.kind, "did not turn" in lost.reason) == ("silent", True)
    assert time.monotonic() - began_s < 25, "long before the block ends"
    assert await_event(connection, Connected).number == 1
    release.set()
    until(lambda: len(_network_threads()) == 1, "the old thread ends")
    _hears(connection)
    health = connection.health()
    assert (health.connects, health.losses, health.thread_restarts) == (1, 1, 1)


def test_threads_that_never_come_back_are_not_made_without_end(
    broker: Mosquitto, connections: Connections
) -> None:
    release = threading.Event()

    def blocks() -> Outgoing | None:
        release.wait(60.0)
        return None

    connection = connections.to(broker.port, LISTEN, blocks)
    connection.start()
    for _ in range(MAX_ABANDONED):
        await_event(connection, Lost)
    assert connection.next_event(0.8) is None
    assert len(_network_threads()) == MAX_ABANDONED + 1
    age_s = connection.health().thread_age_s
    assert age_s > QUICK.deaf_after_s, "who watches from outside sees it"
    release.set()
    await_event(connection, Connected)


def test_a_will_that_cannot_be_made_costs_the_will_and_not_the_connection(
    broker: Mosquitto, connections: Connections
) -> None:
    """Case 32: the only code of a caller's that runs on the network thread."""

    def broken() -> Outgoing | None:
        raise RuntimeError("a bug of somebody's")

    connection = connections.to(broker.port, LISTEN, broken)
    connected(connection)
    _hears(connection)
    other = connections.to(broker.port, LISTEN, lambda: Outgoing("a/#", b"no topic"))
    connected(other)
    assert [made.health().handler_faults for made in (connection, other)] == [1, 1]


def test_a_connect_may_take_its_time_without_being_taken_for_deaf(connections: Connections) -> None:
    """The limit while connecting is that of connecting."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        connection = connections.to(mute.getsockname()[1], connect_timeout_s=1.5)
        connection.start()
        assert await_event(connection, Lost).kind == "timeout"
        assert connection.health().thread_restarts == 0


def test_the_age_of_thread_and_broker_are_told(broker: Mosquitto, connections: Connections) -> None:
    connection = connections.to(broker.port, keepalive_s=1)
    assert connection.health().broker_age_s is None
    connected(connection)
    ages_s: list[float] = []

    def heard_again() -> bool:
        connection.next_event(0.1)
        health = connection.health()
        assert health.thread_age_s < 10.0
        assert health.broker_age_s is not None
        ages_s.append(health.broker_age_s)
        return sum(later < before for before, later in itertools.pairwise(ages_s)) >= 2

    until(heard_again, "pings go round while nothing else does")
