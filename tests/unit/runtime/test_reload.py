"""After a configuration was read anew: what waits for a restart still waits, and is named again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import Running
from tests.stubs.waiting import until

from vedette.config.agent import parse_config
from vedette.runtime.compose import plan_from_config
from vedette.runtime.reload import Reloader, differences, running

if TYPE_CHECKING:
    from vedette.runtime.plan import RunPlan

MQTT = "mqtt: {host: broker-%s, outbox: 8MB}\n"
HTTP = "http: {listen: '127.0.0.1:%s'}\n"
ASKS = "escalation: {provider: oip, url: 'http://127.0.0.1:9', model: large, policy: {threshold: %s}}\n"
EVERY = "telemetry: {interval_s: %s}\n"


def plan(more: str = "", *, cameras: str = "a: {input: 'synthetic:8x8'}") -> RunPlan:
    text = f"model: {{factory: bundle}}\nstate_dir: state\ncameras: {{{cameras}}}\n{more}"
    return plan_from_config(parse_config(text, origin=Path("agent.yaml"), environ={}))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (MQTT % 1, MQTT % 2, "`mqtt` or `telemetry`"),
        ("", MQTT % 1, "`mqtt` or `telemetry`"),
        (HTTP % 8081, HTTP % 8082, "`http`"),
        (HTTP % 8081, "", "`http`"),
        ("", ASKS % 0.5, "`escalation`"),
        (ASKS % 0.5, "", "`escalation`"),
        ("", "limits: {ring_memory: 32MB}\n", "`limits.ring_memory`"),
    ],
)
def test_what_waits_for_a_restart_is_named_each_time_until_it_is_put_back(
    old: str, new: str, named: str
) -> None:
    first, second = plan(old), plan(new)
    changes = differences(first, second)
    assert named in changes.restart
    runs = running(first, second, changes)
    assert named in differences(runs, second).restart, "asked again, it still waits"
    assert differences(runs, first).words() == "nothing has changed", "put back, it is what runs"


def test_escalation_that_waits_for_a_restart_is_not_said_to_be_taken_over_when_it_changes_again() -> None:
    first, second = plan(), plan(ASKS % 0.5)
    runs = running(first, second, differences(first, second))
    assert differences(runs, plan(ASKS % 0.6)).words() == "waits for a restart: `escalation`"


def test_what_is_taken_over_is_what_runs() -> None:
    first = plan(MQTT % 1 + ASKS % 0.5 + EVERY % 10)
    second = plan(
        MQTT % 1 + ASKS % 0.6 + EVERY % 20,
        cameras="a: {input: 'synthetic:16x16'}, b: {input: 'synthetic:8x8'}",
    )
    changes = differences(first, second)
    assert changes.words() == (
        "cameras added: b; cameras changed: a; `escalation` taken over; telemetry every 20 s"
    )
    assert differences(running(first, second, changes), second).words() == "nothing has changed"


def test_an_interval_is_taken_over_while_the_broker_of_the_same_file_waits() -> None:
    first, second = plan(MQTT % 1 + EVERY % 10), plan(MQTT % 2 + EVERY % 20)
    changes = differences(first, second)
    assert changes.words() == "telemetry every 20 s; waits for a restart: `mqtt` or `telemetry`"
    again = differences(running(first, second, changes), second)
    assert again.words() == "waits for a restart: `mqtt` or `telemetry`"


def test_a_reader_that_breaks_is_told_and_the_next_reload_works() -> None:
    first, second = plan(), plan(cameras="a: {input: 'synthetic:8x8'}, b: {input: 'synthetic:8x8'}")
    outcomes: list[RunPlan | Exception] = [OSError("the disk is gone"), second]
    said: list[str] = []

    def read() -> RunPlan:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    daemon = Running(first).daemon  # not started: only its cameras are looked at
    reloader = Reloader(first, read, begins=lambda: None, ended=said.append, wake=lambda: None)

    def ended(count: int) -> bool:
        reloader.tick(daemon, interval=lambda _interval_s: None)
        return len(said) == count

    reloader.ask()
    until(lambda: ended(1), "the first reload ends")
    assert "nothing has changed" in said[0]
    assert "the disk is gone" in said[0]
    assert [camera.name for camera in daemon.cameras] == ["a"]
    reloader.ask()
    until(lambda: ended(2), "the second reload ends")
    assert said[1] == "the configuration was read anew: cameras added: b"
    assert [camera.name for camera in daemon.cameras] == ["a", "b"]
