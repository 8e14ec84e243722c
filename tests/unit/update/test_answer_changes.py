"""A release whose answers mean something else: of another kind it is refused, other classes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.played_bundles import played_bundle
from tests.unit.update.box import Box, offer_of, weights

from vedette.runtime.narration import Narrator
from vedette.update.answer_changes import Answers, class_change, read_answers
from vedette.update.causes import Cause, Result
from vedette.update.phases import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.wire.release import ReleaseManifest


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def raw_release(box: Box) -> ReleaseManifest:
    """Version 1 answers with bare numbers."""
    spec = {"task": "raw", "output": {"layout": "raw"}, "version": "1", "sidecars": ["weights.bin"]}
    bundle = played_bundle(box.publisher.folder / "v1", spec=spec, files={"weights.bin": weights(1)})
    return box.publisher.release(1, bundle)


def test_another_kind_of_answer_is_refused_before_the_trial(box: Box) -> None:
    """Casebook 5 and its kind: it is whole, signed, quick, and nobody could read what it says."""
    box.trust.offer = offer_of(raw_release(box))
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.WRONG_DEVICE)
    assert "`raw`" in report.detail
    assert box.serving == "0"
    assert not any(call.startswith("trial") for call in box.live.calls)


def test_its_owner_may_sign_that_it_is_meant(box: Box) -> None:
    box.trust.offer = offer_of(msgspec.structs.replace(raw_release(box), other_task=True))
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


def test_other_classes_are_told_and_go_on(box: Box) -> None:
    """In the outbox, in the status and in the log; a rollout may well mean them."""
    bundle = played_bundle(
        box.publisher.folder / "v1",
        spec={"version": "1", "sidecars": ["weights.bin"]},
        files={"weights.bin": weights(1), "labels.txt": relabelled(box.factory)},
    )
    box.trust.offer = offer_of(box.publisher.release(1, bundle))
    narrator, said = Narrator(lambda _sha256: "tiny 1"), list[str]()
    narrator.follow(box.driver.snapshot(), 0)
    box.until_phase(Phase.PREFLIGHT)
    while box.record.phase is not Phase.TRIAL:
        box.step()
        said += narrator.follow(box.driver.snapshot(), box.clock.monotonic_ns())
    changes = box.driver.snapshot().changes
    assert changes.startswith("1 of its classes differ")
    assert f"update: attention, {changes}" in said
    assert box.until_result().result is Result.SUCCESS
    notices = [entry.notice for entry in box.outbox() if entry.notice is not None]
    assert [notice.cause for notice in notices] == [Cause.LABELS_CHANGED]
    assert "'other'" in notices[0].detail
    assert box.driver.snapshot().changes == ""


def relabelled(bundle: Path) -> bytes:
    lines = (bundle / "labels.txt").read_bytes().splitlines()
    return b"\n".join([b"other", *lines[1:]]) + b"\n"


def test_the_same_answers_are_no_news(box: Box) -> None:
    """Nor is a model without classes."""
    answers = read_answers(box.factory)
    assert class_change(answers, answers) == ""
    assert class_change(Answers("raw", ()), Answers("raw", ())) == ""
    assert "3 classes before, 4 now" in class_change(
        Answers("classify", ("a", "b", "c")), Answers("classify", ("a", "b", "c", "d"))
    )
