"""What a run amounted to: a report for machines (JSON) and for people (tables on a terminal)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.telemetry.meter import STAGES, Meter, StageStats
from vedette.wire.messages import AcceleratorReport, ModelRef
from vedette.wire.telemetry import EscalationFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console
    from rich.table import Table

    from vedette.telemetry.ledger import LedgerSnapshot

_STAGE_MEANINGS = {
    "transport": "source to worker",
    "queue": "waiting for its turn",
    "preprocess": "pixels to tensor",
    "infer": "the engine",
    "postprocess": "tensor to answer",
    "total": "arrival to answer",
    "deliver": "answer to output line",
}


_WORDS = {
    "answered": "corrected by it",
    "agreed": "confirmed by it",
    "expired": "too late: its answer was not there in time",
    "declined_cool_down": "not asked: the same scene was asked about a moment ago",
    "declined_budget": "not asked: nothing left to spend",
    "declined_busy": "not asked: every place on the way was taken",
    "declined_offline": "not asked: no way to it just then",
    "declined_stopped": "not asked: the asking process ended with them in hand",
}


class CameraSummary(msgspec.Struct, frozen=True):
    """One camera: in = ok + dropped + failed + in_flight; `fps` is answers a second while it gave frames."""

    camera: str
    frames_in: int
    ok: int
    dropped: dict[str, int]
    failed: dict[str, int]
    in_flight: int
    fps: float
    source_restarts: int
    latency: dict[str, StageStats]


class ModelCounts(msgspec.Struct):
    """What one model answered, and failed to, on all cameras."""

    model: ModelRef
    ok: int = 0
    failed: int = 0


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run; `latency` merges all cameras, `imbalance` is empty when every frame is accounted for."""

    v: int = 1
    duration_s: float
    fps: float
    model: ModelRef | None
    engine: AcceleratorReport | None
    worker_restarts: int
    cameras: tuple[CameraSummary, ...]
    latency: dict[str, StageStats]
    imbalance: dict[str, int]
    rejected_latencies: int
    models: tuple[ModelCounts, ...] = ()
    escalation: EscalationFigures | None = None


def summarise(
    snapshot: LedgerSnapshot,
    meter: Meter,
    *,
    duration_s: float,
    model: ModelRef | None,
    engine: AcceleratorReport | None,
    worker_restarts: int = 0,
    source_restarts: Mapping[str, int] | None = None,
    in_flight: Mapping[str, int] | None = None,
    models: Iterable[ModelCounts] = (),
    active_s: Mapping[str, float] | None = None,
    escalation: EscalationFigures | None = None,
) -> RunSummary:
    """Put the figures of a run together.

    Args:
        snapshot: The ledger, taken when nothing changes any more.
        meter: The latencies.
        duration_s: How long frames were accepted, on the monotonic clock.
        model: What answered; None if no model ever loaded.
        engine: What it ran on; None if no model ever loaded.
        worker_restarts: How often the engine worker was started again.
        source_restarts: How often each camera's source was started again.
        in_flight: Frames known to be on the way, as for `LedgerSnapshot.imbalance`.
        models: What each model answered, where the model changed during the run.
        active_s: How long each camera gave frames, where that is not the whole run.
        escalation: What was asked of the large model, in totals; None where there is none.
    """
    restarts = source_restarts or {}
    active = active_s or {}
    cameras = tuple(
        CameraSummary(
            camera=name,
            frames_in=counts.frames_in,
            ok=counts.ok,
            dropped=counts.dropped,
            failed=counts.failed,
            in_flight=counts.in_flight,
            fps=_rate(counts.ok, active.get(name, duration_s)),
            source_restarts=restarts.get(name, 0),
            latency={stage: meter.stats(stage, name) for stage in STAGES},
        )
        for name, counts in snapshot.cameras.items()
    )
    return RunSummary(
        duration_s=duration_s,
        fps=_rate(sum(camera.ok for camera in cameras), duration_s),
        model=model,
        engine=engine,
        worker_restarts=worker_restarts,
        cameras=cameras,
        latency={stage: meter.stats(stage) for stage in STAGES},
        imbalance=snapshot.imbalance(in_flight),
        rejected_latencies=meter.rejected,
        models=tuple(models),
        escalation=escalation,
    )


def to_json(summary: RunSummary) -> bytes:
    """The report as one line of JSON, without the newline."""
    return msgspec.json.encode(summary)


def render(summary: RunSummary, console: Console) -> None:
    """Print the report for a person; `console` decides on width and colour."""
    console.print(_headline(summary), highlight=False)
    for line in _engine_lines(summary):
        console.print(line, highlight=False, markup=False, style="yellow" if line.startswith("!") else None)
    console.print(_camera_table(summary))
    if any(stats.count for stats in summary.latency.values()):
        console.print(_stage_table(summary))
    if summary.escalation is not None:
        for line in escalation_lines(summary.escalation):
            console.print(line, highlight=False, markup=False)
    for line in _warnings(summary):
        console.print(line, highlight=False, markup=False, style="yellow")


def escalation_lines(figures: EscalationFigures) -> list[str]:
    """What was asked of the large model, what became of it and what it cost, and how local answers do."""
    asked = f"{figures.escalated[1]:,} unsure answers and {figures.audits[1]:,} at random"
    cost = f"{figures.calls[1]:,} calls, {figures.sent_bytes[1] / 1e6:,.2f} MB sent"
    spent = f", {figures.money_day:,.4f} of money today" if figures.money_day else ""
    lines = [f"large model: asked about {asked}, {cost}{spent}"]
    lines += [f"  {count[1]:>7,} {outcome_text(word)}" for word, count in figures.outcomes.items()]
    for found, what in (
        (figures.local_agreement, "of the local answers agree with it"),
        (figures.agreement, "or more of the answers, corrections included"),
    ):
        if found is not None:
            share, low, high = found
            lines.append(f"  {share:>7.1%} {what} (95 % interval {low:.1%} to {high:.1%})")
    return lines


def outcome_text(word: str) -> str:
    """The outcome of an escalation in words."""
    return _WORDS.get(word, word.replace("_", ": ", 1).replace("_", " "))


def _headline(summary: RunSummary) -> str:
    answered = sum(camera.ok for camera in summary.cameras)
    return (
        f"{answered:,} answers from {_plural(len(summary.cameras), 'camera')} "
        f"in {duration_text(summary.duration_s)}, {summary.fps:.1f} a second"
    )


def _engine_lines(summary: RunSummary) -> list[str]:
    lines = []
    if summary.model is not None:
        lines.append(f"model   {summary.model.name} {summary.model.version}")
    if len(summary.models) > 1:
        lines.extend(
            f"        {counts.model.name} {counts.model.version}: {counts.ok:,} ok, {counts.failed:,} failed"
            for counts in summary.models
        )
    engine = summary.engine
    if engine is None:
        return [*lines, "! no model was loaded"]
    lines.append(
        f"engine  {engine.runtime} on {engine.effective}, {_plural(engine.threads, 'thread')}, "
        f"loaded in {_load_text(engine.load_ms)}"
    )
    if engine.degraded:
        lines.append(f"! asked for {', '.join(engine.asked)} and got {engine.effective}:")
    lines.extend(
        f"{'!' if engine.degraded else ' '}   {skipped.accelerator}: {skipped.reason}"
        for skipped in engine.skipped
    )
    return lines


def _camera_table(summary: RunSummary) -> Table:
    columns = "camera", "in>", "ok>", "dropped", "failed", "fps>", "p50 ms>", "p99 ms>"
    table = _table("frames", columns)
    for camera in summary.cameras:
        total = camera.latency["total"]
        table.add_row(
            camera.camera,
            f"{camera.frames_in:,}",
            f"{camera.ok:,}",
            _causes(camera.dropped),
            _causes(camera.failed),
            f"{camera.fps:.1f}",
            ms_text(total.p50_ms),
            ms_text(total.p99_ms),
        )
    return table


def _stage_table(summary: RunSummary) -> Table:
    table = _table("where the time went, ms", ("stage", "", "p50>", "p95>", "p99>"))
    for stage, stats in summary.latency.items():
        figures = (ms_text(stats.p50_ms), ms_text(stats.p95_ms), ms_text(stats.p99_ms))
        table.add_row(stage, _STAGE_MEANINGS[stage], *figures, style="bold" if stage == "total" else None)
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    """An empty table; a column whose name ends in `>` is for figures."""
    from rich import box  # noqa: PLC0415 - only a terminal needs rich, and it is slow to import
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        figures = column.endswith(">")
        table.add_column(column.rstrip(">"), justify="right" if figures else "left", no_wrap=figures)
    return table


def _warnings(summary: RunSummary) -> list[str]:
    lines = []
    if summary.worker_restarts:
        lines.append(f"! the engine worker was started again {_plural(summary.worker_restarts, 'time')}")
    for camera in summary.cameras:
        if camera.source_restarts:
            times = _plural(camera.source_restarts, "time")
            lines.append(f"! the source of camera {camera.camera} was started again {times}")
        if camera.in_flight > 0 and camera.camera not in summary.imbalance:
            lines.append(f"! camera {camera.camera}: {_plural(camera.in_flight, 'frame')} still on the way")
    for name, gap in summary.imbalance.items():
        what = "vanished without an outcome" if gap > 0 else "counted twice"
        lines.append(f"! camera {name}: {_plural(abs(gap), 'frame')} {what}; this is a bug, please report it")
    if summary.rejected_latencies:
        lines.append(
            f"! {_plural(summary.rejected_latencies, 'latency', 'latencies')} made no sense and were left out"
        )
    return lines


def ms_text(value_ms: float | None) -> str:
    """Milliseconds with the digits that matter (the sketch is good to 1 %)."""
    if value_ms is None:
        return "-"
    decimals = 0 if value_ms >= 99.95 else 1 if value_ms >= 0.995 else 2
    return f"{value_ms:,.{decimals}f}"


def duration_text(duration_s: float) -> str:
    """A duration for people: `8.3 s`, `4 min 10 s`, `2 h 05 min`."""
    if duration_s < 59.95:
        return f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def _load_text(load_ms: float) -> str:
    return f"{load_ms:.0f} ms" if load_ms < 999.5 else duration_text(load_ms / 1e3)


def _causes(counts: Mapping[str, int]) -> str:
    """One cause a line: `12 superseded`; or `0`."""
    return "\n".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in counts.items()) or "0"


def _plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def _rate(count: int, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0
