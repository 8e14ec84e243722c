"""y4m: strict header, checked markers, no byte read ahead (casebook 16, 18)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.sinks import ListSink, drain

from vedette.errors import BadInputError, SourceLostError
from vedette.source.byteio import FdReader
from vedette.source.port import SourceSpec
from vedette.source.y4m import MAX_LINE_BYTES, STREAM_MAGIC, LineAssembler, Y4mSource, parse_header
from vedette.wire.causes import DropCause
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

HEADER = b"YUV4MPEG2 W4 H2 F30:1 Ip A1:1 C420jpeg\n"
PICTURE = bytes(range(12))


def open_y4m(fd: int, **changes: object) -> Y4mSource:
    spec = SourceSpec(camera="front", input="-", container="y4m", **changes)  # type: ignore[arg-type]
    return Y4mSource(FdReader(fd, name="the test pipe", stall_s=None), spec, description="test")


def test_every_frame_of_a_real_ffmpeg_stream_arrives(clips: Path) -> None:
    """20 frames of 160x120, rate and format from the header."""
    with (clips / "clip.y4m").open("rb") as file:
        source = open_y4m(os.dup(file.fileno()))
        sink = drain(source, ListSink())
    assert len(sink.frames) == 20
    assert source.info.fps == 10.0
    assert (source.info.format.width, source.info.format.height) == (160, 120)
    assert source.info.format.pixel is PixelFormat.YUV420P
    assert source.info.format.matrix is ColorMatrix.BT601
    source.close()


def test_case_18_single_bytes_frame_parameters_and_a_short_tail(
    feed: Callable[[Iterable[bytes]], int],
) -> None:
    """Case 18: dripped bytes; parameters after FRAME are passed over; the cut frame is counted once."""
    stream = HEADER + b"FRAME\n" + PICTURE + b"FRAME Ip XNOTE=1\n" + PICTURE + b"FRAME\n" + PICTURE[:5]
    sink = drain(open_y4m(feed(stream[at : at + 1] for at in range(len(stream)))), ListSink())
    assert sink.pixels == [PICTURE, PICTURE]
    assert sink.drops == {DropCause.SHORT: 1}


@pytest.mark.parametrize("tail", [b"FRAM", b"FRAME\n"])
def test_a_stream_cut_in_or_after_a_marker_counts_a_short_frame(
    feed: Callable[[Iterable[bytes]], int], tail: bytes
) -> None:
    """The frame had begun; a stream that ends between frames has no tail."""
    sink = drain(open_y4m(feed([HEADER, b"FRAME\n", PICTURE, tail])), ListSink())
    assert (len(sink.frames), sink.drops[DropCause.SHORT]) == (1, 1)
    whole = drain(open_y4m(feed([HEADER, b"FRAME\n", PICTURE])), ListSink())
    assert (len(whole.frames), whole.drops[DropCause.SHORT]) == (1, 0)


def test_a_broken_marker_ends_the_stream_and_names_the_byte(feed: Callable[[Iterable[bytes]], int]) -> None:
    """y4m has no sync word inside pictures, so going on would mean rolling pictures."""
    source = open_y4m(feed([HEADER, b"FRAME\n", PICTURE, b"GARBAGE", PICTURE]))
    sink = ListSink()
    assert source.read(sink)
    where = len(HEADER) + len(b"FRAME\n") + len(PICTURE)
    with pytest.raises(BadInputError, match=f"at byte {where}.*cannot be resynchronised"):
        source.read(sink)


def test_case_18_a_new_header_in_the_stream_changes_the_size(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Case 18: the framing carries a header, so a change of size is followed."""
    second = b"YUV4MPEG2 W2 H2 Cmono XCOLORRANGE=FULL\n"
    sink = drain(open_y4m(feed([HEADER, b"FRAME\n", PICTURE, second, b"FRAME\nabcd"])), ListSink())
    sizes = [(f.width, f.height, f.pixel, f.range) for f, _, _ in sink.frames]
    assert sizes == [
        (4, 2, PixelFormat.YUV420P, ColorRange.LIMITED),
        (2, 2, PixelFormat.GRAY8, ColorRange.FULL),
    ]
    assert sink.pixels[1] == b"abcd"


def test_media_time_caps_a_recording(feed: Callable[[Iterable[bytes]], int]) -> None:
    """30 fps media under a cap of 10 keeps a third, whatever the speed of the pipe."""
    sink = drain(open_y4m(feed([HEADER, *([b"FRAME\n" + PICTURE] * 60)]), fps=10.0), ListSink())
    assert 20 <= len(sink.frames) <= 21
    assert sink.drops[DropCause.RATE] == 60 - len(sink.frames)


def test_the_camera_entry_names_the_matrix_and_interlacing_is_noted(
    feed: Callable[[Iterable[bytes]], int],
) -> None:
    """Case 16: the header cannot say BT.709; the declaration can."""
    header = b"YUV4MPEG2 W4 H2 F25:1 It A16:11 C420mpeg2 XCOLORRANGE=LIMITED\n"
    source = open_y4m(feed([header]), matrix=ColorMatrix.BT709, width=8)
    assert source.info.format.matrix is ColorMatrix.BT709
    notes = " ".join(source.info.notes)
    assert "interlaced" in notes
    assert "not square" in notes
    assert "declared size is ignored" in notes


def test_nothing_at_all_is_an_error_with_a_cure(feed: Callable[[Iterable[bytes]], int]) -> None:
    """An empty pipe is not an empty result."""
    with pytest.raises(BadInputError) as caught:
        open_y4m(feed([]))
    assert "producer" in (caught.value.cure or "")


def test_a_mute_producer_is_noticed_while_opening() -> None:
    """`open_timeout_s` bounds the wait for the header."""
    reader_fd, writer_fd = os.pipe()
    with pytest.raises(SourceLostError, match="mute"):
        open_y4m(reader_fd, open_timeout_s=0.05)
    os.close(writer_fd)
    os.close(reader_fd)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"YUV4MPEG2 H2", "no W tag"),
        (b"YUV4MPEG2 W4 H0", "H0 is no size"),
        (b"YUV4MPEG2 W-4 H2", "W-4"),
        (b"YUV4MPEG2 W4 W4 H2", "twice"),
        (b"YUV4MPEG2 W4 H2 Q7", "unknown tag"),
        (b"YUV4MPEG2 W4 H2 F30", "F30"),
        (b"YUV4MPEG2 W4 H2 Ix", "Ix"),
        (b"YUV4MPEG2 W4 H2 C420p10", "C420p10"),
        (b"YUV4MPEG2 W4 H2 C444alpha", "alpha"),
        (b"YUV4MPEG2 W4 H2 C411", "C411"),
        (b"YUV4MPEG2 W4 H2 XCOLORRANGE=WIDE", "WIDE"),
        (b"YUV4MPEG2 W99999 H99999", "limit"),
        (b"YUV4MPEG2 W4 H2 \xff", "ASCII"),
        (b"RIFF W4 H2", "not with YUV4MPEG2"),
    ],
)
def test_a_wrong_header_names_the_tag(line: bytes, named: str) -> None:
    """Strict: nothing is guessed, the message names what is wrong."""
    with pytest.raises(BadInputError, match=named):
        parse_header(line)


def test_deep_colour_is_refused_with_the_option_that_cures_it() -> None:
    """10-bit and alpha get the ffmpeg option to add."""
    with pytest.raises(BadInputError) as caught:
        parse_header(b"YUV4MPEG2 W4 H2 C422p10")
    assert "-pix_fmt yuv420p" in (caught.value.cure or "")


@given(
    width=st.integers(1, 8192),
    height=st.integers(1, 8192),
    fps=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    space=st.sampled_from(
        [("420jpeg", PixelFormat.YUV420P), ("422", PixelFormat.YUV422P), ("mono", PixelFormat.GRAY8)]
    ),
    extra=st.lists(st.text("ABC=019_", max_size=8), max_size=3),
)
def test_a_well_formed_header_is_read_back(
    width: int, height: int, fps: tuple[int, int], space: tuple[str, PixelFormat], extra: list[str]
) -> None:
    """Tags in, fields out, for any size, rate and extensions."""
    words = [
        f"W{width}",
        f"H{height}",
        f"F{fps[0]}:{fps[1]}",
        f"C{space[0]}",
        *(f"XQ{word}" for word in extra),
    ]
    header = parse_header(("YUV4MPEG2 " + " ".join(words)).encode())
    assert (header.width, header.height, header.pixel) == (width, height, space[1])
    assert header.fps == pytest.approx(fps[0] / fps[1] if fps[1] else 0.0)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_header_or_a_named_error(tail: bytes) -> None:
    """The parser never fails in another way."""
    assert outcome_of(tail).startswith("y4m:") or tail.startswith(STREAM_MAGIC)
    assert outcome_of(b"YUV4MPEG2 W4 H2 " + tail)


def outcome_of(line: bytes) -> str:
    try:
        header = parse_header(line)
    except BadInputError as error:
        return error.cause
    assert header.width >= 1
    return "a header"


@given(tags=st.text("WHFIAC0123456789:p ", max_size=40), data=st.data())
def test_the_assembler_never_wants_a_byte_beyond_the_line(tags: str, data: st.DataObject) -> None:
    """Frames follow at once and are read into other memory: reading ahead would lose pixels."""
    stream = STREAM_MAGIC + b" " + tags.encode() + b"\n"
    assembler = LineAssembler((STREAM_MAGIC,))
    at, line = 0, None
    while line is None:
        count = data.draw(st.integers(1, assembler.wanted_bytes))
        line = assembler.feed(stream[at : at + count])
        at += count
    assert at == len(stream)
    assert line == stream[:-1]


def test_a_line_without_end_is_refused() -> None:
    """A header of megabytes is no header."""
    assembler = LineAssembler((STREAM_MAGIC,))
    assert assembler.feed(STREAM_MAGIC + b" " + b"X" * (MAX_LINE_BYTES - 10)) is None
    with pytest.raises(BadInputError, match=f"above {MAX_LINE_BYTES}"):
        assembler.feed(b"z")


@pytest.mark.parametrize(
    "line", [b"YUV4MPEG2 W0 H4", b"YUV4MPEG2 H4", b"YUV4MPEG2 W4 H4 Fx", b"YUV4MPEG2 W\xff"]
)
def test_every_broken_header_comes_with_a_cure(line: bytes) -> None:
    """What to look at, beside what is wrong."""
    with pytest.raises(BadInputError) as caught:
        parse_header(line)
    assert caught.value.cure
