"""Which source reads what, and what a wrong entry is told."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.sinks import ListSink, drain

from vedette.clock import ManualClock
from vedette.errors import BadInputError, ConfigError, SourceLostError
from vedette.source.pacing import Playback, RateCap
from vedette.source.package_files import resolve_package_file
from vedette.source.port import SourceSpec
from vedette.source.registry import OPENERS, kind_of, open_source
from vedette.source.synthetic import SyntheticSource, frame_number
from vedette.source.urls import redact_url
from vedette.wire.causes import DropCause
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from vedette.errors import VedetteError


def spec_of(text: str, **changes: object) -> SourceSpec:
    return SourceSpec(camera="front", input=text, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "container", "kind"),
    [
        ("-", "y4m", "y4m"),
        ("/dev/stdin", "rawvideo", "rawvideo"),
        ("rtsp://cam/1", "", "stream"),
        ("HTTP://cam/video.mjpg", "mjpeg", "stream"),
        ("/dev/video0", "", "device"),
        ("/dev/v4l/by-id/usb-cam-index0", "mjpeg", "device"),
        ("0", "", "device"),
        ("synthetic:8x8@5", "", "synthetic"),
    ],
)
def test_the_input_tells_its_kind(text: str, container: str, kind: str) -> None:
    """Pipes, addresses, devices: by their form alone."""
    assert kind_of(spec_of(text, container=container)) == (kind, text)


@pytest.mark.parametrize(
    ("name", "container", "kind"),
    [
        ("clip.mp4", "", "file"),
        ("clip.y4m", "", "y4m"),
        ("clip.MJPG", "", "mjpeg"),
        ("clip.yuv", "", "rawvideo"),
        ("clip.bin", "y4m", "y4m"),
        ("photo.JPEG", "", "pictures"),
        ("list.txt", "", "pictures"),
    ],
)
def test_a_path_tells_its_kind(tmp_path: Path, name: str, container: str, kind: str) -> None:
    """By container, then by suffix; a folder and a glob are pictures; file: addresses are paths."""
    path = tmp_path / name
    path.touch()
    assert kind_of(spec_of(str(path), container=container)) == (kind, str(path))
    assert kind_of(spec_of(f"file://{path}", container=container)) == (kind, str(path))
    assert kind_of(spec_of(str(tmp_path)))[0] == "pictures"
    assert kind_of(spec_of(str(tmp_path / "*.png")))[0] == "pictures"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (spec_of(""), "`input` is empty"),
        (spec_of("rtsp://"), "names no host"),
        (spec_of("http:///path"), "names no host"),
        (spec_of("rtsp://u:p@cam:port/1"), "is no address"),
        (spec_of("-", container="rawvideo"), "--size WxH and --pix-fmt"),
        (spec_of("-", container="rawvideo", width=4, height=4), "--pix-fmt"),
        (spec_of("-", container="y4n"), "did you mean y4m"),
        (spec_of("-", container="y4m", strides=(4,)), "strides are for raw video"),
        (spec_of("-", container="y4m", fps=math.nan), "fps nan"),
        (spec_of("x", width=-4, height=4), "size of -4x4"),
        (spec_of("x", stall_s=0), "stall_s 0"),
        (spec_of("ftp://user:secret@host/x"), r"ftp://\*\*\*@host"),
        (spec_of("rtsp://cam/1", container="y4m"), "not read from a network"),
        (spec_of("package:../x"), "package:NAME"),
        (spec_of("synthetic:huge"), "synthetic:640x480"),
        (spec_of("synthetic:99999x99999@1"), "out of range"),
    ],
)
def test_a_nonsense_entry_names_what_to_change(spec: SourceSpec, named: str) -> None:
    """A configuration error, never a guess; secrets stay out of it."""
    with pytest.raises(ConfigError) as caught:
        open_source(spec)
    import re

    shown = caught.value.diagnostics()
    assert re.search(named, shown), shown
    assert "secret" not in shown


def test_all_problems_of_an_entry_are_named_at_once() -> None:
    """Not one after the other."""
    with pytest.raises(ConfigError) as caught:
        open_source(spec_of("", fps=-1.0, stall_s=-1.0))
    assert len(caught.value.problems) == 3


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    """Exit 65, with the path."""
    with pytest.raises(BadInputError, match=r"missing\.mp4"):
        open_source(spec_of(str(tmp_path / "missing.mp4")))


def test_every_opener_exists() -> None:
    """The table is strings; each must resolve."""
    import importlib

    for target in OPENERS.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_importing_the_registry_pulls_in_no_opencv() -> None:
    """Nothing heavy is loaded before an input asks for it."""
    program = "import sys, vedette.source.registry; sys.exit('cv2' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0


def test_real_files_open_by_their_names(clips: Path) -> None:
    """mp4, y4m and mjpeg of one clip give 20 frames each."""
    for name in ("clip.mp4", "clip.y4m", "clip.mjpeg"):
        source = open_source(spec_of(str(clips / name)))
        assert len(drain(source, ListSink()).frames) == 20
        source.close()


def test_a_y4m_file_played_live_is_paced(clips: Path) -> None:
    """A file that is to be a camera goes through the paced reader; raw video cannot say its rate."""
    source = open_source(spec_of(str(clips / "clip.y4m"), live=True, loop=True))
    assert source.info.live
    assert source.info.fps == 10.0
    source.close()
    raw = {"container": "rawvideo", "width": 4, "height": 4, "pixel": PixelFormat.GRAY8, "live": True}
    with pytest.raises(ConfigError, match="no time stamps"):
        open_source(spec_of(str(clips / "clip.y4m"), **raw))


def test_case_18_a_fifo_waits_for_the_next_writer_when_told(tmp_path: Path) -> None:
    """Case 18: by option, the writer's leaving is a loss to come back from; without it, the clean end."""
    fifo = tmp_path / "frames"
    os.mkfifo(fifo)
    raw = {"container": "rawvideo", "width": 2, "height": 2, "pixel": PixelFormat.GRAY8}
    for loop in (False, True):
        source = open_source(spec_of(str(fifo), loop=loop, **raw))
        writer = os.open(fifo, os.O_WRONLY)
        os.write(writer, b"abcdefgh")
        os.close(writer)
        sink = ListSink()
        if loop:
            with pytest.raises(SourceLostError, match="writer closed"):
                drain(source, sink)
        else:
            drain(source, sink)
        assert sink.pixels == [b"abcd", b"efgh"]
        source.close()


def test_a_fifo_without_a_writer_yet_is_waited_for(tmp_path: Path) -> None:
    """Opening does not block, and no writer yet is not the end."""
    fifo = tmp_path / "frames"
    os.mkfifo(fifo)
    raw = {"container": "rawvideo", "width": 2, "height": 2, "pixel": PixelFormat.GRAY8}
    source = open_source(spec_of(str(fifo), **raw))
    assert source.read(ListSink(stop_when=lambda seen: seen.alive_calls >= 1)) is False
    source.close()


def test_a_file_inside_a_package_is_found_without_importing_it() -> None:
    """Demo clips: the package stays unimported, climbing out is refused, absence names the cure."""
    assert resolve_package_file("package:hypothesis/version.py").is_file()
    with pytest.raises(BadInputError, match="not installed"):
        resolve_package_file("package:nobody_has_this/clip.mp4")
    with pytest.raises(BadInputError, match="holds no"):
        resolve_package_file("package:hypothesis/clip.mp4")
    for text in (
        "package:",
        "package:x",
        "package:hypothesis/../x",
        "package:a.b/c",
        "package:hypothesis//etc/x",
    ):
        with pytest.raises(ConfigError, match="package:NAME"):
            resolve_package_file(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://admin:pa55@cam:554/1", "rtsp://***@cam:554/1"),
        ("rtsp://admin@cam/1", "rtsp://***@cam/1"),
        ("rtsp://admin:p@ss@cam/1", "rtsp://***@cam/1"),
        ("rtsp://admin:p/ss@cam/1", "rtsp://***@cam/1"),
        ("http://cam/v?user=joe&pwd=pa55&ch=1", "http://cam/v?user=***&pwd=***&ch=1"),
        ("https://cam/v?access_token=pa55#t=1", "https://cam/v?access_token=***#t=1"),
        ("opening rtsp://a:pa55@cam/1 failed", "opening rtsp://***@cam/1 failed"),
        ("rtsp://cam/1", "rtsp://cam/1"),
        ("/dev/video0", "/dev/video0"),
    ],
)
def test_addresses_are_shown_without_their_secrets(url: str, shown: str) -> None:
    """User names, passwords, tokens; also inside sentences."""
    assert redact_url(url) == shown


@given(
    user=st.text(st.characters(exclude_characters=" \t\r\n", codec="ascii"), min_size=1, max_size=8),
    password=st.text("abcXYZ012:@/?#%&=", max_size=12).map(lambda tail: "SECRET" + tail),
)
def test_no_password_survives(user: str, password: str) -> None:
    """Whatever characters people put into passwords without escaping them."""
    assert "SECRET" not in redact_url(f"rtsp://{user}:{password}@cam/1")


@pytest.mark.parametrize(
    ("rate", "cap"), [(30, 30), (30, 10), (25, 10), (15, 10), (30, 29), (10, 30), (60, 7)]
)
def test_a_cap_keeps_its_rate_under_jitter_and_never_exceeds_it(rate: int, cap: int) -> None:
    """A thousand frames with jitter of a fifth of the period: min(rate, cap) within 2 %, in the long run."""
    import random

    rng = random.Random(rate * 100 + cap)  # noqa: S311 - jitter
    limit = RateCap(cap)
    times = [(index + rng.uniform(-0.2, 0.2)) / rate for index in range(1000)]
    admitted = sum(limit.admits(moment * 1e9) for moment in times)
    expected = 1000 / rate * min(rate, cap)
    assert expected * 0.98 - 1 <= admitted <= expected + 2


def test_playback_keeps_its_beat_and_gives_up_a_backlog() -> None:
    """Due times are absolute; after a stop of more than a second the schedule starts anew."""
    playback = Playback()
    assert playback.due_ns(0, 7_000_000_000) == 7_000_000_000
    assert playback.due_ns(100_000_000, 7_030_000_000) == 7_100_000_000
    assert playback.due_ns(200_000_000, 7_500_000_000) == 7_200_000_000
    assert playback.due_ns(300_000_000, 9_500_000_000) == 9_500_000_000
    assert playback.due_ns(400_000_000, 9_500_000_000) == 9_600_000_000


def test_synthetic_frames_carry_their_number() -> None:
    """Lossless: exactly N frames, each another picture with its number in it."""
    source = open_source(spec_of("synthetic:32x24@30?frames=50"))
    sink = drain(source, ListSink())
    assert [frame_number(pixels) for pixels in sink.pixels] == list(range(50))
    assert len(set(sink.pixels)) == 50
    assert source.info.format.pixel is PixelFormat.BGR24


def test_synthetic_live_frames_are_paced_and_capped() -> None:
    """30 fps in real time under a cap of 10."""
    clock = ManualClock()
    spec = spec_of("synthetic:8x8@30?frames=30", live=True, fps=10.0)
    sink = drain(SyntheticSource(spec, clock=clock, sleep=clock.advance_s), ListSink())
    assert 10 <= len(sink.frames) <= 11
    assert sink.drops[DropCause.RATE] == 30 - len(sink.frames)
    assert abs(clock.monotonic_ns() / 1e9 - 29 / 30) < 0.01


def test_a_terminal_is_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone who forgot the pipe is told so, instead of being waited for."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ConfigError, match="terminal"):
        open_source(spec_of("-", container="y4m"))


@pytest.mark.parametrize("drip", [1, 7, 100_000], ids=lambda count: f"{count} bytes at a time")
def test_a_pipe_that_announces_itself_needs_no_container(
    feed: Callable[[Iterable[bytes]], int], drip: int
) -> None:
    """y4m in drips: what was looked at to know it is read all the same, to the last byte."""
    frame = b"FRAME\n" + bytes(range(96))
    stream = b"YUV4MPEG2 W8 H8 F25:1 C420jpeg\n" + 3 * frame
    fd = feed(stream[at : at + drip] for at in range(0, len(stream), drip))
    source = open_source(spec_of(f"/dev/fd/{fd}"))
    sink = drain(source, ListSink())
    source.close()
    os.close(fd)
    assert sink.pixels == [bytes(range(96))] * 3
    assert sink.remarks == []


@pytest.mark.parametrize(
    ("stream", "error", "words"),
    [
        (b"", BadInputError, "nothing came"),
        (b"GIF89a" + bytes(100), BadInputError, "holds a GIF picture"),
        (bytes(range(200, 256)) * 100, ConfigError, "raw video says nothing of itself"),
    ],
)
def test_a_pipe_that_does_not_announce_itself_is_not_guessed_at(
    feed: Callable[[Iterable[bytes]], int], stream: bytes, error: type[VedetteError], words: str
) -> None:
    """What it is where that is known, else what has to be told."""
    fd = feed([stream])
    with pytest.raises(error, match=words) as caught:
        open_source(spec_of(f"/dev/fd/{fd}"))
    os.close(fd)
    assert caught.value.cure is not None
