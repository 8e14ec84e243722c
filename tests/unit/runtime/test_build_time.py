"""The time below which no clock is believed moves forward with the releases."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import vedette
from vedette.runtime.roads import BUILD_UTC_S

ROOT = Path(__file__).parents[3]
CURE = "set BUILD_UTC_S in agent/vedette/runtime/roads.py to midnight UTC of the day of the release"
BUILD = datetime.fromtimestamp(BUILD_UTC_S, timezone.utc)
MOST_BEHIND = timedelta(days=92)  # a quarter, also while nothing is released
_HEADING = re.compile(r"## (\d+\.\d+\.\d+) \((unreleased|\d{4}-\d\d-\d\d)\)")


def releases(changelog: str) -> list[tuple[str, datetime | None]]:
    """Version and day of each heading, newest first; None for what is not released."""
    headings = [line for line in changelog.splitlines() if line.startswith("## ")]
    found = []
    for heading in headings:
        matched = _HEADING.fullmatch(heading)
        assert matched is not None, f"{heading!r} names no version and day, as `## 1.2.3 (2026-12-31)` does"
        version, day = matched.groups()
        dated = None if day == "unreleased" else datetime.fromisoformat(f"{day}T00:00:00+00:00")
        found.append((version, dated))
    return found


def is_behind(build: datetime, changelog: str) -> bool:
    """Whether something was released after the build time."""
    return any(day is not None and day > build for _version, day in releases(changelog))


def test_the_build_time_is_that_of_the_newest_release_or_later() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = releases(changelog)
    assert found[0][0] == vedette.__version__
    assert all(day is not None for _version, day in found[1:]), "only the newest may be unreleased"
    assert not is_behind(BUILD, changelog), CURE


def test_a_release_with_an_old_build_time_is_seen() -> None:
    """The rule itself, since nothing is released yet."""
    tomorrow = f"{BUILD + timedelta(days=1):%Y-%m-%d}"
    assert is_behind(BUILD, f"# Changelog\n\n## 9.0.0 ({tomorrow})\n\n## 8.0.0 (2020-01-01)\n")
    assert not is_behind(BUILD, f"## 9.0.0 (unreleased)\n\n## 8.0.0 ({BUILD:%Y-%m-%d})\n")
    with pytest.raises(AssertionError, match="names no version and day"):
        is_behind(BUILD, "## The next one\n")


def test_the_build_time_is_near_the_newest_commit_and_not_in_the_future() -> None:
    """A floor in the future would refuse good metadata on every box with a right clock."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no clone: releases alone tell")
    done = subprocess.run(
        [git, "-C", str(ROOT), "log", "-1", "--format=%ct"],
        check=False,
        capture_output=True,
        text=True,
        timeout=10,
    )
    if not done.stdout.strip():
        pytest.skip(f"git cannot tell: {done.stderr.strip()}")
    committed = datetime.fromtimestamp(int(done.stdout), timezone.utc)
    assert max(committed, datetime.now(timezone.utc)) >= BUILD
    assert committed - BUILD < MOST_BEHIND, CURE
