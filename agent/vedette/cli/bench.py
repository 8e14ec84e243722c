"""`vedette-agent bench`: the whole path against the bare engine call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from vedette.cli.frame_options import parse_size
from vedette.cli.model_options import BundlePath, model_options, worker_spec_from
from vedette.cli.terminal import Terminal
from vedette.runtime.benchmark import BenchReport, Percentiles, run_benchmark

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.config.notation import PictureSize


@click.command()
@click.argument("bundle", type=BundlePath())
@click.option("--size", callback=parse_size, default="640x480", show_default=True, help="Frame size.")
@click.option("--frames", type=click.IntRange(50), default=1000, show_default=True, help="Frames in all.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Alternating rounds.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def bench(  # noqa: PLR0917 - click passes by keyword
    bundle: Path,
    size: PictureSize,
    frames: int,
    rounds: int,
    accelerators: tuple[str, ...],
    on_fallback: str,
    threads: int | None,
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Measure one frame at a time through ring and worker against OpenCV and the engine in one process."""
    terminal = Terminal()
    report = run_benchmark(
        worker_spec_from(bundle, accelerators, on_fallback, threads),
        width=size.width,
        height=size.height,
        frames=frames,
        rounds=rounds,
        say=terminal.say if terminal.interactive else lambda _: None,
    )
    click.echo(msgspec.json.encode(report).decode() if as_json else table(report))


def table(report: BenchReport) -> str:
    """The figures for a person."""

    def row(name: str, figures: Percentiles) -> str:
        return f"{name:<34}{figures.p50:>10.1f}{figures.p95:>10.1f}{figures.p99:>10.1f}"

    return "\n".join(
        (
            f"{report.bundle} on {report.engine} ({report.accelerator}), threads {report.threads}",
            f"{report.frame}, {report.frames} frames, one at a time",
            f"{'microseconds':<34}{'p50':>10}{'p95':>10}{'p99':>10}",
            row("floor: cv2 + engine, one process", report.floor_us),
            row("the same with our preprocessing", report.own_floor_us),
            row("path: ring, worker, answer", report.path_us),
            row("overhead of the path", report.overhead_us),
            f"ratio of the medians {report.ratio:.3f} (to our own preprocessing {report.own_ratio:.3f})",
        )
    )
