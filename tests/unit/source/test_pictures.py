"""Still pictures: one scene in many encodings, natural order, damaged ones passed over (casebook 19)."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.stubs.sinks import ListSink, drain

from vedette.clock import ManualClock
from vedette.errors import BadInputError, FrameError
from vedette.source.decoding import decode_picture
from vedette.source.exif import orientation_of, png_orientation, webp_orientation
from vedette.source.pictures import MAX_NAMED_DAMAGED, PicturesSource, file_names, find_pictures, natural_key
from vedette.source.port import SourceSpec
from vedette.wire.causes import DropCause
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    import numpy.typing as npt

# How to store a scene so that EXIF orientation n makes it upright (numpy, rows first).
STORED = {
    1: lambda up: up,
    3: lambda up: np.rot90(up, 2),
    6: lambda up: np.rot90(up, 1),
    8: lambda up: np.rot90(up, 3),
}


def scene(width: int = 48, height: int = 32) -> npt.NDArray[np.uint8]:
    """RGB, one colour a quarter: red, green / blue, white."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2, : width // 2] = (255, 0, 0)
    picture[: height // 2, width // 2 :] = (0, 255, 0)
    picture[height // 2 :, : width // 2] = (0, 0, 255)
    picture[height // 2 :, width // 2 :] = 255
    return picture


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def of_scene(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(scene()).convert(mode)


def bgr(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.int16]:
    return rgb[:, :, ::-1].astype(np.int16)


def source_over(paths: list[Path], **changes: object) -> PicturesSource:
    spec = SourceSpec(camera="front", input="pictures", **changes)  # type: ignore[arg-type]
    return PicturesSource(paths, spec, description="test")


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_case_19_orientation_is_told_once_and_pixels_stay_as_stored(kind: str, orientation: int) -> None:
    """Case 19: EXIF 1, 3, 6, 8: turning the stored pixels by what the format says gives the scene."""
    stored = np.ascontiguousarray(STORED[orientation](scene()))
    exif = Image.Exif()
    exif[0x0112] = orientation
    by_kind: dict[str, dict[str, object]] = {
        "JPEG": {"quality": 98, "subsampling": 0},
        "WEBP": {"lossless": True},
    }
    options = by_kind.get(kind, {})
    frame_format, pixels = decode_picture(encoded(Image.fromarray(stored), kind, exif=exif, **options))
    assert frame_format.orientation == orientation
    assert frame_format.upright_size == (48, 32)
    turns = {1: 0, 3: 2, 6: 3, 8: 1}[orientation]
    upright = np.rot90(pixels, turns).astype(np.int16)
    assert np.abs(upright - bgr(scene())).max() <= 12


def test_case_19_a_tiff_is_turned_by_the_decoder_and_not_again() -> None:
    """Case 19: OpenCV turns TIFF by itself, so nothing is left to be applied."""
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.ascontiguousarray(STORED[6](scene()))
    frame_format, pixels = decode_picture(encoded(Image.fromarray(stored), "TIFF", exif=exif))
    assert frame_format.orientation == 1
    assert np.array_equal(pixels, bgr(scene()))


@pytest.mark.parametrize(
    ("mode", "kind", "tolerance"),
    [
        ("RGB", "PNG", 0),
        ("RGB", "BMP", 0),
        ("RGB", "TIFF", 0),
        ("P", "PNG", 0),
        ("P", "BMP", 0),
        ("RGBA", "PNG", 0),
        ("RGBA", "TIFF", 0),
        ("CMYK", "JPEG", 40),
    ],
)
def test_case_19_every_kind_of_picture_shows_the_scene(mode: str, kind: str, tolerance: int) -> None:
    """Case 19: palette, alpha, CMYK: red stays red (looked at away from the borders)."""
    frame_format, pixels = decode_picture(encoded(of_scene(mode), kind))
    assert frame_format.pixel is PixelFormat.BGR24
    difference = np.abs(pixels.astype(np.int16) - bgr(scene()))
    assert difference[4::8, 4::8].max() <= tolerance


def test_case_19_alpha_is_laid_over_black() -> None:
    """Case 19: a clear area is black, a half clear one half as bright."""
    rgba = np.full((2, 3, 4), 200, np.uint8)
    rgba[:, 0, 3], rgba[:, 1, 3], rgba[:, 2, 3] = 0, 128, 255
    pixels = decode_picture(encoded(Image.fromarray(rgba), "PNG"))[1]
    assert pixels[0, :, 0].tolist() == [0, 100, 200]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_case_19_16_bits_are_scaled_not_cut(kind: str) -> None:
    """Case 19: 65535 is white, half is half, and low values do not wrap around."""
    deep = np.array([[0, 257, 300, 32768, 65534, 65535]], np.uint16)
    frame_format, pixels = decode_picture(encoded(Image.fromarray(deep), kind))
    assert frame_format.pixel is PixelFormat.GRAY8
    assert pixels.tolist() == [[0, 1, 1, 128, 255, 255]]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF"])
def test_case_19_grey_stays_grey(kind: str) -> None:
    """Case 19: one channel in, gray8 out."""
    grey = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[None], 16, axis=0)
    frame_format, pixels = decode_picture(encoded(Image.fromarray(grey), kind))
    assert frame_format.pixel is PixelFormat.GRAY8
    assert np.abs(pixels.astype(int) - grey).max() <= 3


@pytest.mark.parametrize(
    ("picture", "kind", "named"),
    [
        (of_scene("CMYK"), "TIFF", "CMYK TIFF"),
        (Image.fromarray(np.ones((4, 4), np.float32)), "TIFF", "float32"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(picture: Image.Image, kind: str, named: str) -> None:
    """Never guessed."""
    with pytest.raises(FrameError, match=named) as caught:
        decode_picture(encoded(picture, kind))
    assert caught.value.kind == "unsupported"


def test_damaged_pictures_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    """Cut, empty, foreign and missing files cost themselves, wherever they stand."""
    whole = encoded(of_scene(), "PNG")
    photo = encoded(of_scene(), "JPEG")
    contents = [b"", whole, photo[: len(photo) // 2], b"hello", whole, whole[: len(whole) // 2], photo]
    paths = [tmp_path / f"{index}.png" for index in range(len(contents) + 1)]
    for path, content in zip(paths, contents, strict=False):
        path.write_bytes(content)
    sink = drain(source_over(paths), ListSink())
    assert len(sink.frames) == 3
    assert sink.drops == {DropCause.DAMAGED: 5}


def test_a_folder_of_nothing_usable_is_an_error(tmp_path: Path) -> None:
    """The last fault is named."""
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(BadInputError, match=r"none of 1 pictures.*a\.jpg"):
        source_over(find_pictures(str(tmp_path)))


def test_names_with_numbers_are_in_natural_order(tmp_path: Path) -> None:
    """frame10 comes after frame9; other files and subfolders are left out."""
    for name in ("frame10.png", "frame9.PNG", "frame1.jpg", "notes.md", "b.webp"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "sub.png").mkdir()
    assert [path.name for path in find_pictures(str(tmp_path))] == [
        "b.webp",
        "frame1.jpg",
        "frame9.PNG",
        "frame10.png",
    ]
    assert [p.name for p in find_pictures(str(tmp_path / "frame*.*"))] == [
        "frame1.jpg",
        "frame9.PNG",
        "frame10.png",
    ]


def test_a_list_file_keeps_its_order(tmp_path: Path) -> None:
    """Paths are relative to the list; comments, blank lines, CRLF and a BOM are passed over."""
    listing = tmp_path / "list.txt"
    listing.write_bytes(b"\xef\xbb\xbf# order\r\nz.png\r\n\r\nsub/a.png\r\n")
    assert find_pictures(str(listing)) == [tmp_path / "z.png", tmp_path / "sub" / "a.png"]


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"\xff\xfe\x00"])
def test_a_list_of_nothing_is_an_error(tmp_path: Path, content: bytes) -> None:
    """An empty list is not an empty result."""
    listing = tmp_path / "list.txt"
    listing.write_bytes(content)
    with pytest.raises(BadInputError, match="list"):
        find_pictures(str(listing))


def test_live_pictures_are_paced_and_looped(tmp_path: Path) -> None:
    """At 2 fps, one every half second of the clock; the loop keeps the beat."""
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        path.write_bytes(encoded(of_scene(), "PNG"))
    clock = ManualClock(1_000_000_000)
    spec = SourceSpec(camera="front", input="x", live=True, loop=True, fps=2.0)
    source = PicturesSource(paths, spec, description="test", clock=clock, sleep=clock.advance_s)
    sink = ListSink(stop_after=5)
    drain(source, sink)
    assert [round(captured_ns / 1e6) for _, _, captured_ns in sink.frames] == [1000, 1500, 2000, 2500, 3000]
    assert sink.alive_calls > 10


def test_a_loop_whose_pictures_have_gone_ends_with_an_error(tmp_path: Path) -> None:
    """It does not spin."""
    path = tmp_path / "a.png"
    path.write_bytes(encoded(of_scene(), "PNG"))
    source = source_over([path], loop=True)
    sink = ListSink()
    assert source.read(sink)
    path.unlink()
    with pytest.raises(BadInputError, match="any more"):
        drain(source, sink, max_reads=5)


@given(st.binary(max_size=120))
def test_exif_readers_give_an_orientation_for_any_bytes(data: bytes) -> None:
    """Damaged EXIF means upright."""
    for block in (data, b"II*\x00\x08\x00\x00\x00" + data, b"MM\x00*\x00\x00\x00\x08" + data):
        assert 1 <= orientation_of(block) <= 8
    assert 1 <= png_orientation(b"\x89PNG\r\n\x1a\n" + data) <= 8
    assert 1 <= webp_orientation(b"RIFF\x00\x00\x00\x00WEBP" + data) <= 8


@given(st.lists(st.text("ab019.", min_size=1, max_size=6), min_size=2, max_size=5))
def test_natural_order_is_total(names: list[str]) -> None:
    """Any two names compare, numbers by value."""
    from pathlib import Path

    ordered = sorted((Path(name) for name in names), key=natural_key)
    assert sorted(ordered, key=natural_key) == ordered


def test_each_frame_carries_the_name_of_its_file_and_damaged_ones_are_named_once(tmp_path: Path) -> None:
    """Sequence numbers skip what is damaged, so only names match answers and pictures; in a loop, too."""
    for name in ("b.png", "d.png"):
        (tmp_path / name).write_bytes(encoded(of_scene(), "PNG"))
    for name in ("a.png", "c.png"):
        (tmp_path / name).write_bytes(b"no picture")
    source = source_over(find_pictures(str(tmp_path)), loop=True)
    sink = ListSink(stop_after=5)
    while source.read(sink):
        pass
    assert sink.files == ["b.png", "d.png", "b.png", "d.png", "b.png"]
    assert [remark.split(" ")[0] for remark in sink.remarks] == ["a.png", "c.png"]
    assert all("cannot be used: " in remark for remark in sink.remarks)
    assert sink.drops[DropCause.DAMAGED] >= 4


def test_thousands_of_damaged_pictures_are_not_thousands_of_remarks(tmp_path: Path) -> None:
    """A bound on what is said, none on what is counted."""
    good = tmp_path / "0.png"
    good.write_bytes(encoded(of_scene(), "PNG"))
    missing = [tmp_path / f"{number}.png" for number in range(1, 200)]
    sink = drain(source_over([good, *missing]), ListSink())
    assert sink.drops[DropCause.DAMAGED] == 199
    assert len(sink.remarks) == MAX_NAMED_DAMAGED + 1
    assert "no longer named" in sink.remarks[-1]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/a/1.png"], ["1.png"]),
        (["/a/b/1.png", "/a/c/1.png"], ["b/1.png", "c/1.png"]),
        (["list/1.png", "list/sub/1.png"], ["1.png", "sub/1.png"]),
        (["/a/1.png", "b/1.png"], ["/a/1.png", "b/1.png"]),
        ([os.fsdecode(b"/a/\xff.png")], ["\ufffd.png"]),
    ],
)
def test_names_tell_the_files_apart_and_are_text(paths: list[str], names: list[str]) -> None:
    """Relative to what the files share; bytes that are no UTF-8 cannot break a result."""
    assert file_names([Path(path) for path in paths]) == names
