"""People are shown names, also of releases whose files are gone, and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.update.box import Behaviour, Box

from vedette.cli.status import update_rows
from vedette.runtime.release_names import ReleaseNames
from vedette.update.causes import Result

if TYPE_CHECKING:
    from pathlib import Path


def test_names_of_what_failed_outlive_its_files_and_the_process(tmp_path: Path) -> None:
    box = Box(tmp_path).start()
    for version in (1, 2):
        box.behaviours[str(version)] = Behaviour(p95_ms=80.0)
        box.offer(version)
        assert box.look_until_result().result is Result.FAILED_ROLLED_BACK
    assert box.stored() == set()
    box.restart().until_serving()
    status = box.driver.snapshot()
    names = ReleaseNames(box.opened).of_all(status)
    assert sorted(names.values()) == ["tiny 0", "tiny 1", "tiny 2"]
    shown = "\n".join(update_rows(status, names))
    assert "tiny 1 (latency_p95)" in shown
    assert "…" not in shown.replace(f"{box.opened.factory_sha256[:12]}…", "")


def test_the_screen_says_why_a_fetch_waits_and_when_it_goes_on(tmp_path: Path) -> None:
    """Text for people; the same stands in the JSON."""
    box = Box(tmp_path).start()
    manifest = box.offer(1)
    box.away("https://models.example/blobs/ab: HTTP 503")
    box.until(lambda: box.record.fetch_rounds >= 4)
    shown = list(update_rows(box.driver.snapshot(), {manifest.bundle_sha256: "tiny 1"}))
    assert "cause      connectivity_lost: https://models.example/blobs/ab: HTTP 503" in shown
    assert any(row.startswith("next try   in ") for row in shown)
    assert any(row.startswith("fetched    0 bytes of ") for row in shown)
