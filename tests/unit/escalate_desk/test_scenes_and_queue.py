"""Near-duplicates are one scene; and what waits for a free thread is bounded and in the right order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from tests.stubs.asked_cases import asked_model, case_of, escalation_config, frame_of

from vedette.escalate.intake import Intake
from vedette.escalate.scene_hash import SCENE_S, SceneNames, scene_hash
from vedette.escalate.ticket import Ticket, Waiting


def test_noise_makes_no_new_scene_and_another_picture_does() -> None:
    rng = np.random.default_rng(3)
    names = SceneNames()
    picture = frame_of(1)
    noisy = np.clip(picture + rng.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
    first = names.name("front", scene_hash(picture), "cat", 0.0)
    assert names.name("front", scene_hash(noisy), "cat", 60.0) == first
    assert names.name("front", scene_hash(frame_of(2)), "cat", 60.0) != first


def test_another_answer_another_camera_and_another_hour_are_another_scene() -> None:
    names = SceneNames()
    bits = scene_hash(frame_of(1))
    scenes = {
        names.name("front", bits, "cat", 0.0),
        names.name("front", bits, "dog", 1.0),
        names.name("back", bits, "cat", 0.0),
        names.name("front", bits, "cat", SCENE_S + 1),
    }
    assert len(scenes) == 4


def test_many_cameras_are_no_leak() -> None:
    names = SceneNames()
    for number in range(2000):
        names.name(f"c{number}", number, "cat", 0.0)
    assert len(names._cameras) <= 256


def tickets(*doubts: float, audits: int = 0) -> list[Ticket]:
    intake = Intake(escalation_config(), lambda: 0.0)
    return [
        intake.ticket(
            case_of(seq, uncertainty=doubt, audit=seq < audits), asked_model(), frame_of(seq), kept=False
        )
        for seq, doubt in enumerate(doubts)
    ]


def test_audits_go_first_and_then_doubt_and_then_age() -> None:
    queue = Waiting(10**9)
    for ticket in tickets(0.1, 0.5, 0.9, 0.5, audits=1):
        assert queue.push(ticket) == []
    assert (len(queue), queue.audits()) == (4, 1)
    order = []
    while (found := queue.pop()) is not None:
        order.append(found.case.result.seq)
    assert order == [0, 2, 1, 3]
    assert queue.size_bytes == 0


def test_where_room_is_short_the_surest_goes_be_it_the_newcomer() -> None:
    made = tickets(0.5, 0.2, 0.9, 0.1)
    queue = Waiting(sum(ticket.size_bytes for ticket in made[:2]) + 100)
    gone = [[one.case.result.seq for one in queue.push(ticket)] for ticket in made]
    assert gone == [[], [], [1], [3]]


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["push", "pop", "drop"])), max_size=60))
def test_whoever_came_in_goes_out_once(steps: list[tuple[float, str]]) -> None:
    template = tickets(0.5)[0]
    queue, inside, out = Waiting(template.size_bytes * 4 + 10), set(), []
    for number, (doubt, step) in enumerate(steps):
        if step == "push":
            ticket = _numbered(template, number, doubt)
            inside.add(number)
            out += [one.number for one in queue.push(ticket)]
        elif step == "pop" and (found := queue.pop()) is not None:
            left = (place.ticket.case.uncertainty for place in queue._places.values())
            assert found.case.uncertainty >= max(left, default=0.0)
            out.append(found.number)
    while (last := queue.pop()) is not None:
        out.append(last.number)
    assert sorted(out) == sorted(inside)
    assert queue.size_bytes == 0


def _numbered(template: Ticket, number: int, doubt: float) -> Ticket:
    case = changed(template.case, uncertainty=doubt)
    return replace(template, number=number, kept_case=changed(template.kept_case, case=case))
