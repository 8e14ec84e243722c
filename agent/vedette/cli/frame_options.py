"""Options that describe the frames on standard input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from vedette.config.notation import PictureSize, parse_byte_size, parse_name
from vedette.errors import ConfigError, UsageError
from vedette.source.port import SourceSpec
from vedette.source.registry import check_spec
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat, describe

F = TypeVar("F", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A range of numbers that `nan` and `inf` are not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """See click."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be used.", param, ctx)
        return number


def parse_ring_memory(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """A click callback for bytes with their unit: `256MB`, `1.5GiB`."""
    try:
        return parse_byte_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def parse_camera(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """A click callback for a camera's name, as strict as the configuration."""
    try:
        return parse_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def parse_size(_context: click.Context, _option: click.Parameter, value: str | None) -> PictureSize | None:
    """A click callback for `WxH`."""
    if value is None:
        return None
    try:
        return PictureSize.from_document(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _parse_strides(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    try:
        strides = tuple(int(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter("expected bytes a row for each plane, such as 1952,1952") from error
    if min(strides) < 1:
        raise click.BadParameter("a stride is at least one byte")
    return strides


def frame_options(command: F) -> F:
    """Add --format, --size, --pix-fmt and their companions."""
    for option in reversed(
        (
            click.option(
                "--format",
                "container",
                type=click.Choice(["y4m", "rawvideo", "mjpeg"]),
                help="Framing of the pipe; y4m and mjpeg announce themselves.",
            ),
            click.option("--size", callback=parse_size, help="WxH of raw video, such as 640x480."),
            click.option(
                "--pix-fmt",
                type=click.Choice([f.value for f in PixelFormat]),
                help="Pixel format of raw video.",
            ),
            click.option("--stride", callback=_parse_strides, help="Bytes a row, for each plane: 1952,1952."),
            click.option("--padded-height", type=click.IntRange(1), help="Rows stored, when padded."),
            click.option("--matrix", type=click.Choice([m.value for m in ColorMatrix]), help="YUV matrix."),
            click.option(
                "--range", "color_range", type=click.Choice([r.value for r in ColorRange]), help="YUV range."
            ),
        )
    ):
        command = option(command)
    return command


def source_spec_from(
    *,
    camera: str,
    live: bool,
    fps: float,
    container: str | None,
    size: PictureSize | None,
    pix_fmt: str | None,
    stride: tuple[int, ...],
    padded_height: int | None,
    matrix: str | None,
    color_range: str | None,
) -> SourceSpec:
    """The source spec of standard input for these options."""
    return SourceSpec(
        camera=camera,
        input="-",
        container=container or ("rawvideo" if size is not None and pix_fmt is not None else ""),
        width=0 if size is None else size.width,
        height=0 if size is None else size.height,
        pixel=None if pix_fmt is None else PixelFormat(pix_fmt),
        strides=stride,
        padded_height=padded_height or 0,
        matrix=None if matrix is None else ColorMatrix(matrix),
        range=None if color_range is None else ColorRange(color_range),
        fps=fps,
        live=live,
    )


def check_frames(spec: SourceSpec) -> None:
    """Refuse half a description of raw video, and one that cannot be, before anything is read.

    Raises:
        UsageError: Those.
    """
    raw = (spec.width, spec.pixel is not None, spec.strides, spec.padded_height)
    if spec.container in ("y4m", "mjpeg") and any(raw):
        raise UsageError(
            f"--size, --pix-fmt, --stride and --padded-height do nothing with --format {spec.container}",
            cure="leave them out: the stream itself tells its size",
        )
    if any(raw) and not (spec.width and spec.pixel):
        raise UsageError(
            "raw video is described by --size and --pix-fmt together",
            cure="give both, or neither to see what `vedette-agent ingest-check` makes of the pixels",
        )
    try:
        check_spec(spec)
        if spec.width and spec.pixel:
            describe(
                spec.width, spec.height, spec.pixel, strides=spec.strides, padded_height=spec.padded_height
            )
    except ConfigError as error:
        raise as_usage(error) from error
    except ValueError as error:
        raise UsageError(
            f"there are no such frames: {error}",
            cure="give --size, --pix-fmt, --stride and --padded-height as the producer has them",
        ) from error


def as_usage(error: ConfigError) -> UsageError:
    """The same mistake where the command line is all the configuration there is."""
    return UsageError("; ".join((error.cause, *error.problems)), cure=error.cure)
