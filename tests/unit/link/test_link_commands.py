"""What arrives: commands once each, announcements in time, and all that is neither (cases 29, 31, 32)."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.link.linked_box import TOPICS, CommandError, LinkedBox

from vedette.link.command_thread import MAX_WAITING
from vedette.link.inbox_parsing import MAX_DEPTH, BadMessageError, depth_of, parse_announcement, parse_command
from vedette.mqtt.port import Arrived, Outgoing
from vedette.wire.plane import COMMAND_EXPIRY_S, MAX_COMMAND_BYTES, Command
from vedette.wire.topics import announcements

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = "operator/answers"


@pytest.fixture
def box(tmp_path: Path) -> LinkedBox:
    box = LinkedBox(tmp_path).open()
    box.run()
    return box


def answers(box: LinkedBox, topic: str = ANSWERS) -> list[dict[str, Any]]:
    box.run()
    return box.said(topic)


def bad(box: LinkedBox) -> dict[str, int]:
    box.run()
    return box.link.status().bad_messages


def test_a_command_is_answered_where_and_as_it_asks(box: LinkedBox) -> None:
    box.ask("ping", Command(id="c1"), response_topic=ANSWERS, correlation=b"\0\1")
    (answer,) = answers(box)
    assert (answer["id"], answer["ok"], answer["body"]) == ("c1", True, {"name": "ping"})
    (message,) = (message for message in box.broker.published if message.topic == ANSWERS)
    assert (message.correlation, message.qos, message.retain) == (b"\0\1", 1, False)
    assert message.expiry_s is not None
    assert 0 < message.expiry_s <= COMMAND_EXPIRY_S


def test_without_a_response_topic_the_answer_goes_to_the_devices_own(box: LinkedBox) -> None:
    box.ask("status", Command(id="c1", arguments={"verbose": True}))
    assert answers(box, TOPICS.response("status"))[0]["ok"]
    assert box.commands.carried_out[0][1].arguments == {"verbose": True}


def test_a_command_that_comes_twice_is_carried_out_once(box: LinkedBox) -> None:
    """Case 29: QoS 1 delivers at least once."""
    for _ in range(3):
        box.ask("snapshot", Command(id="c1"))
    first, *others = answers(box, TOPICS.response("snapshot"))
    assert len(box.commands.carried_out) == 1
    assert "repeated" not in first
    for other in others:
        assert other.pop("repeated")
        assert other == first


def test_a_command_that_comes_again_after_a_restart_is_not_carried_out_again(box: LinkedBox) -> None:
    """Case 29: also over kill -9."""
    box.ask("pause-camera", Command(id="c1"))
    box.run()
    box.restart()
    box.open().run()
    box.ask("pause-camera", Command(id="c1"))
    first, second = answers(box, TOPICS.response("pause-camera"))
    assert len(box.commands.carried_out) == 1
    assert second["repeated"]
    assert second["body"] == first["body"]


def test_a_command_that_a_kill_interrupted_is_not_begun_again(box: LinkedBox) -> None:
    class PowerCutError(BaseException):
        """Ends the process, as it were."""

    box.commands.errors.append(PowerCutError())  # type: ignore[arg-type]
    box.ask("snapshot", Command(id="c1"))
    with pytest.raises(PowerCutError):
        box.run()
    box.restart()
    box.open().run()
    box.ask("snapshot", Command(id="c1"))
    (answer,) = answers(box, TOPICS.response("snapshot"))
    assert not answer["ok"]
    assert answer["repeated"]
    assert "not known" in answer["error"]
    assert len(box.commands.carried_out) == 1


def test_the_same_id_under_another_name_is_another_command(box: LinkedBox) -> None:
    box.ask("ping", Command(id="c1"))
    box.ask("status", Command(id="c1"))
    box.run()
    assert [name for name, _ in box.commands.carried_out] == ["ping", "status"]


def test_what_is_remembered_is_bounded(box: LinkedBox) -> None:
    box.link._commands._memory._max_count = 5
    for number in range(20):
        box.ask("ping", Command(id=f"c{number}"))
        box.run()
    rows = box.file.run(lambda database: database.execute("SELECT id FROM replies").fetchall())
    assert [row[0] for row in rows] == ["c15", "c16", "c17", "c18", "c19"]


def test_a_large_answer_is_sent_whole_but_remembered_as_its_size(box: LinkedBox) -> None:
    box.commands.bodies["diagnose"] = {"text": "x" * 50_000}
    box.ask("diagnose", Command(id="c1"))
    box.ask("diagnose", Command(id="c1"))
    first, second = answers(box, TOPICS.response("diagnose"))
    assert len(first["body"]["text"]) == 50_000
    assert second["body"]["not_kept_bytes"] > 50_000


def test_an_answer_above_the_brokers_limit_is_replaced_by_a_word_of_it(box: LinkedBox) -> None:
    box.commands.bodies["diagnose"] = {"text": "x" * 300_000}
    box.ask("diagnose", Command(id="c1"))
    (answer,) = answers(box, TOPICS.response("diagnose"))
    assert not answer["ok"]
    assert "too large" in answer["error"]


def test_what_cannot_be_done_says_why_and_what_helps(box: LinkedBox) -> None:
    box.commands.errors.append(CommandError("there is no camera `x`", cure="one of front, back"))
    box.commands.errors.append(ZeroDivisionError("division by zero"))
    box.ask("pause-camera", Command(id="c1"))
    box.ask("pause-camera", Command(id="c2"))
    refused, broken = answers(box, TOPICS.response("pause-camera"))
    assert (refused["error"], refused["cure"]) == ("there is no camera `x`", "one of front, back")
    assert "our bug: ZeroDivisionError" in broken["error"]
    box.ask("ping", Command(id="c3"))
    assert answers(box, TOPICS.response("ping"))[0]["ok"]
    assert box.link.status().commands["failed"] == 2


def test_more_commands_than_may_wait_are_answered_busy(box: LinkedBox) -> None:
    for number in range(MAX_WAITING + 3):
        box.ask("ping", Command(id=f"c{number}"), response_topic=ANSWERS)
    found = answers(box)
    busy = [answer for answer in found if not answer["ok"]]
    assert [answer["id"] for answer in busy] == [f"c{MAX_WAITING + number}" for number in range(3)]
    assert all("busy" in answer["error"] for answer in busy)
    assert len(found) == MAX_WAITING + 3


def test_a_command_that_waited_too_long_for_others_is_not_carried_out(box: LinkedBox) -> None:
    box.ask("snapshot", Command(id="c1"))
    box.link.turn(0.0)
    box.clock.advance_s(COMMAND_EXPIRY_S + 1)
    (answer,) = answers(box, TOPICS.response("snapshot"))
    assert not answer["ok"]
    assert box.commands.carried_out == []


def test_answers_that_cannot_be_sent_in_time_are_of_no_use(box: LinkedBox) -> None:
    box.ask("ping", Command(id="c1"))
    box.link.turn(0.0)
    box.broker.go_away()
    box.run()
    box.clock.advance_s(COMMAND_EXPIRY_S)
    box.broker.come_back()
    assert answers(box, TOPICS.response("ping")) == []


def test_an_answer_that_was_cut_off_is_sent_again(box: LinkedBox) -> None:
    box.broker.hang_up = lambda message: "closed" if message.topic == ANSWERS else ""
    box.ask("ping", Command(id="c1"), response_topic=ANSWERS)
    box.link.turn(0.0)
    box.link._commands.run_one(0.0)
    box.link.turn(0.0)
    box.broker.hang_up = lambda _message: ""
    assert answers(box)[0]["id"] == "c1"


def test_a_retained_command_that_comes_while_connected_is_dropped_as_well(tmp_path: Path) -> None:
    """It would come again with each connection, and be old then: the sender hears of it at once."""
    box = LinkedBox(tmp_path).open()
    box.run()
    box.ask("ping", b'{"id": "kept"}', retain=True)
    box.run()
    assert box.commands.carried_out == []
    assert bad(box) == {"retained_command": 1}
    box.ask("ping", b'{"id": "good"}')
    box.run()
    assert [command.id for _, command in box.commands.carried_out] == ["good"]


def test_retained_commands_are_dropped_and_counted(tmp_path: Path) -> None:
    """Case 31: days-old commands acted on at boot."""
    box = LinkedBox(tmp_path)
    box.broker.say(
        Outgoing(f"{TOPICS.branch}/cmd/snapshot", b'{"id": "old"}', retain=True, response_topic=ANSWERS)
    )
    box.open()
    assert bad(box) == {"retained_command": 1}
    assert box.commands.carried_out == []
    assert answers(box) == []


DEEP = b'{"id": "c", "arguments": ' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}"
BROKEN: dict[str, tuple[str, bytes, str]] = {
    "broken JSON": ("ping", b'{"id": "c1"', "bad_command"),
    "no object": ("ping", b"[1, 2]", "bad_command"),
    "null": ("ping", b"null", "bad_command"),
    "empty": ("ping", b"", "bad_command"),
    "bad UTF-8": ("ping", b'{"id": "\xff\xfe"}', "bad_command"),
    "a lone surrogate": ("ping", b'{"id": "\\ud800"}', "bad_command"),
    "deep nesting": ("ping", DEEP, "bad_command"),
    "deeper than memory": ("ping", b"[" * 16_000, "bad_command"),
    "ten megabytes": ("ping", b'{"id": "' + b"x" * 10_000_000 + b'"}', "large_command"),
    "no id": ("ping", b"{}", "bad_command"),
    "an empty id": ("ping", b'{"id": ""}', "bad_command"),
    "a long id": ("ping", b'{"id": "' + b"x" * 1000 + b'"}', "bad_command"),
    "a number for an id": ("ping", b'{"id": 7}', "bad_command"),
    "NaN": ("ping", b'{"id": "c", "arguments": {"x": NaN}}', "bad_command"),
    "an unknown command": ("reboot", b'{"id": "c1"}', "unknown_command"),
    "a strange name": ("p\u00efng it", b'{"id": "c1"}', "unknown_command"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_bad_command_is_refused_and_the_next_good_one_is_carried_out(box: LinkedBox, case: str) -> None:
    """Case 32: connected, subscribed, deaf."""
    name, payload, word = BROKEN[case]
    box.broker.limits = type(box.broker.limits)(5, 1 << 28, 20)
    box.ask(name, payload, response_topic=ANSWERS, correlation=b"k")
    box.ask("ping", Command(id="good"), response_topic=ANSWERS)
    refused, good = answers(box)
    assert not refused["ok"]
    assert refused["error"]
    assert good["ok"]
    assert bad(box) == {word: 1}


def test_a_bad_command_that_wants_no_answer_gets_none(box: LinkedBox) -> None:
    box.ask("ping", b"{")
    box.run()
    assert box.said(TOPICS.response("ping")) == []
    assert bad(box) == {"bad_command": 1}


@pytest.mark.parametrize("number", ["1e308", "-1e308", "123456789012345678901234567890", "-0.0", "-7"])
def test_numbers_of_any_size_reach_the_command(box: LinkedBox, number: str) -> None:
    box.ask("ping", f'{{"id": "c1", "arguments": {{"n": {number}}}}}'.encode())
    box.run()
    assert box.commands.carried_out[0][1].arguments["n"] == json.loads(number)


@pytest.mark.parametrize(
    "topic",
    ["vedette/1/plant-a/other/cmd/snapshot", "vedette/x", "$SYS/x", "homeassistant/a", "a/+/b", "a/#", "a\0"],
)
def test_nobody_is_spoken_to_through_a_device(box: LinkedBox, topic: str) -> None:
    """An answer goes where it is wanted, but not where other devices listen."""
    box.broker.say(Outgoing(f"{TOPICS.branch}/cmd/ping", b'{"id": "c1"}', response_topic=topic))
    assert answers(box, TOPICS.response("ping"))[0]["ok"]
    assert all(message.topic != topic for message in box.broker.published)


def test_the_devices_own_answer_topic_may_be_named(box: LinkedBox) -> None:
    topic = f"{TOPICS.branch}/rsp/operator-7"
    box.ask("ping", Command(id="c1"), response_topic=topic)
    assert answers(box, topic)[0]["ok"]


def announce(box: LinkedBox, payload: bytes, channel: str = "all", **properties: Any) -> None:  # noqa: ANN401
    box.broker.say(Outgoing(announcements(channel), payload, **properties))


def test_an_announcement_is_passed_on_once_also_over_reconnects(box: LinkedBox) -> None:
    announce(box, b'{"timestamp_version": 7, "rollouts_version": 3}', retain=True)
    box.run()
    box.broker.go_away()
    box.run()
    box.broker.come_back()
    box.run(2.0)
    (announced,) = box.announced
    assert (announced.timestamp_version, announced.rollouts_version) == (7, 3)
    announce(box, b'{"timestamp_version": 8, "rollouts_version": 3}', channel="canary")
    box.run(2.0)
    assert len(box.announced) == 2


def test_each_device_has_its_own_moment_in_the_spread(tmp_path: Path) -> None:
    """Case 61's kind: an announcement is not a starting shot."""
    box = LinkedBox(tmp_path, uniform=lambda low, high: low + 0.5 * (high - low)).open()
    announce(box, b'{"timestamp_version": 7, "rollouts_version": 3, "spread_s": 60}')
    box.run(29.0, step_s=1.0)
    assert box.announced == []
    announce(box, b'{"timestamp_version": 8, "rollouts_version": 4, "spread_s": 60}')
    box.run(2.0, step_s=1.0)
    assert [announced.timestamp_version for announced in box.announced] == [8], "not put off by a newer one"


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"\xff",
        b"[]",
        b'{"timestamp_version": 1}',
        b'{"timestamp_version": -1, "rollouts_version": 1}',
        b'{"timestamp_version": 1e300, "rollouts_version": 1}',
        b'{"timestamp_version": 99999999999999999999999, "rollouts_version": 1}',
        b'{"timestamp_version": 1, "rollouts_version": 1, "spread_s": -5}',
        b'{"timestamp_version": 1, "rollouts_version": 1, "spread_s": 1e999}',
        b'{"timestamp_version": 1, "rollouts_version": 1, "spread_s": NaN}',
        b'{"timestamp_version": 1, "rollouts_version": 1, "x": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"timestamp_version": 1, "rollouts_version": 1, "x": "' + b"y" * 5000 + b'"}',
    ],
)
def test_a_bad_announcement_is_counted_and_the_next_one_heard(box: LinkedBox, payload: bytes) -> None:
    """Case 31: retained broken JSON."""
    announce(box, payload, retain=True)
    announce(box, b'{"timestamp_version": 7, "rollouts_version": 3}')
    assert bad(box) == {"bad_announcement": 1}
    assert len(box.announced) == 1


def test_an_announcement_that_is_taken_back_is_no_fault(box: LinkedBox) -> None:
    announce(box, b"", retain=True)
    assert bad(box) == {}


def test_a_hint_is_never_put_off_for_ever(box: LinkedBox) -> None:
    announce(box, b'{"timestamp_version": 7, "rollouts_version": 3, "spread_s": 1e300}')
    box.run(3601.0, step_s=600.5)
    box.run(601.0, step_s=600.5)
    assert len(box.announced) == 1


def test_a_flood_of_announcements_is_one_a_second(box: LinkedBox) -> None:
    for number in range(100):
        announce(box, f'{{"timestamp_version": {number}, "rollouts_version": 3}}'.encode())
        box.run(0.05)
    assert len(box.announced) <= 6


def test_whoever_hears_an_announcement_may_fail(tmp_path: Path) -> None:
    def fail(_announcement: object) -> None:
        raise RuntimeError("not our day")

    box = LinkedBox(tmp_path, announced=fail).open()
    announce(box, b'{"timestamp_version": 7, "rollouts_version": 3}')
    assert bad(box) == {"handler_fault": 1}
    assert box.link.connected


def test_a_routed_topic_reaches_its_handler_and_a_failing_one_harms_nobody(tmp_path: Path) -> None:
    """Case 32: a handler that raises."""
    box = LinkedBox(tmp_path)
    seen: list[bytes] = []

    def handler(arrived: Arrived) -> None:
        if arrived.payload == b"bad":
            raise ValueError("bad")
        seen.append(arrived.payload)

    box.link.route(TOPICS.block_data, handler)
    box.open()
    for payload in (b"one", b"bad", b"two"):
        box.broker.say(Outgoing(TOPICS.block_data, payload, qos=0))
    assert sum(bad(box).values()) == 1
    assert seen == [b"one", b"two"]


def test_a_refused_subscription_is_counted_and_told_of_once(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path)
    box.broker.denied[announcements()] = "not authorised"
    box.open().run(0.5)
    for _ in range(3):
        box.broker.go_away()
        box.run()
        box.broker.come_back()
        box.run(0.5)
    told = [event for event in box.said(TOPICS.event) if event["kind"] == "subscription_refused"]
    assert [event["data"]["filter"] for event in told] == [announcements()]
    assert bad(box)["subscription_refused"] == 4


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | st.text(alphabet='{}[]":,0123456789.eE+-\\ idnulltrue', max_size=200))
def test_parsing_gives_a_message_or_a_reason_and_nothing_else(payload: bytes | str) -> None:
    content = payload if isinstance(payload, bytes) else payload.encode()
    with contextlib.suppress(BadMessageError):
        assert parse_command("ping", Arrived("t", content, retained=False, qos=1), TOPICS, 0).command.id
    with contextlib.suppress(BadMessageError):
        assert parse_announcement(content).spread_s >= 0


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.text() | st.integers() | st.booleans(), lambda inner: st.lists(inner, max_size=3)))
def test_the_depth_is_that_of_the_value(value: object) -> None:
    def depth(part: object) -> int:
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    assert depth_of(json.dumps(value).encode()) == depth(value)
    assert depth_of(json.dumps({"[[": value}).encode()) == depth(value) + 1


def test_the_limits_of_a_command_hold_exactly() -> None:
    def of_bytes(size: int) -> Arrived:
        body = b'{"id": "c", "x": "' + b"y" * (size - 20) + b'"}'
        return Arrived("t", body, retained=False, qos=1)

    assert len(of_bytes(MAX_COMMAND_BYTES).payload) == MAX_COMMAND_BYTES
    assert parse_command("ping", of_bytes(MAX_COMMAND_BYTES), TOPICS, 0).command.id == "c"
    with pytest.raises(BadMessageError):
        parse_command("ping", of_bytes(MAX_COMMAND_BYTES + 1), TOPICS, 0)
    nested = b'{"id": "c", "x": ' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert parse_command("ping", Arrived("t", nested, retained=False, qos=1), TOPICS, 0).command.id == "c"
