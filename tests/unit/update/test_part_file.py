"""A blob on its way: resumed, bounded, verified; what a bad disk and a bad sender do to it is told apart."""

from __future__ import annotations

import errno
import hashlib
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.traces import FailAt, Recorder

from vedette.errors import BadInputError, InternalError, StorageError, UnavailableError
from vedette.fsops import Kind, Point, traced
from vedette.update.part_file import PartFile

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 4096
BLOB = random.Random(35).randbytes(10 * BLOCK + 77)  # noqa: S311 - the same blob each time
SHA256 = hashlib.sha256(BLOB).hexdigest()


def part_of(folder: Path, sync_bytes: int = 4 * BLOCK) -> PartFile:
    """The part file of the blob."""
    return PartFile(folder, SHA256, len(BLOB), block_bytes=BLOCK, sync_bytes=sync_bytes)


def fetch(part: PartFile, start: int, end: int, piece_bytes: int = 1000) -> None:
    """Bytes as a server sends them, keeping to no border."""
    for offset in range(start, end, piece_bytes):
        part.write(offset, BLOB[offset : min(offset + piece_bytes, end)])


def test_a_blob_arrives_in_pieces_and_is_verified(tmp_path: Path) -> None:
    """From nothing to the signed hash; then nothing is left when it is removed."""
    with part_of(tmp_path) as part:
        assert part.missing() == [(0, len(BLOB))]
        fetch(part, 0, len(BLOB))
        assert part.verify().read_bytes() == BLOB
        part.remove()
    assert not any(tmp_path.iterdir())


def test_after_a_restart_at_most_the_unsynced_is_fetched_again(tmp_path: Path) -> None:
    """Casebook 40: what was flushed counts, a block cut short does not."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 6 * BLOCK + 50)
        part.flush()
    with part_of(tmp_path) as part:
        assert part.missing() == [(6 * BLOCK, len(BLOB))]
        assert part.received_bytes == 6 * BLOCK
        fetch(part, 6 * BLOCK, len(BLOB))
        part.verify()


def test_data_is_on_the_disk_before_the_map_says_so_and_not_at_every_block(tmp_path: Path) -> None:
    """F1: blocks, a sync, then the map; with a sync for each `sync_bytes`, not for each block."""
    recorder = Recorder(tmp_path)
    with part_of(tmp_path) as part, traced(recorder):
        fetch(part, 0, 8 * BLOCK)
    seen = [(step.point, step.kind) for step in recorder.steps]
    block, data_sync = (Point.BLOCK, Kind.WRITE), (Point.BLOCK, Kind.SYNC)
    map_write, map_sync = (Point.MAP, Kind.WRITE), (Point.MAP, Kind.SYNC)
    assert seen == [*[block] * 4, data_sync, map_write, map_sync] * 2


def test_blocks_may_come_twice_and_in_any_order(tmp_path: Path) -> None:
    """As over MQTT: each is written once, and what is missing is said in ranges."""
    with part_of(tmp_path) as part:
        recorder = Recorder(tmp_path)
        with traced(recorder):
            for index in (7, 2, 7, 3, 2):
                part.write(index * BLOCK, BLOB[index * BLOCK : (index + 1) * BLOCK])
        assert [step.offset // BLOCK for step in recorder.steps if step.kind is Kind.WRITE] == [7, 2, 3]
        assert part.missing() == [(0, 2 * BLOCK), (4 * BLOCK, 7 * BLOCK), (8 * BLOCK, len(BLOB))]


def test_a_blob_may_be_thrown_away_and_begun_again(tmp_path: Path) -> None:
    """As when the server says that it changed."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 6 * BLOCK + 9)
        part.remove()
        part.open()
        assert part.missing() == [(0, len(BLOB))]
        fetch(part, 0, len(BLOB))
        part.verify()


def test_a_server_that_ignores_ranges_may_start_again_from_zero(tmp_path: Path) -> None:
    """What is there is skipped and never overwritten, be it another content now."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 4 * BLOCK)
        part.write(0, b"\0" * 4 * BLOCK)
        fetch(part, 4 * BLOCK, len(BLOB))
        part.verify()


def test_more_bytes_than_were_signed_are_refused(tmp_path: Path) -> None:
    """Nothing is written beyond the signed size, by nobody."""
    with part_of(tmp_path) as part:
        with pytest.raises(BadInputError, match=f"{len(BLOB)} are signed"):
            part.write(10 * BLOCK, bytes(78))
        with pytest.raises(BadInputError):
            part.write(-1, b"x")
        assert part.path.stat().st_size == len(BLOB)


def test_a_piece_that_continues_nothing_is_our_own_mistake(tmp_path: Path) -> None:
    """Runs begin at the start of a block."""
    with part_of(tmp_path) as part, pytest.raises(InternalError, match="continues no block"):
        part.write(100, b"x")


def test_another_content_than_signed_is_the_senders_fault(tmp_path: Path) -> None:
    """Same size, other bytes: fetching it again would give the same."""
    with part_of(tmp_path) as part:
        part.write(0, bytes(len(BLOB)))
        with pytest.raises(BadInputError, match="another SHA-256"):
            part.verify()


def test_blocks_that_the_disk_damaged_are_fetched_again_alone(tmp_path: Path) -> None:
    """A bit flips in a part file: one block of ten is missing again, over a restart too."""
    with part_of(tmp_path) as part:
        fetch(part, 0, len(BLOB))
        part.flush()
        with part.path.open("r+b") as file:
            file.seek(5 * BLOCK + 9)
            file.write(b"\0\0\0")
        with pytest.raises(UnavailableError, match="damaged 1 blocks"):
            part.verify()
    with part_of(tmp_path) as part:
        assert part.missing() == [(5 * BLOCK, 6 * BLOCK)]
        fetch(part, 5 * BLOCK, 6 * BLOCK)
        part.verify()


def test_the_last_incomplete_mib_is_read_back_at_a_restart(tmp_path: Path) -> None:
    """A disk that lies about syncs lost the newest block: it is missing, not believed."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 4 * BLOCK)
    with part.path.open("r+b") as file:
        file.seek(3 * BLOCK)
        file.write(bytes(BLOCK))
    with part_of(tmp_path) as part:
        assert part.missing() == [(3 * BLOCK, len(BLOB))]


@pytest.mark.parametrize("ruin", ["part", "map", "short", "zeros"])
def test_what_does_not_fit_together_begins_anew(tmp_path: Path, ruin: str) -> None:
    """Casebook 35: a part file or a map is gone, or is not what it was."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 4 * BLOCK)
    maps = sorted(tmp_path.glob("*.rec.*"))
    if ruin == "part":
        part.path.unlink()
    elif ruin == "map":
        for path in maps:
            path.unlink()
    elif ruin == "short":
        part.path.write_bytes(b"short")
    else:
        for path in maps:
            path.write_bytes(bytes(8192))
    with part_of(tmp_path) as part:
        assert part.missing() == [(0, len(BLOB))]
        fetch(part, 0, len(BLOB))
        part.verify()


def test_a_failed_sync_forgets_the_file(tmp_path: Path) -> None:
    """EIO: nothing of it is believed, it is deleted, and the next open begins anew."""
    with part_of(tmp_path) as part:
        fetch(part, 0, 5 * BLOCK)
        with traced(FailAt(0, errno.EIO)), pytest.raises(StorageError, match="fetched again"):
            part.flush()
        assert not part.path.exists()
    with part_of(tmp_path) as part:
        assert part.missing() == [(0, len(BLOB))]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, "no_space"), (errno.EDQUOT, "no_space"), (errno.EROFS, "io_error")]
)
def test_a_disk_without_room_is_named_before_a_byte_is_fetched(tmp_path: Path, code: int, kind: str) -> None:
    """Casebook 36: the whole blob's space is set aside first."""
    with traced(FailAt(0, code)), pytest.raises(StorageError) as caught, part_of(tmp_path):
        pytest.fail("opened")
    assert caught.value.kind == kind
    with part_of(tmp_path) as part:
        fetch(part, 0, len(BLOB))
        part.verify()


def test_an_empty_blob_is_complete_at_once(tmp_path: Path) -> None:
    """No block, no byte, and still a hash."""
    with PartFile(tmp_path, hashlib.sha256(b"").hexdigest(), 0) as part:
        assert part.missing() == []
        assert part.verify().read_bytes() == b""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 4), st.integers(1, 9000)), max_size=12))
def test_whatever_comes_what_is_not_missing_is_right(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int]]
) -> None:
    """Runs of any blocks in pieces of any size, with a restart in the middle."""
    folder = tmp_path_factory.mktemp("part")
    for half in (runs[: len(runs) // 2], runs[len(runs) // 2 :]):
        with part_of(folder) as part:
            for first, blocks, piece_bytes in half:
                start = first * BLOCK
                fetch(part, start, min(start + blocks * BLOCK, len(BLOB)), piece_bytes)
            part.flush()
            content = bytearray(part.path.read_bytes())
            for start, end in part.missing():
                content[start:end] = BLOB[start:end]
            assert bytes(content) == BLOB
