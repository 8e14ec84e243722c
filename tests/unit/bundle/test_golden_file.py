"""Golden files: what is written is read back; damage, bombs and nonsense are refused with words."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bundle.workshop import write_bundle, write_sums

from vedette.bundle.folder import load_bundle
from vedette.bundle.golden import GoldenCase, load_golden, parse_golden, write_golden
from vedette.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path


def case(seed: int = 0, *, outputs: int = 2, top1: int | None = None) -> GoldenCase:
    """A case with random contents."""
    rng = np.random.default_rng(seed)
    return GoldenCase(
        frame=rng.integers(0, 256, (8, 6, 3), dtype=np.uint8),
        outputs=tuple(rng.normal(size=(1, 4)).astype(np.float32) for _ in range(outputs)),
        tolerances=(0.5,) * outputs,
        top1=top1,
    )


def arrays(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - anything numpy can store
    """The arrays of a good file with one case; None takes one away."""
    good: dict[str, Any] = {
        "format": np.array(1),
        "frame_0": np.zeros((4, 4, 3), np.uint8),
        "output_0_0": np.zeros((1, 3), np.float32),
        "tolerance_0": np.array([0.1]),
        "top1_0": np.array(2),
    }
    good.update(changes)
    return {key: value for key, value in good.items() if value is not None}


def packed(**changes: Any) -> bytes:  # noqa: ANN401 - anything numpy can store
    """The bytes of such a file, as numpy itself writes them."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays(**changes))
    return buffer.getvalue()


def refused(content: bytes) -> str:
    """What is said of a golden file."""
    with pytest.raises(BundleError) as caught:
        parse_golden(content, "golden.npz")
    assert caught.value.cure
    return caught.value.cause


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Frames, outputs, tolerances and top-1 of several cases arrive unchanged."""
    cases = [case(1, top1=3), case(2)]
    write_golden(tmp_path / "golden.npz", cases)
    read = parse_golden((tmp_path / "golden.npz").read_bytes(), "golden.npz").cases
    assert [one.top1 for one in read] == [3, None]
    for before, after in zip(cases, read, strict=True):
        np.testing.assert_array_equal(after.frame, before.frame)
        assert after.frame.dtype == np.uint8
        assert after.tolerances == before.tolerances
        for wanted, got in zip(before.outputs, after.outputs, strict=True):
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == np.float32


def test_the_same_cases_give_the_same_bytes(tmp_path: Path) -> None:
    """No dates and no user in the file, so a rebuilt bundle keeps its digest; numpy can read it too."""
    write_golden(tmp_path / "a.npz", [case(1)])
    write_golden(tmp_path / "b.npz", [case(1)])
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as plain:
        np.testing.assert_array_equal(plain["frame_0"], case(1).frame)


def test_a_case_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    """One tolerance for two outputs."""
    broken = GoldenCase(case().frame, case().outputs, (0.5,))
    with pytest.raises(BundleError, match="tolerance_0"):
        write_golden(tmp_path / "golden.npz", [broken])
    assert not (tmp_path / "golden.npz").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": None}, "format 1"),
        ({"format": np.array(2)}, "format 1"),
        ({"format": np.array([1, 1])}, "format 1"),
        ({"frame_0": None}, "belongs to no case"),
        ({"frame_0": np.zeros((4, 4), np.uint8)}, "height x width x 3"),
        ({"frame_0": np.zeros((4, 4, 4), np.uint8)}, "height x width x 3"),
        ({"frame_0": np.zeros((0, 4, 3), np.uint8)}, "height x width x 3"),
        ({"frame_0": np.zeros((4, 4, 3), np.float32)}, "uint8"),
        ({"output_0_0": None}, "no output"),
        ({"output_0_0": np.zeros((1, 3), np.int8)}, "float32"),
        ({"output_0_0": np.full((1, 3), np.nan, np.float32)}, "finite"),
        ({"output_0_0": np.zeros((1, 0), np.float32)}, "not empty"),
        ({"output_0_2": np.zeros((1, 3), np.float32)}, "`output_0_2` belongs to no case"),
        ({"tolerance_0": None}, "tolerance_0"),
        ({"tolerance_0": np.array([0.1, 0.2])}, "tolerance_0 must be 1"),
        ({"tolerance_0": np.array([-0.1])}, "0 or more"),
        ({"tolerance_0": np.array([np.inf])}, "finite"),
        ({"top1_0": None}, "top1_0"),
        ({"top1_0": np.array(3)}, "top1_0 is 3; the first output has 3 values"),
        ({"top1_0": np.array(1.0)}, "one int64"),
        ({"frame_2": np.zeros((4, 4, 3), np.uint8)}, "belongs to no case"),
        ({"frame_0": np.asfortranarray(np.zeros((4, 4, 3), np.uint8))}, "row by row"),
        ({"frame_0": np.array(["x"])}, "plain numbers"),
        ({"frame_0": np.array([{"pickled": 1}], dtype=object)}, "plain numbers"),
    ],
)
def test_each_wrong_array_is_named(changes: dict[str, Any], words: str) -> None:
    """The message names the array and what it must be; pickled objects are never loaded."""
    assert words in refused(packed(**changes))


def test_cases_must_have_outputs_of_one_shape() -> None:
    """They are answers of one model."""
    second = {
        "frame_1": np.zeros((4, 4, 3), np.uint8),
        "output_1_0": np.zeros((1, 5), np.float32),
        "tolerance_1": np.array([0.1]),
        "top1_1": np.array(-1),
    }
    assert "differ" in refused(packed(**second))


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of raw members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    """300 MB of zeros in 300 kB: refused by the directory's sizes."""
    assert "unpacked" in refused(zipped({"frame_0.npy": bytes(300 << 20)}))


def test_a_header_that_claims_terabytes_allocates_nothing() -> None:
    """The header is compared with the bytes that are there."""
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (99999, 99999, 999), }"
    assert "its bytes do not" in refused(zipped({"frame_0.npy": header.ljust(127) + b"\n"}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x05\x06" + bytes(18),
        b"not a zip",
        packed()[:-30],
        packed()[40:],
        zipped({"frame_0.npy": b"junk"}),
        zipped({"frame_0.npy": b"\x93NUMPY\x01\x00\x10\x00{[(lambda: 1)()]}"}),
        zipped({"a": b"1"}, zipfile.ZIP_LZMA),
        zipped({f"a{index}": b"" for index in range(1100)}),
    ],
    ids=["empty", "no members", "text", "cut", "headless", "junk", "code", "lzma", "many"],
)
def test_files_that_are_no_golden_files_are_refused(content: bytes) -> None:
    """Each names the file."""
    assert refused(content).startswith("golden.npz")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """Flipped and cut bytes never escape as another error, and never give a case of the wrong kind."""
    content = bytearray(packed())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        golden = parse_golden(bytes(content), "golden.npz")
    except BundleError as error:
        assert error.cure  # noqa: PT017 - both ends are right here
    else:
        assert golden.cases[0].frame.shape == (4, 4, 3)


HEADERS = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda descr, order, shape: repr({"descr": descr, "fortran_order": order, "shape": shape}).encode(),
        st.sampled_from(["|u1", "<f4", "|O", "<U9", ">i8", "", "<f4,<f4", "V0", "|S0", "<M8[s]"]),
        st.one_of(st.booleans(), st.none()),
        st.one_of(
            st.lists(st.integers(-3, 1 << 70), max_size=3).map(tuple), st.text(max_size=3), st.integers()
        ),
    ),
)


@settings(max_examples=300, deadline=None)
@given(HEADERS, st.binary(max_size=8), st.sampled_from([1, 2, 3, 9]))
def test_any_array_header_is_refused_with_words(header: bytes, body: bytes, version: int) -> None:
    """Headers are Python literals: whatever stands there, only BundleError comes out."""
    member = b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2, "little") + header + body
    refused(zipped({"frame_0.npy": member}, zipfile.ZIP_STORED))


def test_a_bundle_without_golden_inputs_says_so(tmp_path: Path) -> None:
    """Nothing to prove is an error, never an empty proof."""
    with pytest.raises(BundleError, match="no golden inputs"):
        load_golden(load_bundle(write_bundle(tmp_path)))


def test_golden_inputs_are_verified_when_they_are_read(tmp_path: Path) -> None:
    """A file exchanged after loading is noticed."""
    root = write_bundle(tmp_path, {"golden.npz": packed()}, golden="golden.npz")
    bundle = load_bundle(root)
    assert load_golden(bundle).cases[0].top1 == 2
    (root / "golden.npz").write_bytes(packed(top1_0=np.array(1)))
    with pytest.raises(BundleError, match="changed"):
        load_golden(bundle)
    write_sums(root)
    assert load_golden(load_bundle(root)).cases[0].top1 == 1


def test_a_winner_beyond_the_labels_is_refused(tmp_path: Path) -> None:
    """Case 25: golden answers of a model with more classes."""
    wide = packed(output_0_0=np.zeros((1, 9), np.float32), top1_0=np.array(7))
    root = write_bundle(tmp_path, {"golden.npz": wide}, golden="golden.npz")
    with pytest.raises(BundleError, match="top1_0 is 7, but there are 3 classes"):
        load_golden(load_bundle(root))
