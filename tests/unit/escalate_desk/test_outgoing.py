"""Nothing that has to be told is lost on a daemon that is slow to read, or on an answer that is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.stubs.asked_cases import boxes_case, case_of

from vedette.escalate.conclusion import declined
from vedette.escalate.messages import Concluded, EscalatorEvent, EscalatorFigures, FromEscalator, ToEscalator
from vedette.escalate.outgoing import Outgoing
from vedette.frame.channel import Channel, channel_pair
from vedette.wire.escalation import DeclineCause
from vedette.wire.messages import Detection

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends() -> Iterator[tuple[Outgoing, Channel[FromEscalator]]]:
    theirs, ours = channel_pair()
    control: Channel[ToEscalator] = Channel(theirs, ToEscalator)
    daemon: Channel[FromEscalator] = Channel(ours, FromEscalator)
    yield Outgoing(control), daemon
    control.close()
    daemon.close()


def test_a_slow_daemon_hears_everything_and_only_the_newest_figures(
    ends: tuple[Outgoing, Channel[FromEscalator]],
) -> None:
    outgoing, daemon = ends
    local = case_of(1).result
    for seq in range(5000):
        ended = replace(declined(case_of(seq), DeclineCause.BUSY, 1.0), camera="c" * 60)
        outgoing.conclude(ended, local)
        outgoing.tell(EscalatorFigures(asked=seq))
    outgoing.tell(EscalatorEvent("quota", "spent"))
    assert not outgoing.flush()
    assert outgoing.unread > 0
    heard: list[FromEscalator] = []
    while not outgoing.flush():
        while (received := daemon.receive()) is not None:
            heard.append(received[0])
    while (received := daemon.receive()) is not None:
        heard.append(received[0])
    seqs = [one.results[0].seq for one in heard if isinstance(one, Concluded)]
    assert seqs == list(range(5000))
    assert [one.asked for one in heard if isinstance(one, EscalatorFigures)] == [4999]
    assert [one.word for one in heard if isinstance(one, EscalatorEvent)] == ["quota"]


def test_an_answer_that_no_datagram_carries_leaves_the_local_one(
    ends: tuple[Outgoing, Channel[FromEscalator]],
) -> None:
    outgoing, daemon = ends
    mine = Detection("cat", 0, 0.9, (1.0, 2.0, 3.0, 4.0))
    case = boxes_case(1, mine)
    many = tuple(replace(mine, label="l" * 200) for _ in range(1000))
    ended = replace(declined(case, DeclineCause.BUSY, 1.0), detections=many, source="cloud")
    outgoing.conclude(ended, case.result)
    assert outgoing.flush()
    received = daemon.receive(1.0)
    assert received is not None
    assert isinstance(received[0], Concluded)
    (result,) = received[0].results
    assert (result.source, result.detections) == ("local", (mine,))
    assert result.escalation is not None
    assert (result.escalation.outcome, result.escalation.cause) == ("failed", "too_large")
