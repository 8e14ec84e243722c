"""Answers of cameras over MQTT: at a rate, or when something changes; old ones are not kept for ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.unit.link.linked_box import TOPICS, LinkedBox

from vedette.config.link import MqttResultsConfig
from vedette.wire.messages import Detection, Failure, Label, ModelRef, RawTensor, Result

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelRef("traffic", "3", "ab" * 32)


def answer(seq: int, label: str = "car", camera: str = "front", **parts: Any) -> Result:  # noqa: ANN401
    shown = parts or {"top": (Label(label, 1, 0.9),)}
    return Result(v=1, camera=camera, seq=seq, captured_ns=seq, model=MODEL, task="classify", **shown)


def linked(folder: Path, publish: Literal["none", "change", "all"], max_per_s: float = 1.0) -> LinkedBox:
    box = LinkedBox(folder, results=MqttResultsConfig(publish, max_per_s)).open()
    box.run()
    return box


def seqs(box: LinkedBox, camera: str = "front") -> list[int]:
    return [said["seq"] for said in box.said(TOPICS.result(camera))]


def feed(box: LinkedBox, labels: list[str], *, every_s: float = 0.1) -> None:
    for seq, label in enumerate(labels):
        box.link.result(answer(seq, label))
        box.run(every_s)


def test_none_is_none(tmp_path: Path) -> None:
    box = linked(tmp_path, "none")
    feed(box, ["car"] * 20)
    assert seqs(box) == []
    assert box.link.status().dropped_results == 0


def test_all_is_the_newest_at_the_rate_of_each_camera(tmp_path: Path) -> None:
    box = linked(tmp_path, "all", 2.0)
    for seq in range(50):
        for camera in ("front", "back"):
            box.link.result(answer(seq, camera=camera))
        box.run(0.1)
    for camera in ("front", "back"):
        assert 10 <= len(seqs(box, camera)) <= 11
    (message,) = [m for m in box.broker.published if m.topic == TOPICS.result("front")][:1]
    assert (message.qos, message.retain) == (0, False)
    assert json.loads(message.payload)["top"][0]["label"] == "car"


def test_a_change_is_told_and_sameness_is_not(tmp_path: Path) -> None:
    box = linked(tmp_path, "change", 100.0)
    feed(box, ["car", "car", "car", "bus", "bus", "car"])
    assert seqs(box) == [0, 3, 5]


def test_a_change_within_the_rate_is_told_late_but_told(tmp_path: Path) -> None:
    box = linked(tmp_path, "change", 1.0)
    feed(box, ["car", "bus", "bus", "bus"])
    box.run(1.0)
    assert len(seqs(box)) == 2
    assert box.said(TOPICS.result("front"))[-1]["top"][0]["label"] == "bus"


def test_a_flicker_within_the_rate_is_no_change(tmp_path: Path) -> None:
    box = linked(tmp_path, "change", 1.0)
    feed(box, ["car", "bus", "car", "car"])
    box.run(2.0)
    assert seqs(box) == [0]


@pytest.mark.parametrize(
    "other",
    [
        answer(2, detections=(Detection("car", 1, 0.9, (0, 0, 1, 1)),) * 2),
        answer(2, detections=()),
        answer(2, failed=Failure("decode", "cut short")),
    ],
    ids=["one more", "none", "a failure"],
)
def test_what_counts_as_a_change(tmp_path: Path, other: Result) -> None:
    box = linked(tmp_path, "change", 100.0)
    box.link.result(answer(0, detections=(Detection("car", 1, 0.9, (0, 0, 1, 1)),)))
    box.run(0.1)
    box.link.result(answer(1, detections=(Detection("car", 1, 0.7, (5, 5, 9, 9)),)))
    box.run(0.1)
    box.link.result(other)
    box.run(0.1)
    assert seqs(box) == [0, 2]


def test_without_a_broker_old_answers_are_dropped_and_counted_and_changes_are_not(tmp_path: Path) -> None:
    live, state = linked(tmp_path / "a", "all", 100.0), linked(tmp_path / "b", "change", 100.0)
    for box in (live, state):
        box.broker.go_away()
        box.run()
        feed(box, ["car", "bus", "lorry"])
        box.broker.come_back()
        box.run(0.1)
    assert seqs(live) == []
    assert live.link.status().dropped_results == 3
    assert seqs(state) == [2], "a change is still one"
    assert state.link.status().dropped_results == 2


def test_an_answer_too_large_to_send_is_dropped_and_counted(tmp_path: Path) -> None:
    box = linked(tmp_path, "all", 100.0)
    tensor = RawTensor("out", (1 << 20,), "float32", bytes(1 << 20))
    box.link.result(answer(0, tensors=(tensor,)))
    box.run(0.1)
    box.link.result(answer(1))
    box.run(0.1)
    assert seqs(box) == [1]
    assert box.link.status().dropped_results == 1


def test_what_waits_is_bounded_in_bytes(tmp_path: Path) -> None:
    box = linked(tmp_path, "all", 100.0)
    box.broker.go_away()
    box.run()
    tensor = RawTensor("out", (90_000,), "uint8", bytes(90_000))
    for number in range(40):
        box.link.result(answer(0, camera=f"cam{number}", tensors=(tensor,)))
    assert box.link._results._selection._waiting_bytes <= 1 << 20
    assert box.link.status().dropped_results > 25


def test_a_camera_whose_name_is_no_topic_costs_only_its_own_answers(tmp_path: Path) -> None:
    box = linked(tmp_path, "all", 100.0)
    box.link.result(answer(0, camera="front/door"))
    box.link.result(answer(1))
    box.run(0.1)
    assert seqs(box) == [1]
    assert box.link.status().dropped_results == 1
