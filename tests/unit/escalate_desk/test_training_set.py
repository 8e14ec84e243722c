"""Samples for the next model: anybody's tar reads them, a power cut costs the last one, audits go last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.stubs.asked_cases import (
    asked_model,
    boxes_case,
    case_of,
    escalation_config,
    frame_of,
    says,
)

from vedette import fsops
from vedette.config.escalation import PrivacyConfig, TrainingConfig
from vedette.escalate.conclusion import answered
from vedette.escalate.intake import Intake
from vedette.escalate.learning import audit_sample, split_of, training_sample
from vedette.escalate.port import CloudBox
from vedette.escalate.training import TrainingSet
from vedette.escalate.training_shard import END, pack_sample, read_shard, whole_bytes
from vedette.fsops import Kind, Operation
from vedette.wire.bundle import Task
from vedette.wire.messages import Detection

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.escalate.port import CloudAnswer
    from vedette.escalate.training import Sample
    from vedette.gate.case import Case

CONFIG = escalation_config(training=TrainingConfig(disk=1_000_000, consent=("research",)))


def sample_of(case: Case, answer: CloudAnswer, *, task: Task = Task.CLASSIFY, name: str = "x") -> Sample:
    model = asked_model(task=task)
    ticket = Intake(CONFIG, lambda: 1e9).ticket(case, model, frame_of(case.result.seq), kept=False)
    result = answered(case, answer, model.words, ticket.sent, 1.0)
    return training_sample(ticket, answer, result, CONFIG, sample_id=name, device="box", site="yard")


def plain(number: int, *, audit: bool = False) -> Sample:
    made = sample_of(case_of(number, audit=audit), says("dog", dog=0.9))
    return replace(made, id=f"{number:08d}")


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_sample_says_who_said_what_of_which_picture_and_who_may_use_it(tmp_path: Path) -> None:
    training = TrainingSet(tmp_path, TrainingConfig(disk=1_000_000, consent=("research",)))
    audit = sample_of(case_of(7, audit=True), says("Kitty", Kitty=0.7, dog=0.2), name="a")
    assert training.add(audit, b"the jpeg")
    training.close()
    assert shards(tmp_path) == ["audit-000001.tar"]
    files = read_shard((tmp_path / "audit-000001.tar").read_bytes())
    assert list(files) == ["a.jpg", "a.json"]
    assert files["a.jpg"] == b"the jpeg"
    found = json.loads(files["a.json"])
    assert (found["reason"], found["inclusion"], found["consent"]) == ("audit", 0.02, ["research"])
    assert (
        sample_of(case_of(8), says("Kitty"), name="b").inclusion is None
    )  # doubt is no draw with known odds
    assert found["local"]["label"] == "cat"
    assert found["local"]["model_sha256"] == "b" * 64
    assert found["local"]["logits"] == [2.0, 1.0, 0.0]
    assert (found["cloud"]["label"], found["cloud"]["said"]) == ("cat", "Kitty")
    assert found["cloud"]["soft"] == {"Kitty": 0.7, "dog": 0.2}
    assert (found["device"], found["site"], found["camera"], found["seq"]) == ("box", "yard", "front", 7)
    assert found["transforms"] == {"left": 0, "top": 0, "scale": 1.0, "blurred": False}


def test_boxes_stand_in_pixels_of_the_picture_that_was_sent() -> None:
    local = Detection("cat", 0, 0.4, (8.0, 8.0, 40.0, 40.0))
    answer = says(None, CloudBox("cat", (8.0, 8.0, 41.0, 40.0), None))
    found = sample_of(boxes_case(1, local), answer, task=Task.DETECT)
    assert found.local.boxes == (("cat", 0.4, (8.0, 8.0, 40.0, 40.0)),)
    assert found.cloud.boxes == (("cat", None, (8.0, 8.0, 41.0, 40.0)),)


def test_an_audit_of_boxes_compares_in_the_frame_whatever_was_cropped() -> None:
    """The large model sees a crop at half size; its boxes are led back before they are compared."""
    config = escalation_config(privacy=PrivacyConfig(send="crop", margin=0.5, max_side=32))
    local = Detection("cat", 0, 0.6, (16.0, 8.0, 48.0, 40.0))
    ghost = Detection("dog", 1, 0.1, (0.0, 0.0, 5.0, 5.0))
    case = replace(boxes_case(1, local, audit=True), candidates=(local, ghost))
    model = asked_model(task=Task.DETECT)
    ticket = Intake(config, lambda: 1e9).ticket(case, model, frame_of(1), kept=True)
    assert ticket.sent.scale == 0.5
    seen = CloudBox("Kitty", (8.0, 4.0, 24.0, 20.0), 0.9)
    result = answered(case, says(None, seen), model.words, ticket.sent, 1.0)
    sample = audit_sample(ticket, result)
    assert sample.candidates == ((0.6, 0, True), (0.1, 1, False))
    assert (sample.loss, sample.agreed) == (0.0, True)
    nothing = audit_sample(ticket, answered(case, says(None), model.words, ticket.sent, 1.0))
    assert (nothing.loss, nothing.agreed) == (1.0, False)


def test_an_audit_whose_word_nobody_knows_counts_as_another_class() -> None:
    case, model = case_of(1, audit=True), asked_model()
    ticket = Intake(CONFIG, lambda: 1e9).ticket(case, model, frame_of(1), kept=True)
    for word, cloud in (("zebra", -1), ("dog", 1), ("kitty", 0)):
        sample = audit_sample(ticket, answered(case, says(word), model.words, ticket.sent, 1.0))
        assert (sample.local, sample.cloud, sample.agreed) == (0, cloud, cloud == 0)


def test_where_room_is_short_unsure_ones_go_first_and_audits_last(tmp_path: Path) -> None:
    training = TrainingSet(tmp_path, TrainingConfig(disk=400_000))
    for number in range(60):
        assert training.add(plain(number, audit=number % 2 == 0), bytes(10_000))
        assert training.size_bytes <= 400_000
    training.close()
    audits = sum(name.startswith("audit") for name in shards(tmp_path))
    assert audits >= 4
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400_000 + 2 * len(END)


def test_an_unsure_sample_never_pushes_out_an_audit(tmp_path: Path) -> None:
    training = TrainingSet(tmp_path, TrainingConfig(disk=200_000))
    for number in range(14):
        assert training.add(plain(number, audit=True), bytes(10_000))
    assert not training.add(plain(99), bytes(100_000))
    assert (training.refused, training.samples) == (1, 14)
    assert training.add(plain(100, audit=True), bytes(100_000))


def test_a_shard_whose_writer_was_killed_is_ended_where_it_is_whole(tmp_path: Path) -> None:
    training = TrainingSet(tmp_path, TrainingConfig(disk=1_000_000))
    for number in range(3):
        training.add(plain(number), b"jpeg")
    training.sync()
    part = tmp_path / "unsure-000001.tar.part"
    part.write_bytes(part.read_bytes()[:-700])
    again = TrainingSet(tmp_path, TrainingConfig(disk=1_000_000))
    assert shards(tmp_path) == ["unsure-000001.tar"]
    assert len(read_shard((tmp_path / "unsure-000001.tar").read_bytes())) == 4
    again.add(plain(9), b"jpeg")
    again.close()
    assert shards(tmp_path) == ["unsure-000001.tar", "unsure-000002.tar"]


def test_a_shard_without_one_whole_sample_goes(tmp_path: Path) -> None:
    (tmp_path / "audit-000004.tar.part").write_bytes(b"nothing whole")
    training = TrainingSet(tmp_path, TrainingConfig(disk=1_000_000))
    assert shards(tmp_path) == []
    training.add(plain(1, audit=True), b"")
    assert shards(tmp_path) == ["audit-000005.tar.part"]


def test_a_full_disk_costs_samples_and_is_said(tmp_path: Path) -> None:
    training = TrainingSet(tmp_path, TrainingConfig(disk=1_000_000))

    class Full:
        def before(self, operation: Operation) -> None:
            if operation.kind is Kind.WRITE:
                raise OSError(28, "No space left on device")

    with fsops.traced(Full()):
        assert not training.add(plain(1), b"jpeg")
    assert ("No space" in training.fault, training.refused) == (True, 1)
    assert training.add(plain(2), b"jpeg")
    assert training.fault == ""
    training.close()
    assert any(
        read_shard((tmp_path / name).read_bytes()) for name in shards(tmp_path) if name.endswith("tar")
    )


@given(
    st.lists(st.tuples(st.binary(max_size=1500), st.binary(max_size=600)), min_size=1, max_size=4),
    st.data(),
)
def test_wherever_a_shard_is_cut_what_is_called_whole_is_whole(
    samples: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    content = b"".join(
        pack_sample(f"s{number}", {"jpg": jpeg, "json": said}, 5)
        for number, (jpeg, said) in enumerate(samples)
    )
    assert whole_bytes(content + END) == (len(content), len(samples))
    cut = content[: data.draw(st.integers(0, len(content)))]
    whole, count = whole_bytes(cut)
    found = read_shard(cut[:whole] + END)
    wanted = [pair for number in range(count) for pair in _pair(number, samples)]
    assert list(found.items()) == wanted


def _pair(number: int, samples: list[tuple[bytes, bytes]]) -> list[tuple[str, bytes]]:
    return [(f"s{number}.jpg", samples[number][0]), (f"s{number}.json", samples[number][1])]


def test_one_scene_is_on_one_side_and_the_sides_are_as_large_as_they_should_be() -> None:
    sides = [split_of(f"front:{number:016x}:1") for number in range(5000)]
    assert sides.count("test") / 5000 == pytest.approx(0.1, abs=0.02)
    assert sides.count("validation") / 5000 == pytest.approx(0.1, abs=0.02)
    assert split_of("one scene") == split_of("one scene")
