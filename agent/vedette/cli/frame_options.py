"""Options that describe the frames on standard input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from vedette.config.notation import PictureSize
from vedette.source.port import SourceSpec
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat

F = TypeVar("F", bound=Callable[..., Any])


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
                help="Framing of the pipe.",
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
        container=container or "",
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
