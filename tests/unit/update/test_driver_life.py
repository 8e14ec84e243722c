"""The life of an update on a whole box: real files and codecs, a data plane that plays its part."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box, offer_of

from vedette.errors import UnavailableError
from vedette.update.causes import Cause, Result
from vedette.update.phases import Phase
from vedette.wire.release import EncodingKind
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def test_a_new_box_serves_the_factory_s_model(box: Box) -> None:
    """And looks within a minute, without being told."""
    box.until_looked()
    assert box.serving == "0"
    assert box.record.phase is Phase.IDLE
    assert box.clock.monotonic_ns() < 60e9


def test_a_delta_is_fetched_applied_tried_and_confirmed(box: Box) -> None:
    """The happy path moves a fraction of the bytes, and says so once."""
    manifest = box.offer(1, base=box.factory)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.SUCCESS, None)
    assert box.serving == "1"
    assert box.record.active is not None
    assert box.record.active.sha256 == manifest.bundle_sha256
    full_bytes = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL).stat().st_size
    assert report.bytes_fetched == box.fetcher.fetched_bytes < full_bytes / 10
    assert box.results() == [report]
    assert box.staged() == []
    assert box.stored() == {"1"}
    assert box.opened.store.find(manifest.bundle_sha256).confirmed_order == 1


def test_without_a_base_the_full_encoding_is_fetched(box: Box) -> None:
    """A release without a delta for this box; what the box has already is copied, not fetched."""
    manifest = box.offer(1)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"
    labels = box.publisher.blob_of(manifest, "labels.txt", EncodingKind.FULL).name
    assert labels not in box.fetcher.requests


def test_updates_follow_each_other_and_the_store_stays_small(box: Box) -> None:
    """Active and previous are kept, and nothing else (I9); floors only rise (I3)."""
    for version in (1, 2, 3):
        box.offer(version, base=None if version == 1 else box.publisher.folder / f"v{version - 1}")
        assert box.until_result().result is Result.SUCCESS
        assert box.serving == str(version)
        assert box.record.release_floor == version
    assert box.stored() == {"2", "3"}
    assert [report.counter for report in box.results()] == [1, 2, 3]


def test_a_changed_base_is_noticed_and_the_full_encoding_taken_in_the_same_cycle(box: Box) -> None:
    """Casebook 38: one byte of the base flipped on the disk; chosen by content, not by name."""
    first = box.offer(1)
    box.until_result()
    weights = box.opened.store.find(first.bundle_sha256).bundle / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)
    second = box.offer(2, base=box.publisher.folder / "v1")
    report = box.until_result()
    assert report.result is Result.SUCCESS
    assert box.publisher.blob_of(second, "weights.bin", EncodingKind.FULL).name in box.fetcher.requests
    assert [result.counter for result in box.results()] == [1, 2]


def test_a_delta_for_another_version_is_not_even_fetched(box: Box) -> None:
    """Casebook 38: a delta from 1 while the box has 0."""
    box.publisher.bundle(1)
    second = box.offer(2, base=box.publisher.folder / "v1")
    assert box.until_result().result is Result.SUCCESS
    assert box.publisher.blob_of(second, "weights.bin", EncodingKind.DELTA).name not in box.fetcher.requests


def test_a_damaged_patch_is_caught_before_it_is_decoded(box: Box) -> None:
    """Casebook 38: its hash is wrong, so the full encoding comes in the same cycle."""
    manifest = box.offer(1, base=box.factory)
    patch = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.DELTA)
    content = bytearray(patch.read_bytes())
    content[len(content) // 2] ^= 1
    patch.write_bytes(content)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"
    assert box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL).name in box.fetcher.requests


def test_a_good_delta_with_a_wrong_result_is_caught(box: Box) -> None:
    """Casebook 38: the patch is what was signed, what it makes is not."""
    box.publisher.bundle(1)
    wrong = box.publisher.bundle(7)
    manifest = box.publisher.swap_delta(box.offer(1, base=box.factory), box.factory, wrong)
    box.trust.offer = offer_of(manifest)
    report = box.until_result()
    assert report.result is Result.SUCCESS
    assert box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL).name in box.fetcher.requests


def test_a_missing_full_encoding_is_one_clear_failure(box: Box) -> None:
    """Casebook 38: 404; the box goes on with what it has. A few more looks ask again, then it rests."""
    manifest = box.offer(1)
    box.gone(box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL).name)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.BLOB_MISSING)
    assert box.serving == "0"
    box.look().look()
    asked = len(box.fetcher.requests)
    box.look().restart().until_looked()
    assert len(box.fetcher.requests) == asked
    assert len(box.results()) == 3


def test_a_link_that_breaks_every_few_kilobytes_gets_there(box: Box) -> None:
    """Casebook 40: what came is kept; the total is near the size."""
    manifest = box.offer(1)
    blob = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL)
    broken = iter(range(1000))

    def fail(_sha256: str, offset: int) -> None:
        if offset and next(broken) < 3:
            raise UnavailableError("connection reset")

    box.fetcher.fail = fail
    assert box.until_result().result is Result.SUCCESS
    assert box.fetcher.fetched_bytes < 2 * sum(
        min(encoding.size_bytes for encoding in file.encodings) for file in manifest.files
    )
    assert blob.stat().st_size > 30000


def test_a_server_that_is_away_is_waited_for_longer_and_longer(box: Box) -> None:
    """Then the update ends, for a cause that allows another try."""
    box.offer(1)
    times: list[int] = []

    def fail(_sha256: str, _offset: int) -> None:
        times.append(box.clock.monotonic_ns())
        raise UnavailableError("503")

    box.fetcher.fail = fail
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.CONNECTIVITY_LOST)
    assert max(later - before for before, later in pairwise(times)) >= 3600e9
    box.fetcher.fail = lambda _sha256, _offset: None
    assert box.until_result().result is Result.SUCCESS


@pytest.mark.parametrize(
    ("play", "cause"),
    [({"load_fail": "bundle"}, Cause.LOAD_FAIL), ({"answer": "nan"}, Cause.PREFLIGHT_GOLDEN)],
)
def test_a_model_that_does_not_load_never_answers_and_is_never_tried_again(
    box: Box, play: dict[str, str], cause: Cause
) -> None:
    """Casebook 37: remembered over restarts, reported once, and the next release installs."""
    box.offer(1, play=play)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, cause)
    assert box.serving == "0"
    assert not any(call.startswith("trial") for call in box.live.calls)
    fetched = box.fetcher.fetched_bytes
    for _ in range(3):
        box.restart().until_looked()
    box.offer(1, counter=9)
    box.look()
    assert box.fetcher.fetched_bytes == fetched
    assert len(box.results()) == 1
    box.offer(2, counter=10)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "2"


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        (Behaviour(p95_ms=30.0), Cause.LATENCY_P95),
        (Behaviour(failed=0.2), Cause.ERROR_RATE),
        (Behaviour(constant=True), Cause.OUTPUT_DRIFT),
        (Behaviour(dies="load_fail: no such operator"), Cause.LOAD_FAIL),
        (Behaviour(dies="worker_crashed: killed by SIGSEGV", dies_after_s=20.0), Cause.CRASH_LOOP),
        (Behaviour(dies="worker_hung: no sign of life", dies_after_s=20.0), Cause.WATCHDOG),
        (Behaviour(dies="worker_crashed: out of memory", dies_after_s=20.0), Cause.OOM),
        (Behaviour(frames=False), Cause.TRIAL_TIMEOUT),
        (Behaviour(leaks_per_s=1_000_000), Cause.OOM),
    ],
)
def test_a_bad_model_is_rolled_back_by_itself_and_never_tried_again(
    box: Box, behaviour: Behaviour, cause: Cause
) -> None:
    """Casebook 37: the verdict is on disk before the way back; final and truthful, reported once."""
    box.behaviours["1"] = behaviour
    manifest = box.offer(1)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, cause)
    assert box.serving == "0"
    assert box.record.blacklist[0].sha256 == manifest.bundle_sha256
    assert box.record.release_floor == 0
    trials = [call for call in box.live.calls if call.startswith("trial")]
    assert len(trials) <= 3
    for _ in range(3):
        box.restart().until_looked()
        assert box.serving == "0"
        assert not any(call.startswith("trial") for call in box.live.calls)
    assert len(box.results()) == 1
    box.offer(2, counter=10)
    assert box.until_result().result is Result.SUCCESS


def test_power_cuts_in_a_trial_count_as_tries(box: Box) -> None:
    """A candidate that takes the box down must not do so for ever."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    for left in (1, 0):
        box.restart().step()
        assert box.record.tries_left == left
        box.until_phase(Phase.TRIAL)
    report = box.restart().until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.CRASH_LOOP)
    assert box.serving == "0"


def test_a_restart_in_a_trial_serves_the_model_of_before_first(box: Box) -> None:
    """I4: an unconfirmed model is not what a box starts with."""
    box.offer(1)
    box.until_phase(Phase.TRIAL).restart()
    assert box.until_serving().serving == "0"
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


def test_a_shadow_comes_before_the_trial_and_its_disagreement_ends_it(box: Box) -> None:
    """It answers nobody, and its verdict counts like any other."""
    window = Window(30.0, 50, 600.0)
    box.offer(1, shadow=window, guards=Guards(disagreement=0.05))
    assert box.until_result().result is Result.SUCCESS
    shadows = [call for call in box.live.calls if call.startswith("shadow")]
    assert len(shadows) == 1
    box.behaviours["2"] = Behaviour(disagrees=0.3)
    box.offer(2, shadow=window, guards=Guards(disagreement=0.05))
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.DISAGREEMENT)
    assert box.serving == "1"


def test_a_release_under_a_false_label_is_refused(box: Box) -> None:
    """Casebook 37: the bundle says version 1, the release says 5."""
    bundle = box.publisher.bundle(1)
    manifest = box.publisher.release(5, bundle)
    box.trust.offer = offer_of(manifest)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.BAD_METADATA)
    assert "says that it is tiny 1" in report.detail
