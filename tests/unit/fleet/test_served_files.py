"""Which files anybody may read, and that a file which cannot be opened now is not called absent."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from vedette.clock import SystemClock
from vedette_fleet.http_files import FileServer
from vedette_fleet.served_files import open_below
from vedette_fleet.served_names import may_be_served

if TYPE_CHECKING:
    from pathlib import Path

PARTS = st.sampled_from(["..", ".", "", "a", "metadata", ".x", "b\\c", "d\ne", "staged"])


@given(st.lists(PARTS, max_size=5).map("/".join))
def test_a_served_name_stays_below_its_folder_and_hides_nothing(name: str) -> None:
    if not may_be_served(name, ("metadata",)):
        return
    assert name.startswith("metadata/")
    assert os.path.normpath(name) == name
    assert not any(part.startswith(".") for part in name.split("/"))


@pytest.mark.parametrize("name", ["metadata/1.json", "metadata/a/b/c"])
def test_plain_names_are_served(name: str) -> None:
    assert may_be_served(name, ("metadata",))
    assert not may_be_served(name, ("blobs",))


@pytest.mark.parametrize("name", ["none", "none/none", "file/below", "x" * 300, "nul\0", "folder", "link"])
def test_what_is_no_plain_file_is_absent(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert open_below(tmp_path, name) is None


def test_a_want_of_descriptors_is_an_error_and_over_http_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device takes 404 for an answer, and gives a blob up."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "a").write_bytes(b"a")
    opened = os.open

    def no_descriptors(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            raise OSError(24, "Too many open files")
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", no_descriptors)
    with pytest.raises(OSError, match="Too many open files"):
        open_below(tmp_path, "blobs/a")
    with FileServer(("127.0.0.1", 0), tmp_path, clock=SystemClock(), log=lambda _line: None) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert requests.get(f"{server.url}/blobs/a", timeout=5).status_code == 503
            monkeypatch.undo()
            assert requests.get(f"{server.url}/blobs/a", timeout=5).status_code == 200
        finally:
            server.shutdown()
            thread.join(5.0)
