"""The thread of the link: it ends in good order, and dies loudly; blocks and how the connection stands."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.stubs.waiting import until
from tests.unit.link.linked_box import TOPICS, LinkedBox

from vedette.errors import InternalError
from vedette.link.block_inbox import BlockInbox
from vedette.link.link_thread import LinkThread
from vedette.link.port import Keep
from vedette.mqtt.port import Outgoing

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.wire.plane import Reported


def test_it_carries_what_other_threads_bring_and_ends_with_a_goodbye(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path)
    thread = LinkThread(box.link)
    thread.start()
    until(lambda: box.link.connected, "the link is up")
    box.clock.advance_s(1.0)

    def bring(name: int) -> None:
        for number in range(20):
            box.link.event("test", {}, keep=Keep.ALWAYS, event_id=f"{name}-{number}")

    threads = [threading.Thread(target=bring, args=(name,)) for name in range(4)]
    for other in threads:
        other.start()
    for other in threads:
        other.join()
    box.clock.advance_s(1.0)
    until(lambda: len(box.said(TOPICS.event)) == 80, "all events")
    assert thread.stop()
    assert thread.crash is None
    assert box.said(TOPICS.status)[-1]["clean"]
    for name in range(4):
        mine = [event["id"] for event in box.said(TOPICS.event) if event["id"].startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(20)]


def test_it_dies_loudly(tmp_path: Path) -> None:
    """A thread that dies ends the process with a reason; nobody waits for a link that is deaf."""
    box = LinkedBox(tmp_path)

    def fail(seq: int) -> Reported:
        raise RuntimeError(f"nothing to report at {seq}")

    box.state.reported = fail  # type: ignore[method-assign]
    ended = threading.Event()
    thread = LinkThread(box.link, ended=ended.set)
    thread.start()
    assert ended.wait(10.0)
    thread.join(10.0)
    assert isinstance(thread.crash, RuntimeError)


def test_a_stop_before_the_start_is_no_fault(tmp_path: Path) -> None:
    assert LinkThread(LinkedBox(tmp_path).link).stop()


def test_blocks_reach_their_inbox_which_knows_how_the_connection_stands(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path)
    inbox = BlockInbox(box.clock)
    box = LinkedBox(tmp_path / "second", blocks=inbox)
    box.open().run()
    assert inbox.standing.limits == box.broker.limits
    assert inbox.standing.number == 1
    box.broker.say(Outgoing(TOPICS.block_data, b"no block of ours", qos=0))
    box.run()
    assert inbox.foreign == 1
    box.broker.go_away()
    box.run()
    assert inbox.standing.limits is None
    assert "closed" in inbox.standing.reason
    assert not box.link.send(Outgoing(TOPICS.block_request, b"", qos=0))
    box.broker.denied[TOPICS.block_data] = "not authorised"
    box.broker.come_back()
    box.run()
    assert box.link.send(Outgoing(TOPICS.block_request, b"", qos=0))
    assert inbox.standing.limits is None
    assert "not authorised" in inbox.standing.reason


def test_a_topic_is_routed_before_the_link_is_opened_or_not_at_all(tmp_path: Path) -> None:
    box = LinkedBox(tmp_path).open()
    with pytest.raises(InternalError):
        box.link.route("a/b", lambda _arrived: None)
