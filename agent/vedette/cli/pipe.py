"""`vedette-agent pipe`: frames on standard input, results on standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vedette.cli.frame_options import frame_options, source_spec_from
from vedette.cli.model_options import model_options, worker_spec_from
from vedette.cli.serving import serve
from vedette.cli.terminal import Terminal
from vedette.errors import UsageError
from vedette.runtime.plan import CameraPlan, RunPlan


@click.command()
@click.option(
    "--model", "bundle", required=True, type=click.Path(path_type=Path), help="The bundle's folder."
)
@frame_options
@click.option("--camera", default="pipe", show_default=True, help="The camera's name in the results.")
@click.option("--live", is_flag=True, help="Newest frame wins; without it every frame is answered.")
@click.option("--fps", type=click.FloatRange(0), default=0.0, help="Cap the rate; 0 is no cap.")
@click.option("--max-age-ms", type=click.FloatRange(1), help="With --live: drop frames older than this.")
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
    accelerators: tuple[str, ...],
    on_fallback: str,
    threads: int | None,
    summary_json: Path | None,
    quiet: bool,  # noqa: FBT001 - as above
    **frame: Any,  # noqa: ANN401 - the frame options, read by source_spec_from
) -> None:
    r"""Answer every frame that comes in on standard input with a JSON line on standard output.

    \b
    ffmpeg -i clip.mp4 -f yuv4mpegpipe - | vedette-agent pipe --model models/person --format y4m
    """
    if sys.stdin is None:
        raise UsageError("standard input is closed, frames are expected there", cure="pipe something in")
    if sys.stdin.isatty():
        raise UsageError(
            "standard input is a terminal, frames are expected there",
            cure="pipe something in: ffmpeg … -f yuv4mpegpipe - | vedette-agent pipe --format y4m …",
        )
    source = source_spec_from(camera=camera, live=live, fps=fps, **frame)
    plan = RunPlan(
        worker=worker_spec_from(bundle, accelerators, on_fallback, threads),
        cameras=(CameraPlan(source, max_age_ms="auto" if max_age_ms is None else max_age_ms),),
    )
    serve(plan, Terminal(quiet=quiet), summary_to=summary_json)
