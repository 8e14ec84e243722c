"""`vedette-agent pipe`: frames on standard input, results on standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vedette.cli.frame_options import (
    FiniteRange,
    as_usage,
    check_frames,
    frame_options,
    parse_camera,
    parse_ring_memory,
    source_spec_from,
)
from vedette.cli.model_options import BundlePath, model_options, worker_spec_from
from vedette.cli.serving import serve
from vedette.cli.terminal import Terminal
from vedette.errors import ConfigError, UsageError
from vedette.runtime.plan import CameraPlan, RunPlan
from vedette.source.rawvideo import declared_format

EXAMPLE = """\b
Example:
  ffmpeg -i clip.mp4 -f yuv4mpegpipe - | vedette-agent pipe --model models/person --format y4m
"""


@click.command(epilog=EXAMPLE)
@click.option("--model", "bundle", required=True, type=BundlePath(), help="The bundle's folder.")
@frame_options
@click.option(
    "--camera",
    default="pipe",
    callback=parse_camera,
    show_default=True,
    help="The camera's name in the results.",
)
@click.option("--live", is_flag=True, help="Newest frame wins; without it every frame is answered.")
@click.option("--fps", type=FiniteRange(0), default=0.0, help="Cap the rate; 0 is no cap.")
@click.option(
    "--max-age-ms", type=FiniteRange(1, 86_400_000), help="With --live: drop frames older than this."
)
@click.option("--slots", type=click.IntRange(3, 64), default=4, show_default=True, help="Frames in memory.")
@click.option(
    "--ring-memory",
    callback=parse_ring_memory,
    default="256MB",
    show_default=True,
    help="The most that they may take.",
)
@model_options
@click.option(
    "--summary-json", type=click.Path(path_type=Path), help="Write the final figures there as JSON."
)
@click.option("--quiet", is_flag=True, help="Say nothing but errors on standard error.")
def pipe(  # noqa: PLR0917 - click passes by keyword
    bundle: Path,
    camera: str,
    live: bool,  # noqa: FBT001 - as above
    fps: float,
    max_age_ms: float | None,
    slots: int,
    ring_memory: int,
    accelerators: tuple[str, ...],
    on_fallback: str,
    threads: int | None,
    summary_json: Path | None,
    quiet: bool,  # noqa: FBT001 - as above
    **frame: Any,  # noqa: ANN401 - the frame options, read by source_spec_from
) -> None:
    """Answer every frame that comes in on standard input with a JSON line on standard output."""
    if sys.stdin is None:
        raise UsageError("standard input is closed, frames are expected there", cure="pipe something in")
    if sys.stdin.isatty():
        raise UsageError(
            "standard input is a terminal, frames are expected there",
            cure="pipe something in: ffmpeg … -f yuv4mpegpipe - | vedette-agent pipe --format y4m …",
        )
    if max_age_ms is not None and not live:
        raise UsageError(
            "--max-age-ms goes with --live", cure="without --live every frame is answered, however old"
        )
    source = source_spec_from(camera=camera, live=live, fps=fps, **frame)
    check_frames(source)
    plan = RunPlan(
        worker=worker_spec_from(bundle, accelerators, on_fallback, threads),
        cameras=(CameraPlan(source, max_age_ms="auto" if max_age_ms is None else max_age_ms, slots=slots),),
        ring_memory_bytes=ring_memory,
    )
    try:
        if source.container == "rawvideo":
            declared_format(source)
        serve(plan, Terminal(quiet=quiet), summary_to=summary_json, reader_may_leave=True)
    except ConfigError as error:
        raise as_usage(error) from error
