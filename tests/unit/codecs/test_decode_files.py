"""The device's decoder: every codec gives the file, nothing else gives anything."""

from __future__ import annotations

import bz2
import struct
from typing import TYPE_CHECKING

import bsdiff4
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codecs import pairs

from vedette.delta.bsdiff import apply_steps, offtin, offtout
from vedette.errors import BadInputError
from vedette.update.codecs.decode import FileDecoder, hash_file, resume_tensor
from vedette.wire.release import Codec
from vedette_fleet.delta.encode import encode_delta, encode_full

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.update.ports import Decoder

OLD, NEW = pairs.STORIES["fine-tune int8"]


def decoded(folder: Path, codec: Codec, blob: bytes, old: bytes | None, size_bytes: int) -> bytes:
    """Through files, as the update machine does it."""
    decoder: Decoder = FileDecoder()
    (folder / "blob").write_bytes(blob)
    base = None
    if old is not None:
        base = folder / "base"
        base.write_bytes(old)
    decoder.decode(codec, folder / "blob", base, folder / "out", size_bytes=size_bytes)
    return (folder / "out").read_bytes()


@pytest.mark.parametrize("story", pairs.STORIES)
@pytest.mark.parametrize("codec", [Codec.BSDIFF4, Codec.TENSOR])
def test_a_delta_makes_the_new_file(tmp_path: Path, codec: Codec, story: str) -> None:
    old, new = pairs.STORIES[story]
    _, blob = encode_delta(old, new, codec.value)
    assert decoded(tmp_path, codec, blob, old, len(new)) == new


@pytest.mark.parametrize("new", [NEW, b"", bytes(300_000)], ids=["model", "empty", "zeros"])
def test_a_full_encoding_makes_the_file(tmp_path: Path, new: bytes) -> None:
    codec, blob = encode_full(new)
    assert decoded(tmp_path, codec, blob, None, len(new)) == new
    assert decoded(tmp_path, Codec.RAW, new, None, len(new)) == new


@pytest.mark.parametrize("codec", [Codec.RAW, Codec.ZSTD, Codec.BSDIFF4, Codec.TENSOR])
@pytest.mark.parametrize("off", [-1, 1])
def test_the_manifest_s_size_is_law(tmp_path: Path, codec: Codec, off: int) -> None:
    """A blob that would make a byte more or less is refused, and never writes more than was promised."""
    blob = {
        Codec.RAW: NEW,
        Codec.ZSTD: zstd.compress(NEW),
        Codec.BSDIFF4: bsdiff4.diff(OLD, NEW),
        Codec.TENSOR: encode_delta(OLD, NEW, "tensor")[1],
    }[codec]
    with pytest.raises(BadInputError):
        decoded(tmp_path, codec, blob, OLD, len(NEW) + off)
    assert (tmp_path / "out").stat().st_size == len(NEW) + off


@pytest.mark.parametrize("codec", [Codec.BSDIFF4, Codec.TENSOR])
def test_a_delta_without_its_base_asks_for_the_full_file(tmp_path: Path, codec: Codec) -> None:
    with pytest.raises(BadInputError) as caught:
        decoded(tmp_path, codec, b"", None, 10)
    assert "full" in caught.value.diagnostics()


def test_a_base_of_another_size_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Casebook 38: a delta from v3 while on v2."""
    _, blob = encode_delta(OLD, NEW, "tensor")
    with pytest.raises(BadInputError, match="made for a file of"):
        decoded(tmp_path, Codec.TENSOR, blob, OLD + b"x", len(NEW))


def test_work_that_was_cut_after_any_frame_goes_on_from_there(tmp_path: Path) -> None:
    """Casebook 35: the record of finished frames is all that has to survive."""

    class PowerCutError(Exception):
        pass

    _, blob = encode_delta(OLD, NEW, "tensor")
    patch, base, out = tmp_path / "patch", tmp_path / "base", tmp_path / "out"
    patch.write_bytes(blob)
    base.write_bytes(OLD)
    seen: list[int] = []
    resume_tensor(patch, base, out, size_bytes=len(NEW), done=lambda frames, _: seen.append(frames))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 3
    for cut in seen:

        def lose_power(frames: int, _: int, cut: int = cut) -> None:
            if frames == cut:
                raise PowerCutError

        with pytest.raises(PowerCutError):
            resume_tensor(patch, base, out, size_bytes=len(NEW), done=lose_power)
        later: list[int] = []

        def note(frames: int, _: int, later: list[int] = later) -> None:
            later.append(frames)

        resume_tensor(patch, base, out, size_bytes=len(NEW), start=cut, done=note)
        assert later == seen[cut:]
        assert out.read_bytes() == NEW


def test_a_start_beyond_the_last_frame_is_refused(tmp_path: Path) -> None:
    _, blob = encode_delta(OLD, NEW, "tensor")
    decoded(tmp_path, Codec.TENSOR, blob, OLD, len(NEW))
    with pytest.raises(BadInputError, match="frame 99"):
        resume_tensor(tmp_path / "blob", tmp_path / "base", tmp_path / "out", size_bytes=len(NEW), start=99)


def test_the_hash_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert hash_file(tmp_path / "x").startswith("ba7816bf8f01cfea")


@settings(max_examples=40, deadline=None)
@given(old=st.binary(max_size=3000), other=st.binary(max_size=3000), akin=st.booleans())
def test_bsdiff4_s_own_patches_are_applied_as_bsdiff4_does(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, other: bytes, *, akin: bool
) -> None:
    new = old[len(old) // 3 :] + other + old[: len(old) // 2] if akin else other
    folder = tmp_path_factory.mktemp("bsdiff4")
    assert decoded(folder, Codec.BSDIFF4, bsdiff4.diff(old, new), old, len(new)) == new


def bsdiff40(control: bytes, diff: bytes, extra: bytes, size_bytes: int) -> bytes:
    packed = [bz2.compress(stream) for stream in (control, diff, extra)]
    header = b"BSDIFF40" + offtout(len(packed[0])) + offtout(len(packed[1])) + offtout(size_bytes)
    return header + b"".join(packed)


def steps(*numbers: int) -> bytes:
    return b"".join(offtout(number) for number in numbers)


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "no BSDIFF40"),
        (b"BSDIFF40" + bytes(10), "no BSDIFF40"),
        (b"BSDIFF40" + offtout(-5) + offtout(0) + offtout(100), "do not fit"),
        (b"BSDIFF40" + offtout(1 << 60) + offtout(1 << 60) + offtout(100), "do not fit"),
        (b"BSDIFF40" + struct.pack("<QQQ", 0, 0, 1 << 40), "the manifest says"),
        (bsdiff40(steps(-1, 101, 0), b"", b"", 100), "more than the file"),
        (bsdiff40(steps(101, 0, 0), bytes(101), b"", 100), "more than the file"),
        (bsdiff40(steps(1 << 62, 1 << 62, 0), b"", b"", 100), "more than the file"),
        (bsdiff40(steps(0, 0, 1 << 62, 10, 90, 0), bytes(10), bytes(90), 100), "leaves the old file"),
        (bsdiff40(steps(0, 0, -(1 << 62), 10, 90, 0), bytes(10), bytes(90), 100), "leaves the old file"),
        (bsdiff40(steps(0, 0, 0) * 5000, b"", b"", 100), "make nothing"),
        (bsdiff40(steps(0, 100, 0), b"", bytes(99), 100), "ends early"),
        (bsdiff40(steps(0, 100, 0), b"", bytes(101), 100), "more than its steps"),
        (bsdiff40(steps(0, 100, 0), b"", bytes(100), 100)[:-1], "end of a bzip2"),
        (b"BSDIFF40" + offtout(3) + offtout(3) + offtout(100) + b"garbagegarbage", "ends early|not a bzip2"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_hostile_bsdiff4_headers_and_steps_are_refused(tmp_path: Path, blob: bytes, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        decoded(tmp_path, Codec.BSDIFF4, blob, bytes(100), 100)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_offsets_of_bsdiff_are_sign_and_magnitude(value: int) -> None:
    assert offtin(offtout(value)) == value


def test_steps_before_and_behind_the_old_file_read_zeros() -> None:
    made = bytearray()
    control = iter([steps(4, 0, 0)])
    apply_steps(
        lambda _: steps(6, 0, 0) if next(control, None) else b"",
        lambda size: bytes([5]) * size,
        bytes,
        old=lambda at, size: b"\x01\x02\x03"[at : at + size],
        old_bytes=3,
        write=made.extend,
        new_bytes=6,
    )
    assert made == bytes([6, 7, 8, 5, 5, 5])


def wide_window() -> bytes:
    """A stream that asks for a window of 128 MiB."""
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    frame: bytes = stream.compress(b"x" * 5000) + stream.flush()
    return frame


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "ends early"),
        (b"no zstd at all", "not a zstd frame"),
        (zstd.compress(bytes(5000))[:-4], "ends early"),
        (zstd.compress(bytes(1 << 26)), "more than 5000"),
        (zstd.compress(bytes(5000)) + b"tail", "nothing after it"),
        (zstd.compress(bytes(4000)), "one zstd frame of 4000"),
        (zstd.compress(bytes(2500)) * 2, "nothing after it"),
        (wide_window(), "not a zstd frame"),
    ],
    ids=["empty", "garbage", "cut", "bomb", "tail", "too short", "two frames", "window of 128 MiB"],
)
def test_hostile_zstd_streams_are_refused(tmp_path: Path, blob: bytes, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        decoded(tmp_path, Codec.ZSTD, blob, None, 5000)
