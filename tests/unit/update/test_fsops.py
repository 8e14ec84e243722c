"""The durable steps: their order, their errors, and the trace that sees them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from tests.crash.traces import FailAt, Recorder

from vedette import fsops
from vedette.fsops import DurableFile, FileLostError, Kind, Operation, Point, traced

if TYPE_CHECKING:
    from pathlib import Path


def kinds(recorder: Recorder) -> list[str]:
    """The steps that were seen, by name."""
    return [step.kind.value for step in recorder.steps]


def test_a_file_is_replaced_in_the_order_that_survives(tmp_path: Path) -> None:
    """Casebook 35: data, sync, rename, sync of the folder; the name comes last."""
    recorder = Recorder(tmp_path)
    with traced(recorder):
        fsops.write_durable(tmp_path / "state", b"new", Point.RECORD, size_bytes=8)
    assert kinds(recorder) == ["create", "write", "sync", "rename", "sync-folder"]
    assert [step.path for step in recorder.steps][-2:] == [".state.tmp", "."]
    assert (tmp_path / "state").read_bytes() == b"new\0\0\0\0\0"


@pytest.mark.parametrize("step", range(4))
def test_a_disk_that_fails_leaves_the_old_file_and_no_leftover(tmp_path: Path, step: int) -> None:
    """Casebook 36: whichever step the error comes at."""
    (tmp_path / "state").write_bytes(b"old")
    with traced(FailAt(step, errno.EIO)), pytest.raises(OSError, match="Input/output"):
        fsops.write_durable(tmp_path / "state", b"new", Point.RECORD)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").read_bytes() == b"old"


def test_a_failed_sync_says_that_the_file_is_lost(tmp_path: Path) -> None:
    """A second fsync would succeed and lie, so the error has a type of its own, and keeps its errno."""
    with DurableFile.create(tmp_path / "a", Point.OUTPUT) as file:
        file.write_at(b"x", 0)
        with traced(FailAt(0, errno.EIO)), pytest.raises(FileLostError) as caught:
            file.sync()
    assert caught.value.errno == errno.EIO
    with traced(FailAt(0, errno.EIO)), pytest.raises(FileLostError):
        fsops.sync_folder(tmp_path, Point.OUTPUT)


def test_a_leftover_or_a_link_at_the_temporary_name_is_thrown_away(tmp_path: Path) -> None:
    """What a link there points to is not written to."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    fsops.temporary_path(tmp_path / "state").symlink_to(victim)
    fsops.write_durable(tmp_path / "state", b"new", Point.RECORD)
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "state").is_symlink()


def test_a_write_that_the_kernel_cuts_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pwrite` may take less than it was given; when it takes nothing, that is a full disk."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, content, offset: whole(fd, content[:3], offset))
    with DurableFile.create(tmp_path / "a", Point.OUTPUT) as file:
        file.write_at(b"0123456789", 2)
        assert (tmp_path / "a").read_bytes() == b"\0\x000123456789"
        monkeypatch.setattr(os, "pwrite", lambda *_arguments: 0)
        with pytest.raises(OSError, match="nothing was written"):
            file.write_at(b"x", 0)


def test_nothing_is_built_for_a_trace_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a trace no step is described and no data copied."""

    def refuse(*_arguments: object, **_named: object) -> Operation:
        raise AssertionError("described")

    monkeypatch.setattr(fsops, "Operation", refuse)
    fsops.make_folder(tmp_path / "a", Point.STAGE)
    fsops.write_durable(tmp_path / "a" / "b", b"x", Point.RECORD)
    with DurableFile.open(tmp_path / "a" / "b", Point.RECORD) as file:
        file.truncate(0)
        file.allocate(4096)
        file.sync(data_only=True)
    fsops.remove_tree(tmp_path / "a", Point.STAGE)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_there_is_made_durable_all_the_same(tmp_path: Path) -> None:
    """A process that was killed after mkdir left a name that only the cache knows."""
    (tmp_path / "a").mkdir()
    recorder = Recorder(tmp_path)
    with traced(recorder):
        fsops.make_folder(tmp_path / "a", Point.STAGE)
    assert kinds(recorder) == ["sync-folder"]


def test_removing_a_tree_follows_no_link(tmp_path: Path) -> None:
    """A link inside is unlinked, what it points to stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "link").symlink_to(outside)
    (tmp_path / "way in").symlink_to(outside)
    recorder = Recorder(tmp_path)
    with traced(recorder):
        fsops.remove_tree(tree, Point.COLLECT)
        fsops.remove_tree(tmp_path / "way in", Point.COLLECT)
        fsops.remove_tree(tmp_path / "absent", Point.COLLECT)
    assert (outside / "kept").read_bytes() == b"x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert [step.kind for step in recorder.steps].count(Kind.REMOVE_FOLDER) == 2
