"""MJPEG: what is harmless is accepted, what is harmful is never handed on (casebook 17, 19)."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.stubs.sinks import ListSink, drain

from vedette.errors import BadInputError, FrameError
from vedette.source.byteio import FdReader
from vedette.source.decoding import decode_picture
from vedette.source.jpeg import EOI, examine
from vedette.source.jpegstream import JpegScanner
from vedette.source.mjpeg import MjpegSource
from vedette.source.port import SourceSpec
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import numpy.typing as npt

    from vedette.source.jpegstream import Chunk


def scene(seed: int = 1, width: int = 160, height: int = 120) -> npt.NDArray[np.uint8]:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 2)
    return np.asarray(cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX), np.uint8)


def jpeg(pixels: npt.NDArray[np.uint8], *parameters: int) -> bytes:
    return bytes(cv2.imencode(".jpg", pixels, list(parameters))[1].tobytes())


RESTARTS = (cv2.IMWRITE_JPEG_RST_INTERVAL, 4)
GOOD = jpeg(scene())
WITH_RESTARTS = jpeg(scene(2), *RESTARTS)
PROGRESSIVE = jpeg(scene(3), cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
KINDS = pytest.mark.parametrize(
    "picture", [GOOD, WITH_RESTARTS, PROGRESSIVE], ids=["plain", "restarts", "progressive"]
)


def with_thumbnail(orientation: int = 1) -> bytes:
    """A picture whose EXIF block holds a whole JPEG, as cameras write it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    block = exif.tobytes() + jpeg(scene(4, 32, 24))
    out = io.BytesIO()
    Image.fromarray(scene(5)[:, :, ::-1].copy()).save(out, "JPEG", exif=block)
    return out.getvalue()


def open_mjpeg(fd: int, **changes: object) -> MjpegSource:
    spec = SourceSpec(camera="front", input="-", container="mjpeg", **changes)  # type: ignore[arg-type]
    return MjpegSource(FdReader(fd, name="the test pipe", stall_s=None), spec, description="test")


def scan(stream: bytes, *, step: int = 1 << 20) -> list[Chunk]:
    scanner = JpegScanner()
    found = []
    for at in range(0, len(stream), step):
        scanner.feed(stream[at : at + step])
        while (chunk := scanner.pull()) is not None:
            found.append(chunk)
    last = scanner.finish()
    return found if last is None else [*found, last]


def pictures(stream: bytes, *, step: int = 1 << 20) -> list[bytes]:
    return [chunk.data for chunk in scan(stream, step=step) if not chunk.fault]


def test_case_17_the_stream_of_the_case(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Case 17: cut at 50 %, stray bytes before a restart marker, a foreign chunk; a good one after each."""
    at = WITH_RESTARTS.index(b"\xff\xd2")
    stray = WITH_RESTARTS[:at] + b"\x12\x34\x56\x78" + WITH_RESTARTS[at:]
    cut = GOOD[: len(GOOD) // 2]
    foreign = b"<html><body>503 Service Unavailable</body></html>\r\n" * 20
    sink = drain(open_mjpeg(feed([cut, GOOD, stray, GOOD, foreign, GOOD])), ListSink())
    good = decode_picture(GOOD)[1].tobytes()
    accepted = decode_picture(WITH_RESTARTS)[1].tobytes()
    assert sink.pixels == [good, accepted, good, good]
    assert sink.drops == {DropCause.DAMAGED: 2}


@KINDS
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.98])
def test_case_17_a_cut_picture_never_passes(picture: bytes, share: float) -> None:
    """Case 17: with the next picture behind it, at the end of the stream, or with its middle missing."""
    cut = picture[: int(len(picture) * share)].rstrip(b"\xff")
    assert pictures(cut + GOOD) == [GOOD]
    assert pictures(cut) == []


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.98])
@pytest.mark.parametrize(
    "parameters", [(), RESTARTS, (cv2.IMWRITE_JPEG_OPTIMIZE, 1)], ids=["plain", "rst", "opt"]
)
def test_case_17_a_cut_picture_with_an_end_marker_is_found(share: float, parameters: tuple[int, ...]) -> None:
    """Case 17: libjpeg fills the rest with grey and reports success; the blocks are counted instead."""
    picture = jpeg(scene(6), *parameters)
    cut = picture[: int(len(picture) * share)].rstrip(b"\xff") + EOI
    with pytest.raises(FrameError) as caught:
        decode_picture(cut)
    assert caught.value.kind == "damaged"


def test_a_lost_restart_interval_is_found() -> None:
    """A hole in the middle leaves the end in place; the order of the restart markers shows it."""
    begin, end = WITH_RESTARTS.index(b"\xff\xd1"), WITH_RESTARTS.index(b"\xff\xd2")
    with pytest.raises(FrameError, match="restart markers"):
        examine(WITH_RESTARTS[:begin] + WITH_RESTARTS[end:])


def test_a_hole_inside_a_restart_interval_is_found() -> None:
    """The interval's last unit comes out grey, though its markers are all there."""
    begin, end = WITH_RESTARTS.index(b"\xff\xd1") + 2, WITH_RESTARTS.index(b"\xff\xd2")
    with pytest.raises(FrameError, match="ends early"):
        decode_picture(WITH_RESTARTS[: begin + 4] + WITH_RESTARTS[end:])


@pytest.mark.parametrize("parameters", [(), RESTARTS], ids=["plain", "restarts"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_that_is_truly_grey_is_whole(channels: int, parameters: tuple[int, ...]) -> None:
    """Mid-grey alone is no proof of damage: a covered lens, a letterbox, a test card."""
    pixels = scene(7)[:, :, :channels].squeeze().copy()
    pixels[60:] = 128
    assert decode_picture(jpeg(pixels, *parameters))[1].shape == pixels.shape


@pytest.mark.parametrize("size", [(161, 119), (8, 8), (17, 33), (1, 1)])
def test_odd_sizes_are_whole(size: tuple[int, int]) -> None:
    """Units that hang over the edge are counted as the encoder wrote them."""
    pixels = np.full((size[1], size[0], 3), 128, np.uint8)
    assert decode_picture(jpeg(pixels))[1].shape == pixels.shape


def test_thumbnails_and_multipart_headers_do_not_split_pictures() -> None:
    """FF D8 and FF D9 inside EXIF are stepped over; boundaries and part headers are no pictures."""
    picture = with_thumbnail()
    header = b"\r\n--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(picture)
    found = scan((header + picture) * 3 + b"\r\n--frame--\r\n")
    assert [chunk.data for chunk in found] == [picture] * 3
    assert not any(chunk.fault for chunk in found)


def test_a_picture_cut_in_its_thumbnail_does_not_pass_the_thumbnail_off_as_a_frame() -> None:
    """The damaged one is counted; what was inside its EXIF block is never inferred."""
    picture = with_thumbnail()
    cut = picture[: picture.index(b"\xff\xd9") - 40]
    assert all(found == GOOD for found in pictures(cut + GOOD + GOOD))
    assert pictures(cut + GOOD + GOOD)


def test_a_picture_cut_in_a_table_gives_the_next_one_back() -> None:
    """The table's length leads into the next picture; the search goes back."""
    cut = GOOD[: GOOD.index(b"\xff\xc4") + 12]
    assert pictures(cut + GOOD) == [GOOD]


@settings(max_examples=40)
@given(st.integers(1, 4000), st.lists(st.sampled_from([GOOD, WITH_RESTARTS, PROGRESSIVE]), max_size=4))
def test_pieces_of_any_size_give_the_same_pictures(step: int, stream: list[bytes]) -> None:
    """How the bytes arrive changes nothing."""
    assert pictures(b"".join(stream), step=step) == stream


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(st.binary(max_size=80), st.sampled_from([GOOD[:300], b"\xff\xd8\xff\xe1\xff\xff"])),
        max_size=6,
    )
)
def test_any_bytes_are_bounded_and_the_second_good_picture_comes_through(pieces: list[bytes]) -> None:
    """Garbage never raises and never blocks what follows; it may swallow one picture at most 64 KiB long."""
    assert GOOD in pictures(b"".join(pieces) + GOOD * 40)


@settings(max_examples=150)
@given(st.integers(2, len(GOOD) - 3), st.binary(min_size=1, max_size=6))
def test_any_change_inside_a_picture_is_decoded_or_a_frame_error(at: int, junk: bytes) -> None:
    """No other exception gets out of the structure walk and the block count."""
    broken = GOOD[:at] + junk + GOOD[at + len(junk) :]
    assert outcome_of(broken) in ("pixels", "damaged", "unsupported")


def outcome_of(picture: bytes) -> str:
    try:
        decode_picture(picture)
    except FrameError as error:
        return error.kind
    return "pixels"


def test_a_picture_without_end_is_given_up_at_the_limit() -> None:
    """Memory is bounded, and the stream is found again."""
    scanner = JpegScanner(max_picture_bytes=len(GOOD) * 2)
    endless = GOOD[:-2] + b"\x11" * len(GOOD) * 2
    scanner.feed(endless)
    chunk = scanner.pull()
    assert chunk is not None
    assert "larger" in chunk.fault
    scanner.feed(GOOD)
    following = scanner.pull()
    assert following is not None
    assert following.data == GOOD


def test_every_picture_of_a_real_ffmpeg_stream_arrives(clips: Path) -> None:
    """20 pictures, none damaged."""
    with (clips / "clip.mjpeg").open("rb") as file:
        source = open_mjpeg(os.dup(file.fileno()))
        sink = drain(source, ListSink())
    assert len(sink.frames) == 20
    assert not sink.drops
    source.close()


def test_case_19_orientation_is_told_and_not_applied(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Case 19: the format carries EXIF 6, the pixels are as stored, so it is applied exactly once."""
    sink = drain(open_mjpeg(feed([with_thumbnail(6)])), ListSink())
    frame_format = sink.frames[0][0]
    assert (frame_format.width, frame_format.height, frame_format.orientation) == (160, 120, 6)
    assert frame_format.upright_size == (120, 160)


def test_a_stream_that_ends_inside_a_picture_is_short(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Cut by the end of the stream, not by damage."""
    sink = drain(open_mjpeg(feed([GOOD, GOOD[:500]])), ListSink())
    assert (len(sink.frames), sink.drops) == (1, {DropCause.SHORT: 1})


@pytest.mark.parametrize("stream", [b"", b"no picture at all " * 100, GOOD[:900]])
def test_a_stream_without_a_good_picture_is_refused_with_its_last_fault(
    feed: Callable[[Iterable[bytes]], int], stream: bytes
) -> None:
    """An error is never an empty result."""
    with pytest.raises(BadInputError, match="no whole JPEG picture"):
        open_mjpeg(feed([stream]))


def test_a_change_of_size_is_followed(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Every picture says its own size."""
    sink = drain(open_mjpeg(feed([GOOD, jpeg(scene(8, 64, 48))])), ListSink())
    assert [(f.width, f.height) for f, _, _ in sink.frames] == [(160, 120), (64, 48)]
