"""`ingest-check`: says what is in a pipe, and which option is wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest

from vedette.clock import ManualClock
from vedette.errors import BadInputError
from vedette.source.geometry import guess_stride, suggest_sizes
from vedette.source.inspection import inspect_pipe
from vedette.source.signatures import guess_container, known_foreign
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import numpy.typing as npt


def scene(width: int, height: int, channels: int = 3) -> npt.NDArray[np.uint8]:
    noise = np.random.default_rng(3).integers(0, 256, (height, width, channels), dtype=np.uint8)
    smooth = cv2.GaussianBlur(noise, (0, 0), 4).reshape(height, width, channels)
    return np.asarray(cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX), np.uint8)


def test_a_y4m_pipe_is_recognised_and_counted(clips: Path) -> None:
    """Container, format, declared rate, frames, nothing left over."""
    with (clips / "clip.y4m").open("rb") as file:
        found = inspect_pipe(file.fileno())
    assert (found.container, found.declared, found.frames, found.ended) == ("y4m", False, 20, True)
    assert found.declared_fps == 10.0
    assert found.format is not None
    assert (found.format.width, found.format.height) == (160, 120)
    assert not found.misaligned


def test_an_mjpeg_pipe_is_recognised_and_its_damage_counted(
    clips: Path, feed: Callable[[Iterable[bytes]], int]
) -> None:
    """A cut picture among good ones is told with its fault."""
    stream = (clips / "clip.mjpeg").read_bytes()
    second = stream.index(b"\xff\xd8\xff", 2)
    fd = feed([stream[: second // 2], stream])
    found = inspect_pipe(fd)
    os.close(fd)
    assert (found.container, found.frames, found.damaged) == ("mjpeg", 20, 1)
    assert "cut" in found.notes[0]


class CameraClock(ManualClock):
    """Time goes on at each look at it, a third of a frame; the camera writes a frame each 40 ms of it."""

    def __init__(self, writer: int, frame: bytes) -> None:
        super().__init__()
        self._writer = writer
        self._frame = frame
        self._next_ns = 0

    def monotonic_ns(self) -> int:
        self.advance_s(0.013_333_334)
        now_ns = super().monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns += 40_000_000
            os.write(self._writer, self._frame)
        return now_ns


def test_rate_and_jitter_are_measured_at_arrival() -> None:
    """A camera of 25 fps with a few ms of jitter, seen for 50 frames."""
    reader, writer = os.pipe()
    found = inspect_pipe(
        reader,
        container="rawvideo",
        width=2,
        height=2,
        pixel=PixelFormat.BGR24,
        limit_frames=50,
        limit_s=20.0,
        clock=CameraClock(writer, bytes(12)),
    )
    os.close(writer)
    os.close(reader)
    assert 50 <= found.frames <= 52
    assert found.measured_fps == pytest.approx(25, rel=0.03)
    assert 35 <= found.interval_p50_ms <= 45
    assert found.interval_p50_ms <= found.interval_p95_ms <= 60
    assert not found.ended


@pytest.mark.parametrize(("width", "stride"), [(641, 1936), (641, 1984), (320, 960)])
def test_case_16_padded_rows_are_seen_in_the_pixels(
    feed: Callable[[Iterable[bytes]], int], width: int, stride: int
) -> None:
    """Case 16: declared tight, really padded: the stride is named; a truly tight one is not complained of."""
    height = 120
    padded = np.zeros((height, stride), np.uint8)
    padded[:, : width * 3] = scene(width, height).reshape(height, width * 3)
    fd = feed([padded.tobytes() * 4])
    found = inspect_pipe(fd, container="rawvideo", width=width, height=height, pixel=PixelFormat.BGR24)
    os.close(fd)
    assert found.stride_bytes == stride
    assert any(f"{stride} bytes apart" in note for note in found.notes) == (stride != width * 3)
    assert found.misaligned == (stride != width * 3)


def test_raw_video_of_unknown_size_gets_suggestions(feed: Callable[[Iterable[bytes]], int]) -> None:
    """The row stride in the pixels and the length together name the right geometry first."""
    fd = feed([scene(320, 240).tobytes() * 5])
    found = inspect_pipe(fd)
    os.close(fd)
    assert found.container == "rawvideo"
    assert found.stride_bytes == 960
    assert found.suggestions[0] in (
        "--size 320x240 --pix-fmt bgr24 (5 frames)",
        "--size 320x240 --pix-fmt rgb24 (5 frames)",
    )


def test_a_wrong_declared_size_is_misaligned_and_gets_suggestions(
    feed: Callable[[Iterable[bytes]], int],
) -> None:
    """640x480 declared, 320x240 sent."""
    fd = feed([scene(320, 240).tobytes() * 5])
    found = inspect_pipe(fd, container="rawvideo", width=640, height=480, pixel=PixelFormat.BGR24)
    os.close(fd)
    assert found.misaligned
    assert found.leftover_bytes == (320 * 240 * 3 * 5) % (640 * 480 * 3)
    assert any("320x240" in suggestion for suggestion in found.suggestions)


def test_a_producer_that_falls_silent_is_told_within_the_limit() -> None:
    """Half a frame, then nothing, with the pipe open."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * 100)
    found = inspect_pipe(
        reader, container="rawvideo", width=64, height=48, pixel=PixelFormat.GRAY8, limit_s=0.2
    )
    os.close(writer)
    os.close(reader)
    assert not found.ended
    assert (found.frames, found.leftover_bytes) == (0, 100)
    assert "silent" in found.notes[0]


def test_an_empty_pipe_is_an_error(feed: Callable[[Iterable[bytes]], int]) -> None:
    """Nothing is not a finding."""
    fd = feed([])
    with pytest.raises(BadInputError, match="nothing came"):
        inspect_pipe(fd)
    os.close(fd)


def test_a_broken_y4m_is_an_error(feed: Callable[[Iterable[bytes]], int]) -> None:
    """With the byte at which it breaks."""
    fd = feed([b"YUV4MPEG2 W4 H2\nFRAME\n" + bytes(12) + b"JUNK\n"])
    with pytest.raises(BadInputError, match="expected FRAME at byte 34"):
        inspect_pipe(fd)
    os.close(fd)


def test_containers_are_told_by_their_first_bytes() -> None:
    """y4m magic, JPEG start, multipart boundary; everything else is raw."""
    assert guess_container(b"YUV4MPEG2 W4") == "y4m"
    assert guess_container(b"\xff\xd8\xff\xe0") == "mjpeg"
    assert guess_container(b"\r\n--frame\r\nContent-Type: image/jpeg\r\n") == "mjpeg"
    assert guess_container(bytes(range(64))) == "rawvideo"


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (("-f", "mp4"), "an MP4 or MOV file"),
        (("-f", "mov"), "an MP4 or MOV file"),
        (("-f", "matroska"), "a Matroska or WebM file"),
        (("-f", "avi"), "an AVI file"),
        (("-f", "flv"), "a FLV file"),
        (("-f", "h264"), "an H.264 or H.265 stream"),
        (("-f", "mpegts"), "an MPEG transport stream"),
        (("-c:v", "mpeg2video", "-r", "25", "-f", "vob"), "an MPEG program stream"),
        (("-frames:v", "1", "-c:v", "png", "-f", "image2pipe"), "a PNG picture"),
        (("-f", "gif"), "a GIF picture"),
        (("-f", "yuv4mpegpipe"), ""),
        (("-f", "rawvideo"), ""),
    ],
)
def test_well_known_files_in_a_pipe_are_named(
    clips: Path, tmp_path: Path, ffmpeg: Callable[..., None], output: tuple[str, ...], name: str
) -> None:
    """What ffmpeg really writes begins as the table says; what can be read has no such name."""
    ffmpeg("-i", clips / "clip.mp4", "-pix_fmt", "yuv420p", *output, tmp_path / "written")
    head = (tmp_path / "written").read_bytes()[:4096]
    assert known_foreign(head) == name


def test_text_is_no_video() -> None:
    """A log on the wrong stream, for instance; bytes of any value are not text."""
    assert known_foreign(b"error: no camera\n") == "text"
    assert known_foreign(bytes(range(256))) == ""
    assert known_foreign(b"@" * 4096) == "", "a grey wall is letters all over"
    assert known_foreign(b"\x00\x00\x00\x01\x01\x00" * 99) == "", "so is the night a start code"
    assert known_foreign(b"") == ""


def test_noise_gives_no_stride() -> None:
    """Where the pixels do not tell, nothing is claimed."""
    noise = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8).tobytes()
    assert guess_stride(noise, [640, 960, 1920]) == 0
    assert guess_stride(b"", [640]) == 0


def test_a_length_suggests_what_divides_it() -> None:
    """One 640x480 BGR frame is also twelve 320x240 grey ones, but nothing of 1920x1080."""
    found = suggest_sizes(640 * 480 * 3, 0)
    assert all("1920x1080" not in text for text in found)
    assert any("640x480 --pix-fmt bgr24 (1 frames)" in text for text in suggest_sizes(640 * 480 * 3, 1920))
