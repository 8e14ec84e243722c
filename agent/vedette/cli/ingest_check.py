"""`vedette-agent ingest-check`: what is in a pipe, and how `vedette-agent pipe` has to be called for it."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vedette.cli.frame_options import FiniteRange, check_frames, frame_options, source_spec_from
from vedette.cli.terminal import Terminal
from vedette.errors import BadInputError, UsageError
from vedette.source.inspection import Inspection, inspect_pipe
from vedette.wire.pixels import FrameFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.source.port import SourceSpec

STDIN_FD = 0
# Hardware encoders and decoders store pictures with heights that are multiples of these.
ROW_STEPS = (8, 16, 32, 64)
NO_CURE = "look at what the producer writes: ffmpeg ... -f yuv4mpegpipe - is understood without any option"


class Verdict(msgspec.Struct, frozen=True):
    """What `--json` prints: `command` is the line to use; it is empty where `cause` says what is wrong.

    `found` is null where the input broke off before anything could be counted.
    """

    v: int
    usable: bool
    command: str
    cause: str
    cure: str
    found: Inspection | None


EXAMPLES = """\b
Examples:
  ffmpeg -i clip.mp4 -f yuv4mpegpipe - | vedette-agent ingest-check
  camera | vedette-agent ingest-check --size 641x479 --pix-fmt bgr24
"""


@click.command("ingest-check", epilog=EXAMPLES)
@frame_options
@click.option(
    "--frames", type=click.IntRange(2), default=100, show_default=True, help="Stop after so many frames."
)
@click.option(
    "--seconds",
    type=FiniteRange(0, 3600, min_open=True),
    default=5.0,
    show_default=True,
    help="Stop after so long.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def ingest_check(
    *,
    frames: int,
    seconds: float,
    as_json: bool,
    **frame: Any,  # noqa: ANN401 - the frame options, read by source_spec_from
) -> None:
    """Tell what is in the pipe on standard input, and the exact `pipe` command for it.

    y4m and MJPEG announce themselves. Raw video has to be described; where the description does not fit, the
    pixels often tell what would. The exit code is 0 when the printed command fits, else 65.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "standard input is closed or a terminal; the frames to look at are expected there",
            cure="pipe something in: ffmpeg ... -f yuv4mpegpipe - | vedette-agent ingest-check",
        )
    spec = source_spec_from(camera="pipe", live=False, fps=0.0, **frame)
    check_frames(spec)
    terminal = Terminal()
    terminal.status(f"looking at the pipe, up to {frames} frames or {seconds:g} s ...")
    verdict = examine(spec, limit_frames=frames, limit_s=seconds)
    terminal.status("")
    if as_json:
        click.echo(msgspec.json.encode(verdict))
    elif verdict.found is not None:
        click.echo("\n".join(report(verdict.found, verdict.command)))
    if not verdict.usable:
        raise BadInputError(verdict.cause, cure=verdict.cure)


def examine(spec: SourceSpec, *, limit_frames: int, limit_s: float) -> Verdict:
    """Look at standard input and judge what is there."""
    try:
        found = inspect_pipe(
            STDIN_FD,
            container=spec.container,
            width=spec.width,
            height=spec.height,
            pixel=spec.pixel,
            strides=spec.strides,
            padded_height=spec.padded_height,
            limit_frames=limit_frames,
            limit_s=limit_s,
        )
    except BadInputError as error:
        return Verdict(1, usable=False, command="", cause=error.cause, cure=error.cure or NO_CURE, found=None)
    fault = fault_of(found, spec)
    if fault is not None:
        cause, cure = fault
        return Verdict(1, usable=False, command="", cause=cause, cure=cure, found=found)
    return Verdict(
        1, usable=True, command=pipe_command(found.container, spec), cause="", cure="", found=found
    )


def fault_of(found: Inspection, spec: SourceSpec) -> tuple[str, str] | None:
    """Cause and cure where the input is not usable as it was described."""
    if found.container == "rawvideo" and found.format is None:
        return _undescribed(found)
    if not found.frames:
        return _no_frame(found)
    if found.container != "rawvideo" or found.format is None:
        return None
    sheared = rows_differ(found)
    if found.misaligned:
        cause = (
            f"{found.read_bytes:,} bytes are no whole number of frames of {found.format.frame_bytes:,}: "
            f"{found.leftover_bytes:,} bytes are left over"
        )
        return cause, _cure(found, spec)
    if sheared:
        cause = (
            f"rows look {found.stride_bytes:,} bytes apart and not "
            f"{found.format.planes[0].stride_bytes:,}: every picture would be sheared"
        )
        return cause, _cure(found, spec)
    return None


def rows_differ(found: Inspection) -> bool:
    """Whether the pixels show other rows than those that were declared."""
    declared = found.format
    return (
        declared is not None
        and bool(found.stride_bytes)
        and found.stride_bytes != declared.planes[0].stride_bytes
    )


def _undescribed(found: Inspection) -> tuple[str, str]:
    if found.looks_like:
        return f"this is {found.looks_like}", (
            "decode it first: ffmpeg -i FILE -f yuv4mpegpipe - | vedette-agent pipe --format y4m ...; "
            "or name the file as the input of a camera for `vedette-agent run`"
        )
    cause = "this is neither y4m nor MJPEG, and raw video does not tell its size and pixel format"
    if found.stride_bytes and found.suggestions:
        return cause, (
            f"describe it. Rows look {found.stride_bytes:,} bytes apart; what fits, likeliest first:\n    "
            + "\n    ".join(found.suggestions)
        )
    return cause, (
        "if it is raw video, give --size and --pix-fmt; if not, let the producer write y4m: "
        "ffmpeg ... -f yuv4mpegpipe -"
    )


def _no_frame(found: Inspection) -> tuple[str, str]:
    came = f"{found.read_bytes:,} bytes came, and not one whole frame"
    if found.container == "mjpeg":
        return f"{came} of MJPEG", "leave --format out to see what it is, or look at the producer"
    if found.format is not None and not found.ended:
        came += f" of {found.format.frame_bytes:,} bytes"
        return came, "look at the producer, which fell silent or is slow; --seconds waits longer"
    return came, "look at the producer: it ended early, or the size that was declared is too large"


def _cure(found: Inspection, spec: SourceSpec) -> str:
    """What would fit instead: another geometry, padded rows or columns, or nothing that is known."""
    differ = rows_differ(found)
    # Rows that are closer than a row is long cannot be padding: width or pixel format is another.
    padded = differ and found.stride_bytes >= _declared(spec, ()).planes[0].row_bytes
    strides = strides_like(found, spec) if padded else spec.strides
    rows = f"rows look {found.stride_bytes:,} bytes apart; " if differ else ""
    if differ and found.suggestions:
        return f"{rows}with such rows this would fit:\n    " + "\n    ".join(found.suggestions)
    if fitting := stored_like(found, spec, strides):
        return f"{rows}this fits the length:\n    {pipe_command('rawvideo', fitting)}"
    if found.suggestions:
        return f"{rows}what would fit, the likeliest first:\n    " + "\n    ".join(found.suggestions)
    if padded:
        command = pipe_command("rawvideo", msgspec.structs.replace(spec, strides=strides))
        return f"{rows}try\n    {command}"
    return "check --size, --pix-fmt, --stride and --padded-height, and that nothing else writes to the pipe"


def stored_like(found: Inspection, spec: SourceSpec, strides: tuple[int, ...]) -> SourceSpec | None:
    """The same picture padded as encoders do it, where that makes the whole input fit (casebook 16)."""
    for step in (1, *ROW_STEPS):
        stored_height = -(-spec.height // step) * step
        candidate = msgspec.structs.replace(
            spec, strides=strides, padded_height=0 if stored_height == spec.height else stored_height
        )
        if found.ended and found.read_bytes % _declared(candidate, strides).frame_bytes == 0:
            return candidate
    return None


def strides_like(found: Inspection, spec: SourceSpec) -> tuple[int, ...]:
    """Strides of all planes when the first one has the stride that the pixels suggest."""
    planes = _declared(spec, ()).planes
    first = planes[0].row_bytes
    # A plane of half the width has half the stride; an interleaved one of half the width has the same.
    return tuple(
        found.stride_bytes if plane.row_bytes * 4 > first * 3 else -(-found.stride_bytes // 2)
        for plane in planes
    )


def _declared(spec: SourceSpec, strides: tuple[int, ...]) -> FrameFormat:
    """The format that was described.

    Raises:
        ValueError: It is impossible, or nothing was described.
    """
    if spec.pixel is None:
        raise ValueError("no pixel format was described")
    return describe(spec.width, spec.height, spec.pixel, strides=strides, padded_height=spec.padded_height)


def pipe_command(container: str, spec: SourceSpec) -> str:
    """The `vedette-agent pipe` line for such frames."""
    words = ["vedette-agent", "pipe", "--model", "BUNDLE", "--format", container]
    if container == "rawvideo" and spec.pixel is not None:
        words += ["--size", f"{spec.width}x{spec.height}", "--pix-fmt", spec.pixel.value]
        if spec.strides:
            words += ["--stride", ",".join(str(stride) for stride in spec.strides)]
        if spec.padded_height:
            words += ["--padded-height", str(spec.padded_height)]
    if spec.matrix is not None:
        words += ["--matrix", spec.matrix.value]
    if spec.range is not None:
        words += ["--range", spec.range.value]
    return shlex.join(words)


def report(found: Inspection, command: str) -> Iterator[str]:
    """The findings for a person."""
    end = "the whole input" if found.ended else "then stopped looking"
    if found.format is None:
        rows = f"look {found.stride_bytes:,} bytes apart" if found.stride_bytes else "none to be seen"
        yield f"container   {found.container}, as far as one can tell"
        yield f"bytes       {found.read_bytes:,}, {end}"
        yield f"rows        {rows}"
        yield from (f"note        {note}" for note in found.notes)
        return
    yield f"container   {found.container}, {'as described' if found.declared else 'by its first bytes'}"
    yield from _format_lines(found.container, found.format)
    yield f"frames      {found.frames:,} whole ones in {found.read_bytes:,} bytes, {end}"
    if found.frames > 1:
        yield f"rate        {_rate(found)}"
        p50, p95 = found.interval_p50_ms, found.interval_p95_ms
        yield f"jitter      p50 {p50:.1f} ms, p95 {p95:.1f} ms from frame to frame"
    yield f"alignment   {_alignment(found)}"
    yield from (f"note        {note}" for note in found.notes)
    if command:
        yield f"use         {command}"


def _format_lines(container: str, found: FrameFormat) -> Iterator[str]:
    width, height = found.upright_size
    size = f"{width}x{height}"
    if container == "mjpeg":
        turned = ", turned upright by its EXIF orientation" if found.orientation != 1 else ""
        yield f"picture     {size}, {found.pixel.value} when decoded{turned}"
        return
    yield f"picture     {size}, {found.pixel.value}, {found.frame_bytes:,} bytes a frame"
    strides = ", ".join(f"{plane.stride_bytes:,}" for plane in found.planes)
    padding = found.planes[0].stride_bytes - found.planes[0].row_bytes
    padded = f"{padding:,} of them padding" if padding else "no padding"
    yield f"stride      {strides} bytes from row to row, {padded}"


def _rate(found: Inspection) -> str:
    measured = f"{found.measured_fps:,.1f} fps measured" if found.measured_fps else "all at once"
    if not found.declared_fps:
        return measured
    pace = ""
    if not found.measured_fps or found.measured_fps > 2 * found.declared_fps:
        pace = " (as fast as it was read, so the producer does not keep time)"
    return f"{found.declared_fps:g} fps declared, {measured}{pace}"


def _alignment(found: Inspection) -> str:
    if not found.frames:
        return "not to be told: not one whole frame came"
    if found.misaligned:
        return f"the input ended {found.leftover_bytes:,} bytes into a frame"
    if rows_differ(found):
        return f"wrong: rows look {found.stride_bytes:,} bytes apart"
    if found.ended:
        return "good: the input ended with a whole frame"
    if found.container == "rawvideo":
        return "not proven: that shows at the end of the input (--frames, --seconds look at more of it)"
    return "good: each frame began where the one before it ended"
