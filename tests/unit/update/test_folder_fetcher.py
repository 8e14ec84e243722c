"""A stick that somebody plugged in: nothing outside of it is read, and nothing that blocks is opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from vedette.errors import NotFoundError, UnavailableError
from vedette.update.folder import FolderFetcher

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    folder = tmp_path / "stick"
    (folder / "blobs").mkdir(parents=True)
    (folder / "metadata").mkdir()
    return folder


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "metadata/../../secret", "metadata//x", "", "a\0b", "x" * 300]
)
def test_paths_that_leave_the_stick(stick: Path, path: str) -> None:
    with pytest.raises(NotFoundError):
        list(FolderFetcher(stick).metadata(path, 100))


def test_links_are_not_followed(stick: Path, tmp_path: Path) -> None:
    (stick / "metadata" / "timestamp.json").symlink_to(tmp_path / "secret")
    (stick / "targets").symlink_to(tmp_path)
    for path in ("metadata/timestamp.json", "targets/secret"):
        with pytest.raises(NotFoundError, match="link"):
            list(FolderFetcher(stick).metadata(path, 100))


def test_a_fifo_is_not_waited_for(stick: Path) -> None:
    os.mkfifo(stick / "metadata" / "timestamp.json")
    with pytest.raises(NotFoundError, match="no plain file"):
        list(FolderFetcher(stick).metadata("metadata/timestamp.json", 100))


def test_a_blob_that_was_copied_in_part(stick: Path) -> None:
    (stick / "blobs" / "abc").write_bytes(b"x" * 100)
    pieces = FolderFetcher(stick).blob("abc", 50, 200)
    assert next(pieces) == b"x" * 50
    with pytest.raises(UnavailableError, match="ends at byte 100 of 200"):
        next(pieces)


def test_the_stick_is_gone(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        list(FolderFetcher(tmp_path / "unplugged").metadata("metadata/timestamp.json", 100))
    assert caught.value.cure
