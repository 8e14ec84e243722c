"""`vedette-agent probe`: what a bundle really runs on, found out in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from vedette.cli.model_options import BundlePath, model_options, worker_spec_from
from vedette.cli.terminal import Terminal
from vedette.runtime.probe import ProbeReport, run_probe

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("bundle", type=BundlePath())
@click.option("--runs", type=click.IntRange(1), default=50, show_default=True, help="Frames for the latency.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def probe(  # noqa: PLR0917 - click passes by keyword
    bundle: Path,
    runs: int,
    accelerators: tuple[str, ...],
    on_fallback: str,
    threads: int | None,
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Load a bundle in a child, run its golden inputs, tell the accelerator's truth and the latency."""
    report = run_probe(
        worker_spec_from(bundle, accelerators, on_fallback, threads), runs=runs, say=Terminal().say
    )
    click.echo(msgspec.json.encode(report).decode() if as_json else describe(report))


def describe(report: ProbeReport) -> str:
    """The report for a person."""
    engine = report.accelerator
    lines = [
        f"model        {report.model.name} {report.model.version} ({report.task})",
        f"bundle       sha256 {report.model.sha256}",
        f"runtime      {engine.runtime}, threads {engine.threads}",
        f"asked for    {', '.join(engine.asked)}",
        f"runs on      {engine.effective}{'  (NOT what was asked first)' if engine.degraded else ''}",
        f"known by     {engine.evidence}",
    ]
    if engine.nodes:
        lines.append("graph nodes  " + ", ".join(f"{name} {count}" for name, count in engine.nodes.items()))
    lines += [f"skipped      {skipped.accelerator}: {skipped.reason}" for skipped in engine.skipped]
    test = report.self_test
    lines += [
        f"golden       {test.cases} inputs, worst deviation {test.worst:.0%} of its tolerance; {test.detail}",
        f"load         {engine.load_ms:.0f} ms; ready after {report.ready_ms:.0f} ms",
        f"latency      p50 {report.p50_ms:.2f} ms, p95 {report.p95_ms:.2f} ms a frame of {report.frame}",
    ]
    return "\n".join(lines)
