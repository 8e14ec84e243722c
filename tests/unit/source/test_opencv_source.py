"""Video files, devices and streams through OpenCV: every frame, honest stamps, the device's truth."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.stubs.sinks import ListSink, drain

from vedette.clock import ManualClock
from vedette.errors import BadInputError, ConfigError, SourceLostError
from vedette.source.capture import CaptureSource, Nature
from vedette.source.opencv import diagnose, open_device, open_file
from vedette.source.port import SourceSpec
from vedette.source.v4l2 import check_device, device_path, fourcc_name, requested_fourcc
from vedette.wire.causes import DropCause
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]


def spec_of(**changes: object) -> SourceSpec:
    return SourceSpec(**{"camera": "front", "input": "x", **changes})  # type: ignore[arg-type]


class FakeCapture:
    """Plays a list of frames as the Capture of the source; each grab takes `grab_s` of the clock."""

    def __init__(
        self,
        frames: list[Pixels],
        *,
        clock: ManualClock | None = None,
        grab_s: float = 0.0,
        properties: dict[int, float] | None = None,
    ) -> None:
        self.frames = frames
        self.released = False
        self.takes_destination = True
        self.broken: set[int] = set()
        self._clock = clock
        self._grab_s = grab_s
        self._properties = properties or {}
        self._at = -1

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        return not self.released

    def grab(self) -> bool:
        if self._clock is not None:
            self._clock.advance_s(self._grab_s)
        self._at += 1
        return self._at < len(self.frames)

    def retrieve(self, image: Pixels | None = None) -> tuple[bool, Pixels | None]:
        if self._at in self.broken:
            return False, None
        frame = self.frames[self._at]
        if image is not None and self.takes_destination and image.shape == frame.shape:
            image[...] = frame
            return True, image
        return True, frame.copy()

    def get(self, prop: int) -> float:
        return self._properties.get(prop, 0.0)

    def set(self, prop: int, value: float) -> bool:
        self._properties[prop] = value
        return True

    def release(self) -> None:
        self.released = True


def flat(value: int, width: int = 4, height: int = 2) -> Pixels:
    return np.full((height, width, 3), value, np.uint8)


def device_over(capture: FakeCapture, **changes: object) -> CaptureSource:
    return CaptureSource(lambda: capture, spec_of(**changes), Nature.DEVICE, description="fake camera")


def test_every_frame_of_a_file_arrives_in_order(clips: Path) -> None:
    """20 frames with B-frames in the stream: none lost, none twice, pixel by pixel."""
    source = open_file(str(clips / "clip.mp4"), spec_of())
    sink = drain(source, ListSink())
    reference = cv2.VideoCapture(str(clips / "clip.mp4"), cv2.CAP_FFMPEG)
    expected = []
    while (frame := reference.read()[1]) is not None:
        expected.append(frame.tobytes())
    reference.release()
    assert sink.pixels == expected
    assert len(expected) == 20
    assert not sink.drops
    assert source.info.fps == 10.0
    assert not source.info.live
    assert source.read(sink) is False
    source.close()
    source.close()


def test_case_19_the_rotation_of_a_container_is_told_and_not_applied(clips: Path) -> None:
    """Case 19: OpenCV's own turning is off; turning by the format's value gives what it would show."""
    source = open_file(str(clips / "turned.mp4"), spec_of())
    sink = ListSink()
    assert source.read(sink)
    frame_format, pixels, _ = sink.frames[0]
    assert (frame_format.width, frame_format.height, frame_format.orientation) == (160, 120, 8)
    assert frame_format.upright_size == (120, 160)
    stored = np.frombuffer(pixels, np.uint8).reshape(120, 160, 3)
    player = cv2.VideoCapture(str(clips / "turned.mp4"), cv2.CAP_FFMPEG)
    shown = player.read()[1]
    player.release()
    assert np.array_equal(np.rot90(stored, 1), shown)  # EXIF 8: turn by 270 degrees clockwise
    source.close()


def test_the_fps_cap_of_a_file_goes_by_media_time(clips: Path) -> None:
    """10 fps media, cap 5: every second frame, however fast the file is read."""
    source = open_file(str(clips / "clip.mp4"), spec_of(fps=5.0))
    sink = drain(source, ListSink())
    assert 10 <= len(sink.frames) <= 11
    assert sink.drops[DropCause.RATE] == 20 - len(sink.frames)
    source.close()


def test_a_live_file_is_a_camera_that_never_ends(clips: Path) -> None:
    """`live` and `loop`: one frame each 100 ms of the clock, across the end of the file."""
    clock = ManualClock(5_000_000_000)
    path = str(clips / "clip.mp4")
    source = CaptureSource(
        lambda: cv2.VideoCapture(path, cv2.CAP_FFMPEG),
        spec_of(live=True, loop=True),
        Nature.FILE,
        description="clip",
        clock=clock,
        sleep=clock.advance_s,
    )
    sink = drain(source, ListSink(stop_after=45))
    stamps = [captured_ns for _, _, captured_ns in sink.frames]
    assert np.allclose(np.diff(stamps) / 1e6, 100, atol=1)
    assert sink.pixels[0] == sink.pixels[20] == sink.pixels[40]
    source.close()


def test_a_stop_is_seen_while_a_live_file_waits(clips: Path) -> None:
    """The wait for a frame's time is sliced."""
    clock = ManualClock()
    source = CaptureSource(
        lambda: cv2.VideoCapture(str(clips / "clip.mp4"), cv2.CAP_FFMPEG),
        spec_of(live=True),
        Nature.FILE,
        description="clip",
        clock=clock,
        sleep=clock.advance_s,
    )
    sink = ListSink(stop_when=lambda seen: seen.alive_calls >= 1)
    assert source.read(sink)
    assert source.read(sink) is False
    assert clock.monotonic_ns() < 100_000_000
    source.close()


@pytest.mark.parametrize(
    ("content", "named"), [(None, "No such file"), (b"", "empty"), (b"hello" * 100, "not a video")]
)
def test_a_file_that_is_no_video_says_why(tmp_path: Path, content: bytes | None, named: str) -> None:
    """Missing, empty and foreign are told apart."""
    path = tmp_path / "clip.mp4"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInputError, match=named):
        open_file(str(path), spec_of())


def test_a_file_that_ends_early_is_an_error() -> None:
    """A container that declares 100 frames and gives 3 is damaged; that is not a regular end."""
    capture = FakeCapture([flat(1), flat(2), flat(3)], properties={cv2.CAP_PROP_FRAME_COUNT: 100.0})
    source = CaptureSource(lambda: capture, spec_of(), Nature.FILE, description="clip.avi")
    sink = ListSink()
    with pytest.raises(BadInputError, match="after 3 of 100 frames"):
        drain(source, sink)
    assert len(sink.frames) == 3


def test_a_frame_is_stamped_when_grab_returns() -> None:
    """Case 46: local monotonic arrival, before decoding; nothing of the camera's own time is used."""
    clock = ManualClock()
    capture = FakeCapture([flat(1), flat(2), flat(3)], clock=clock, grab_s=0.04)
    source = CaptureSource(
        lambda: capture, spec_of(), Nature.STREAM, description="stream", clock=clock, sleep=clock.advance_s
    )
    sink = ListSink()
    for _ in range(3):
        source.read(sink)
    assert [captured_ns for _, _, captured_ns in sink.frames] == [40_000_000, 80_000_000, 120_000_000]


def test_case_14_a_stream_without_a_frame_is_lost() -> None:
    """Case 14: the end of a camera is never a regular end."""
    source = CaptureSource(
        lambda: FakeCapture([flat(1)]), spec_of(), Nature.STREAM, description="rtsp://cam/1"
    )
    sink = ListSink()
    assert source.read(sink)
    with pytest.raises(SourceLostError, match="rtsp://cam/1 gives no frame"):
        source.read(sink)


def test_case_15_frames_queued_while_nobody_read_are_thrown_away() -> None:
    """Case 15: a camera opened long before its first read is opened anew; its queue would pass for fresh."""
    clock = ManualClock()
    opened: list[FakeCapture] = []

    def open_capture() -> FakeCapture:
        opened.append(FakeCapture([flat(10 * len(opened) + 1), flat(2)], clock=clock))
        return opened[-1]

    source = CaptureSource(
        open_capture, spec_of(), Nature.STREAM, description="stream", clock=clock, sleep=clock.advance_s
    )
    clock.advance_s(90)
    sink = ListSink()
    assert source.read(sink)
    assert opened[0].released
    assert sink.frames[0][1:] == (flat(11).tobytes(), 90_000_000_000)


def test_frames_are_copied_where_opencv_takes_no_destination() -> None:
    """What retrieve returns decides, not what it was given."""
    capture = FakeCapture([flat(1), flat(2)])
    capture.takes_destination = False
    source = device_over(capture)
    sink = ListSink()
    source.read(sink)
    source.read(sink)
    assert sink.pixels == [flat(1).tobytes(), flat(2).tobytes()]


def test_a_change_of_size_in_the_stream_is_followed() -> None:
    """A camera that switches its resolution gives frames of the new format."""
    source = device_over(FakeCapture([flat(1), flat(2, 6, 4), flat(3, 6, 4)]))
    sink = ListSink()
    for _ in range(3):
        source.read(sink)
    assert [(f.width, f.height) for f, _, _ in sink.frames] == [(4, 2), (6, 4), (6, 4)]
    assert sink.pixels[1:] == [flat(2, 6, 4).tobytes(), flat(3, 6, 4).tobytes()]


def test_a_frame_that_cannot_be_converted_is_counted() -> None:
    """It is damaged; the next one comes through."""
    capture = FakeCapture([flat(1), flat(2), flat(3)])
    capture.broken.add(1)
    source = device_over(capture)
    sink = ListSink()
    for _ in range(3):
        source.read(sink)
    assert sink.pixels == [flat(1).tobytes(), flat(3).tobytes()]
    assert sink.drops == {DropCause.DAMAGED: 1}


def test_what_the_device_really_gives_is_noted() -> None:
    """Asked 1280x720 MJPG at 30, got 640x480 YUYV at 10: three sentences; as asked: none."""
    properties = {cv2.CAP_PROP_FPS: 10.0, cv2.CAP_PROP_FOURCC: float(cv2.VideoWriter.fourcc(*"YUYV"))}
    source = CaptureSource(
        lambda: FakeCapture([flat(1, 640, 480)], properties=properties),
        spec_of(width=1280, height=720, fps=30.0),
        Nature.DEVICE,
        description="device",
        asked_fourcc="MJPG",
    )
    assert source.info.live
    assert source.info.notes == (
        "asked for 1280x720, the device gives 640x480",
        "asked for 30 fps, the device gives 10",
        "asked for MJPG, the device gives YUYV",
    )
    content = device_over(
        FakeCapture([flat(1, 640, 480)], properties=properties), width=640, height=480, fps=10.0
    )
    assert content.info.notes == ()


@pytest.mark.parametrize(
    ("number", "named", "cure"),
    [
        (errno.ENOENT, "does not exist", "by-id"),
        (errno.EACCES, "no right", "group"),
        (errno.EBUSY, "another program", "fuser"),
    ],
)
def test_case_57_missing_forbidden_and_busy_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, number: int, named: str, cure: str
) -> None:
    """Case 57: three errors, three hints; OpenCV alone says no to all of them."""

    def refuse(path: str, _flags: int) -> int:
        raise OSError(number, "refused", path)

    monkeypatch.setattr("vedette.source.v4l2.os.open", refuse)
    with pytest.raises(SourceLostError, match=named) as caught:
        open_device("/dev/video7", spec_of())
    assert cure in (caught.value.cure or "")


def test_case_57_a_device_that_is_not_there_is_lost_and_may_come_back() -> None:
    """Case 57: for real, without a patch; plugging in later cures it."""
    with pytest.raises(SourceLostError, match="does not exist"):
        check_device("/dev/v4l/by-id/usb-nobody-has-this-index0")


def test_case_14_a_stable_name_is_resolved_at_each_opening(tmp_path: Path) -> None:
    """Case 14: the camera came back under another number; the link tells."""
    link = tmp_path / "by-id"
    for number in ("video0", "video4"):
        node = tmp_path / number
        node.touch()
        link.unlink(missing_ok=True)
        link.symlink_to(node)
        assert check_device(str(link)) == str(node.resolve())


def test_devices_are_asked_for_formats_they_have() -> None:
    """A number is a node; `mjpeg` is MJPG; a format that no camera has is refused."""
    assert device_path("2") == "/dev/video2"
    assert requested_fourcc(spec_of(container="mjpeg")) == "MJPG"
    assert requested_fourcc(spec_of(pixel=PixelFormat.YUYV422)) == "YUYV"
    assert requested_fourcc(spec_of()) == ""
    assert fourcc_name(0.0) == ""
    with pytest.raises(ConfigError, match="bgra"):
        requested_fourcc(spec_of(pixel=PixelFormat.BGRA))
    with pytest.raises(ConfigError, match="y4m"):
        requested_fourcc(spec_of(container="y4m"))


def test_a_dead_address_is_diagnosed() -> None:
    """Refused is not the same as a wrong path; neither shows the password."""
    reason = diagnose("rtsp://user:secret@127.0.0.1:1/stream")
    assert reason == "127.0.0.1:1 refuses connections"
