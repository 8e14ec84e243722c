"""Raw video over a pipe: exact frames whatever the writer does (casebook 16, 18)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.stubs.sinks import ListSink, drain

from vedette.clock import ManualClock
from vedette.errors import ConfigError, SourceLostError
from vedette.source.byteio import PIPE_BUFFER_BYTES, FdReader, enlarge_pipe
from vedette.source.port import SourceSpec
from vedette.source.rawvideo import RawVideoSource
from vedette.wire.causes import DropCause
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def spec_of(**changes: object) -> SourceSpec:
    declared: dict[str, object] = {
        "camera": "front",
        "input": "-",
        "container": "rawvideo",
        "width": 64,
        "height": 48,
        "pixel": PixelFormat.BGR24,
    }
    return SourceSpec(**{**declared, **changes})  # type: ignore[arg-type]


def source_over(fd: int, spec: SourceSpec | None = None, *, stall_s: float | None = None) -> RawVideoSource:
    spec = spec or spec_of()
    return RawVideoSource(FdReader(fd, name="the test pipe", stall_s=stall_s), spec, description="test")


def frames_of(count: int, frame_bytes: int = 64 * 48 * 3) -> list[bytes]:
    return [bytes([index % 251]) * frame_bytes for index in range(count)]


def test_case_18_a_slow_writer_of_odd_pieces_still_gives_whole_frames(
    feed: Callable[[Iterable[bytes]], int],
) -> None:
    """Case 18: 4,096 bytes, then single bytes, then the rest in ragged pieces."""
    frames = frames_of(3)
    stream = b"".join(frames)
    pieces = [stream[:4096]]
    pieces += [stream[at : at + 1] for at in range(4096, 4396)]
    pieces += [stream[at : at + 1777] for at in range(4396, len(stream), 1777)]
    sink = drain(source_over(feed(pieces)), ListSink())
    assert sink.pixels == frames
    assert not sink.drops


def test_case_18_88_frames_and_a_third_give_88_frames_and_one_short_drop(
    feed: Callable[[Iterable[bytes]], int],
) -> None:
    """Case 18: no frame too many at the end, the tail is counted once, further reads stay at the end."""
    frames = frames_of(88)
    source = source_over(feed([*frames, frames[0][: len(frames[0]) // 3]]))
    sink = drain(source, ListSink())
    assert sink.pixels == frames
    assert sink.drops == {DropCause.SHORT: 1}
    assert source.read(sink) is False
    assert sink.drops == {DropCause.SHORT: 1}


def test_case_18_a_writer_that_closes_at_once_is_a_clean_end(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Case 18: no frame, no drop, no error and no spin."""
    sink = drain(source_over(feed([])), ListSink(), max_reads=1)
    assert not sink.frames
    assert not sink.drops


def test_a_frame_is_captured_when_its_last_byte_arrives() -> None:
    """The stamp is taken after the last byte, not when the frame begins."""
    clock = ManualClock(1_000)
    reader_fd, writer_fd = os.pipe()
    spec = spec_of(width=2, height=1, pixel=PixelFormat.GRAY8)
    source = RawVideoSource(
        FdReader(reader_fd, name="pipe", stall_s=None, clock=clock), spec, description="test"
    )
    os.write(writer_fd, b"ab")
    clock.advance_s(3)
    sink = ListSink()
    assert source.read(sink)
    assert [captured_ns for _, _, captured_ns in sink.frames] == [3_000_001_000]
    os.close(writer_fd)
    source.close()


def test_case_14_a_mute_live_pipe_is_lost_after_its_stall_time() -> None:
    """Case 14: a writer that stays silent with the pipe open does not hang the source."""
    reader_fd, writer_fd = os.pipe()
    source = source_over(reader_fd, spec_of(live=True), stall_s=0.05)
    sink = ListSink()
    with pytest.raises(SourceLostError, match="mute"):
        source.read(sink)
    os.close(writer_fd)
    source.close()


def test_a_waiting_source_says_that_it_lives_and_stops_when_told() -> None:
    """A lossless pipe may be silent for ever; the wait is sliced and sees `stopping`."""
    reader_fd, writer_fd = os.pipe()
    source = source_over(reader_fd)
    sink = ListSink(stop_when=lambda seen: seen.alive_calls >= 2)
    assert source.read(sink) is False
    assert sink.alive_calls == 2
    assert not sink.drops
    os.close(writer_fd)
    source.close()


def test_case_16_rows_are_padded_and_planes_follow_by_stride(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Case 16: NV12 641x479, odd, with stride and padded height: geometry and colour meaning are carried."""
    spec = spec_of(
        width=641,
        height=479,
        pixel=PixelFormat.NV12,
        strides=(656, 656),
        padded_height=480,
        matrix=ColorMatrix.BT709,
        range=ColorRange.FULL,
    )
    frame = os.urandom(656 * 480 + 656 * 240)
    sink = drain(source_over(feed([frame, frame]), spec), ListSink())
    assert sink.pixels == [frame, frame]
    carried = sink.frames[0][0]
    assert (carried.matrix, carried.range) == (ColorMatrix.BT709, ColorRange.FULL)
    assert [(plane.offset_bytes, plane.stride_bytes, plane.rows) for plane in carried.planes] == [
        (0, 656, 479),
        (656 * 480, 656, 240),
    ]


@pytest.mark.parametrize(
    ("pixel", "strides", "stored_bytes"),
    [
        (PixelFormat.NV12, (1952, 1952), 1952 * 1088 + 1952 * 544),
        (PixelFormat.YUV420P, (1984, 992, 992), 1984 * 1088 + 2 * 992 * 544),
        (PixelFormat.BGR24, (5856,), 5856 * 1088),
    ],
)
def test_case_16_a_padded_height_pads_the_last_plane_as_well(
    feed: Callable[[Iterable[bytes]], int], pixel: PixelFormat, strides: tuple[int, ...], stored_bytes: int
) -> None:
    """Case 16: height 1080 stored as 1088: the second frame begins where the producer let it begin."""
    spec = spec_of(width=1944, height=1080, pixel=pixel, strides=strides, padded_height=1088)
    frames = [bytes([number]) * stored_bytes for number in (1, 2, 3)]
    sink = drain(source_over(feed(frames), spec), ListSink())
    assert sink.pixels == frames
    assert not sink.drops


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"width": 0}, "--size"),
        ({"pixel": None}, "--pix-fmt"),
        ({"strides": (100,)}, "stride 100"),
        ({"width": 300_000, "height": 300_000}, "limit"),
    ],
)
def test_a_declaration_that_cannot_be_names_what_to_give(changes: dict[str, object], named: str) -> None:
    """Nothing is guessed for raw video."""
    reader_fd, writer_fd = os.pipe()
    with pytest.raises(ConfigError, match=named):
        source_over(reader_fd, spec_of(**changes))
    os.close(reader_fd)
    os.close(writer_fd)


def test_a_live_pipe_above_its_cap_counts_what_it_leaves_out() -> None:
    """`fps: 10` on a pipe that delivers 30 a second: two of three are dropped with cause rate."""
    clock = ManualClock()
    reader_fd, writer_fd = os.pipe()
    spec = spec_of(width=2, height=1, pixel=PixelFormat.GRAY8, live=True, fps=10.0)
    source = RawVideoSource(
        FdReader(reader_fd, name="pipe", stall_s=1.0, clock=clock), spec, description="test"
    )
    sink = ListSink()
    for _ in range(60):
        os.write(writer_fd, b"ab")
        source.read(sink)
        clock.advance_s(1 / 30)
    assert 20 <= len(sink.frames) <= 21
    assert sink.drops[DropCause.RATE] == 60 - len(sink.frames)
    os.close(writer_fd)
    source.close()


def test_the_pipe_gets_a_large_buffer_or_keeps_its_own() -> None:
    """F_SETPIPE_SZ may be refused; a regular file has no buffer to enlarge."""
    reader_fd, writer_fd = os.pipe()
    assert 4096 <= enlarge_pipe(reader_fd) <= PIPE_BUFFER_BYTES
    os.close(reader_fd)
    os.close(writer_fd)
    with open(os.devnull, "rb") as null:  # noqa: PTH123 - a device, for its descriptor
        assert enlarge_pipe(null.fileno()) == 0


def test_closing_twice_is_harmless(feed: Callable[[Iterable[bytes]], int]) -> None:
    """The port promises it."""
    source = source_over(feed([]))
    source.close()
    source.close()
