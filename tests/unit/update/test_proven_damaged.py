"""A proven model that is damaged gives way to the next best one, and to no other, whatever the damage."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box

from vedette.errors import UnavailableError
from vedette.update.causes import Result
from vedette.update.entry import BUNDLE_NAME, META_NAME
from vedette.update.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def flip(entry: Path) -> None:
    weights = entry / BUNDLE_NAME / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 3] ^= 4
    weights.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit flips": flip,
    "cut short": lambda entry: (entry / BUNDLE_NAME / "weights.bin").write_bytes(b""),
    "a file is missing": lambda entry: (entry / BUNDLE_NAME / "labels.txt").unlink(),
    "a file too many": lambda entry: (entry / BUNDLE_NAME / "more").touch(),
    "manifest torn": lambda entry: (entry / META_NAME).write_bytes(b"{"),
    "manifest of zeros": lambda entry: (entry / META_NAME).write_bytes(bytes(4096)),
    "gone": shutil.rmtree,
}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Release 2 serves, release 1 did before it."""
    box = Box(tmp_path).start()
    for version in (1, 2):
        box.offer(version)
        assert box.look_until_result().result is Result.SUCCESS
    box.trust.offer = None
    return box


def entry_of(box: Box, version: int) -> Path:
    entries = box.opened.store.scan()[0]
    return next(entry.folder for entry in entries if entry.manifest.version == str(version))


def settled(box: Box) -> str:
    """What serves once everything that begins by itself is over, half an hour later."""
    end_ns = box.clock.monotonic_ns() + round(1800e9)
    box.until(lambda: box.clock.monotonic_ns() >= end_ns)
    return box.serving


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_model_gives_way_to_the_one_before_it(box: Box, damage: Callable[[Path], object]) -> None:
    """Found at a start, where nothing serves yet for some looks; and said once."""
    damage(entry_of(box, 2))
    box.restart()
    assert settled(box) == "1"
    assert box.record.active is not None
    assert box.record.active.counter == 1
    said = [entry.notice.detail for entry in box.outbox() if entry.notice is not None]
    assert len([detail for detail in said if "proven model" in detail]) == 1


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_while_it_serves_is_found_when_it_dies(box: Box, damage: Callable[[Path], object]) -> None:
    damage(entry_of(box, 2))
    box.live.dead = True
    assert settled(box) == "1"


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_the_ladder_has_an_order_down_to_nothing(box: Box, damage: Callable[[Path], object]) -> None:
    """Active, the one before, the factory's, none: and an update still gets in from there."""
    damage(entry_of(box, 2))
    damage(entry_of(box, 1))
    box.restart()
    assert settled(box) == "0"
    (box.factory / "weights.bin").write_bytes(b"")
    box.restart()
    assert settled(box) == ""
    assert box.record.phase is Phase.SAFE
    box.offer(3)
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "3"


def test_a_rollback_to_a_damaged_model_goes_to_the_one_before_that(box: Box) -> None:
    """The candidate is bad, the model of before rotted meanwhile."""
    box.behaviours["3"] = Behaviour(p95_ms=80.0)
    box.offer(3)
    box.driver.announce()
    box.until_phase(Phase.TRIAL)
    flip(entry_of(box, 2))
    report = box.until_result()
    assert report.result is Result.FAILED_UNABLE_TO_ROLLBACK
    assert box.serving == "1"


def test_a_model_that_does_not_load_gives_way_as_well(box: Box) -> None:
    """Its files are what was signed, and the engine refuses it."""
    box.behaviours["2"] = Behaviour(dies="load_fail: no such operator")
    box.restart()
    assert settled(box) == "1"


@pytest.mark.parametrize("how", ["gone", "zeros"])
def test_a_lost_record_keeps_the_model_before_as_well(box: Box, how: str) -> None:
    """Casebook 35: whatever the network does. The store is as it was, after another start and an update."""
    box.driver.close()
    for path in (box.root / "state").glob("tiny.rec.?"):
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(bytes(path.stat().st_size))
    box.trust.error = UnavailableError("no network")
    for _ in range(2):
        box.start().until_serving()
        assert settled(box) == "2"
        assert box.stored() == {"1", "2"}
        assert box.record.previous is not None
        assert box.record.previous.counter == 1
        assert box.record.release_floor == 2
        box.driver.close()
    box.trust.error = None
    box.start()
    box.offer(3)
    assert box.until_result().result is Result.SUCCESS
    assert box.stored() == {"2", "3"}


def test_what_is_known_to_be_damaged_is_not_fallen_back_to(box: Box) -> None:
    """The model of before takes over; the rotten one is not remembered as the next best."""
    flip(entry_of(box, 2))
    box.restart()
    assert settled(box) == "1"
    assert box.record.previous is None
