"""Fault matrix: disks that fill up, fail and rot, patches that are damaged, states that a power cut left."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box
from tests.unit.update.test_driver_interrupted import FailingDisk

from vedette.fsops import Kind, Operation, Point, traced
from vedette.update.causes import Cause, Result
from vedette.update.phases import Phase
from vedette.wire.release import EncodingKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.wire.release import ReleaseManifest

HOUR_S = 3600.0
UNREADABLE = "/proc/self/mem"  # its first byte is mapped nowhere: the kernel answers EIO


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def weights_of(box: Box, sha256: str) -> Path:
    """The weights of a bundle in the store."""
    return box.opened.store.find(sha256).bundle / "weights.bin"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def rot(box: Box, manifest: ReleaseManifest) -> None:
    """A bit flips on the platter: neither times nor inode tell, the store thinks that it knows the file."""
    flip(weights_of(box, manifest.bundle_sha256))
    store = box.opened.store
    store._hashed[manifest.bundle_sha256] = store.find(manifest.bundle_sha256).stamps()


def full_of(box: Box, manifest: ReleaseManifest) -> str:
    return box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL).name


# A disk that refuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=["ENOSPC", "EDQUOT"])
@pytest.mark.parametrize(
    "point", [Point.BLOCK, Point.MAP, Point.OUTPUT, Point.META, Point.ADOPT], ids=lambda point: point.name
)
def test_enospc_and_edquot_the_check_of_the_plan_lied(box: Box, point: Point, code: int) -> None:
    """Fault matrix: ENOSPC / EDQUOT, at each kind of write. Nothing changes, own remains go, it is reported.

    Casebook 36: it is tried again only when there is space.
    """
    box.offer(1)
    disk = FailingDisk(point, code=code)
    with traced(disk):
        report = box.until_result()
        assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.NO_SPACE)
        assert box.staged() == []
        assert box.stored() == set()
        assert box.results() == [report]
        assert box.serving == "0"
        box.space.free = box.record.space_wanted_bytes - 1
        requests = len(box.fetcher.requests)
        box.look()
        assert len(box.fetcher.requests) == requests
    box.space.free = 1 << 30
    assert box.look_until_result().result is Result.SUCCESS


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS], ids=["EIO", "EROFS"])
@pytest.mark.parametrize("point", [Point.BLOCK, Point.OUTPUT, Point.ADOPT], ids=lambda point: point.name)
def test_eio_and_erofs_of_a_write_change_nothing_and_do_not_spin(box: Box, point: Point, code: int) -> None:
    """Fault matrix: EIO write, EROFS. A few tries an offer, then it waits for another document."""
    box.offer(1)
    with traced(FailingDisk(point, code=code)):
        report = box.until_result()
        assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.IO_ERROR)
        assert box.serving == "0"
        for _ in range(6):
            box.look()
        assert len(box.results()) <= 3
        asked = len(box.fetcher.requests)
        box.look().look()
        assert len(box.fetcher.requests) == asked
    box.offer(1, counter=9)
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "1"


class FailingSync:
    """The n-th sync of a point fails with EIO, once."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self.failed = 0

    def before(self, operation: Operation) -> None:
        if operation.kind is Kind.SYNC and operation.point is self._point and not self.failed:
            self.failed += 1
            raise OSError(errno.EIO, "sync failed", operation.path)


@pytest.mark.parametrize("point", [Point.BLOCK, Point.OUTPUT, Point.ADOPT], ids=lambda point: point.name)
def test_eio_of_a_sync_is_not_asked_twice(box: Box, point: Point) -> None:
    """Fault matrix: EIO fsync. The file counts as lost: what was in it is made or fetched again."""
    box.offer(1)
    disk = FailingSync(point)
    with traced(disk):
        report = box.until_result()
        if report.result is not Result.SUCCESS:
            assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.IO_ERROR)
            assert box.serving == "0"
            assert box.look_until_result().result is Result.SUCCESS
    assert disk.failed == 1
    assert box.serving == "1"


def test_eio_of_the_base_takes_the_full_encoding_instead_of_the_delta(box: Box) -> None:
    """Fault matrix: EIO read(base). The same cycle ends with success."""
    first = box.offer(1)
    box.until_result()
    path = weights_of(box, first.bundle_sha256)
    second = box.offer(2, base=box.publisher.folder / "v1")
    box.until_phase(Phase.VERIFY_PATCH)
    path.unlink()
    path.symlink_to(UNREADABLE)
    report = box.until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "2")
    assert full_of(box, second) in box.fetcher.requests
    assert [result.counter for result in box.results()] == [1, 2]


# Content that is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["truncated", "bit flip", "oversize"])
def test_a_patch_that_is_not_what_was_signed_is_never_decoded(box: Box, damage: str) -> None:
    """Fault matrix: truncated / bit-flipped / oversize patch."""
    manifest = box.offer(1, base=box.factory)
    patch = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.DELTA)
    right = patch.read_bytes()
    if damage == "bit flip":
        flip(patch)
    else:
        patch.write_bytes(right[:-7] if damage == "truncated" else right + b"more than was signed" * 9999)
    report = box.until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "1")
    assert (full_of(box, manifest) in box.fetcher.requests) == (damage != "oversize")
    assert box.fetcher.fetched_bytes <= 2 * sum(
        max(encoding.size_bytes for encoding in file.encodings) for file in manifest.files
    )


@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.VERIFY_PATCH, Phase.APPLY])
@pytest.mark.parametrize("change", ["bit flip", "other length", "gone"])
def test_base_changed_after_plan_falls_back_to_full_in_the_same_cycle(
    box: Box, phase: Phase, change: str
) -> None:
    """Fault matrix: base changed after PLAN, bit flip of base. Casebook 38."""
    first = box.offer(1)
    box.until_result()
    second = box.offer(2, base=box.publisher.folder / "v1")
    box.until_phase(phase)
    path = weights_of(box, first.bundle_sha256)
    if change == "bit flip":
        flip(path)
    elif change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"tail")
    report = box.until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "2")
    assert full_of(box, second) in box.fetcher.requests
    assert [result.counter for result in box.results()] == [1, 2]


@pytest.mark.parametrize(
    ("phase", "result"),
    [
        (Phase.PREFLIGHT, Result.FAILED_NO_CHANGE),
        (Phase.READY, Result.FAILED_ROLLED_BACK),
        (Phase.SWITCH, Result.FAILED_ROLLED_BACK),
    ],
    ids=lambda value: value.value,
)
def test_bit_flip_of_the_store_after_verify_is_never_served(box: Box, phase: Phase, result: Result) -> None:
    """Fault matrix: bit flip of store after verify, of a candidate. Its stamps still look right."""
    manifest = box.offer(1)
    box.until_phase(phase)
    rot(box, manifest)
    report = box.until_result()
    assert report.result is result
    assert report.cause in {Cause.HASH_MISMATCH, Cause.LOAD_FAIL}
    assert not any(call.startswith("trial") for call in box.live.calls)
    assert box.serving == "0"
    box.offer(1, counter=5, rollout="once more")
    assert box.look_until_result().result is Result.SUCCESS


def test_bit_flip_of_the_model_that_serves_is_found_at_the_next_start(box: Box) -> None:
    """Fault matrix: bit flip of store after verify, at load: a new process hashes before it serves."""
    first = box.offer(1)
    box.until_result()
    second = box.offer(2)
    box.until_result()
    rot(box, second)
    assert box.serving == "2"
    box.trust.offer = None
    box.restart().until_looked()
    assert box.serving == "1"
    assert box.record.active is not None
    assert box.record.active.sha256 == first.bundle_sha256
    notices = [entry.notice for entry in box.outbox() if entry.notice]
    assert any("not what was signed" in notice.detail for notice in notices)


# The way back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotten", [("2",), ("2", "1"), ("2", "1", "factory")], ids="+".join)
def test_previous_model_also_broken_leads_down_the_ladder(
    box: Box, tmp_path: Path, rotten: tuple[str, ...]
) -> None:
    """Fault matrix: previous model also broken → older CONFIRMED → factory → SAFE, and out of it again."""
    releases = {}
    for version in (1, 2):
        releases[str(version)] = box.offer(version)
        box.until_result()
    box.behaviours["3"] = Behaviour(failed=0.5)
    box.offer(3)
    box.until_phase(Phase.TRIAL)
    for name in rotten:
        if name == "factory":
            flip(tmp_path / "factory" / "weights.bin")
        else:
            flip(weights_of(box, releases[name].bundle_sha256))
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_UNABLE_TO_ROLLBACK, Cause.ERROR_RATE)
    if len(rotten) == 3:
        assert box.record.phase is Phase.SAFE
        assert box.driver.snapshot().trouble == "no model is good; an update may bring one"
        assert report.serving == ""
    else:
        assert box.serving == {1: "1", 2: "0"}[len(rotten)]
    box.offer(4)
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "4"


# What a power cut left ------------------------------------------------------------------------------------


def _empty_manifest(box: Box, active: Path) -> None:
    del box
    (active / "META.json").write_bytes(b"")


def _record_of_zeros(box: Box, active: Path) -> None:
    del active
    for path in (box.root / "state").glob("tiny.rec.?"):
        path.write_bytes(bytes(path.stat().st_size))


def _most_of_a_model(box: Box, active: Path) -> None:
    del box
    path = active / "bundle" / "weights.bin"
    path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)])


def _no_folder(box: Box, active: Path) -> None:
    del box
    shutil.rmtree(active)


def _leftovers(box: Box, active: Path) -> None:
    for path in (
        active / ".CONFIRMED.tmp",
        box.root / "state" / "outbox" / ".00000009.json.tmp",
        box.root / "staging" / "0.9-abc-1" / "x.part",
        box.root / "store" / ".dead-0123" / "META.json",
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0" * 100)


@pytest.mark.parametrize(
    ("prepare", "serves"),
    [
        (_empty_manifest, "1"),
        (_record_of_zeros, "2"),
        (_most_of_a_model, "1"),
        (_no_folder, "1"),
        (_leftovers, "2"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_half_written_files_after_power_loss_are_survived(
    box: Box, prepare: Callable[[Box, Path], None], serves: str
) -> None:
    """Casebook 35: NUL-filled state, empty manifest, 60 % of a model, leftovers, a pointer to nothing."""
    for version in (1, 2):
        box.offer(version)
        box.until_result()
    assert box.record.active is not None
    active = box.root / "store" / box.record.active.sha256
    box.trust.offer = None
    box.driver.close()
    prepare(box, active)
    for _ in range(2):
        box.start().until_looked()
        assert box.serving == serves
        assert serves in box.stored(), "what serves was thrown away"
        box.driver.close()
    left = [path.name for path in box.root.rglob("*") if path.name.endswith((".tmp", ".part", "dead-0123"))]
    assert left == []
    box.start()
    box.offer(3)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "3"


# Reports --------------------------------------------------------------------------------------------------


def test_report_cannot_be_sent_for_7_days(box: Box) -> None:
    """Fault matrix: the outbox is bounded; the new model serves, nothing is rolled back, order is kept."""
    box.offer(1)
    box.until_result()
    box.parts.outbox._max_bytes = 700  # room for one result
    box.offer(2)
    box.until(lambda: box.serving == "2" and box.record.phase is Phase.REPORT)
    for _ in range(7 * 24):
        box.clock.advance_s(HOUR_S)
        box.step()
        box.step()
    assert (box.record.phase, box.serving) == (Phase.REPORT, "2")
    assert [report.counter for report in box.results()] == [1]
    box.restart()
    box.parts.outbox._max_bytes = 700
    box.until(lambda: box.serving == "2")
    assert box.record.active is not None
    assert box.record.active.counter == 2
    box.parts.outbox.acknowledge(box.outbox()[0])
    box.until(lambda: box.idle)
    assert [report.counter for report in box.results()] == [2]
    assert {report.result for report in box.results()} == {Result.SUCCESS}
