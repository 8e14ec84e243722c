"""The fleet as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from vedette_fleet.fleet_figures import (
        DeviceRow,
        Escalated,
        FleetRow,
        FleetView,
        Latency,
        ModelRow,
        Throughput,
    )


class _Widths(TypedDict):
    min_width: int
    no_wrap: bool


_STATE_STYLES = {"online": "green", "offline": "bold red", "silent": "yellow", "unknown": "dim"}
_STATE_ORDER = {"offline": 0, "silent": 1, "unknown": 2, "online": 3}
# Lines that are no rows of devices: titles, rules, the total, remarks.
_OTHER_LINES = 9
_WIDE = 120  # columns from which on everything is shown
_MEDIUM = 96
_RESTING = {"", "idle", "safe"}


def render(view: FleetView, *, width: int, height: int, remark: str = "") -> RenderableType:
    """Tables that fit into a terminal; devices in trouble come first, and narrow ones show less of each.

    Args:
        view: What is known now.
        width: Columns of the terminal.
        height: Lines of the terminal.
        remark: A line below the tables, such as why there is no connection.
    """
    models = view.models if len(view.models) > 1 else ()
    devices = sorted(view.devices, key=_urgency)
    asking = sum(row.escalation is not None for row in devices)
    room = max(3, height - _OTHER_LINES - (len(models) + 5 if models else 0) - (5 if asking else 0))
    room = max(3, room // 2) if asking > room // 2 else room - asking
    lines: list[RenderableType] = [_device_table(view, devices[:room], width)]
    if len(devices) > room:
        lines.append(Text(f"and {len(devices) - room:,} more; a taller window shows them", style="dim"))
    if models:
        lines.append(_model_table(models))
    if view.total.escalation is not None:
        lines.append(_escalation_table(view, devices[:room]))
    lines += [Text(line, style="dim") for line in _notes(view)]
    if remark:
        lines.append(Text(remark, style="yellow"))
    return Group(*lines)


def _urgency(row: DeviceRow) -> tuple[int, bool, bool, str]:
    slowed = row.degraded or bool(row.throttled)
    return _STATE_ORDER[row.state], not slowed, row.phase in _RESTING, row.device


def _device_table(view: FleetView, devices: list[DeviceRow], width: int) -> Table:
    what = "arrival to answer" if view.stage == "total" else f"stage {view.stage}"
    table = Table(
        title=f"devices; latency: {what}, ms, last {view.horizon_s / 60:g} min",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_footer=True,
        padding=(0, 1) if width >= _WIDE else (0, 1, 0, 0),
    )
    total = view.total
    wide, medium = width >= _WIDE, width >= _MEDIUM
    table.add_column("device", footer=f"all {total.devices:,}", **_whole((row.device for row in devices), 24))
    table.add_column(
        "state", footer=f"{total.online:,} online", **_whole(("offline", f"{total.online:,} online"), 14)
    )
    if wide:
        table.add_column("heard", justify="right", **_whole(("100 min",), 7))
    if medium:
        table.add_column("model", **_whole((row.model for row in devices), 16))
    table.add_column("update", footer=f"{total.updating:,} updating", no_wrap=True)
    rows = [_figures(row.throughput, row.latency, wide=wide) for row in devices]
    for index, (name, footer) in enumerate(_figures(total.throughput, total.latency, wide=wide)):
        cells = (name, footer, *(row[index][1] for row in rows))
        table.add_column(name, footer=footer, justify="right", **_whole(cells, 12))
    if medium:
        table.add_column("box", no_wrap=True)
    for row, figures in zip(devices, rows, strict=True):
        table.add_row(
            row.device,
            Text(row.state, style=_STATE_STYLES[row.state]),
            *([_age(row.seen_s)] if wide else []),
            *([row.model or "-"] if medium else []),
            _update(row, with_candidate=wide),
            *(value for _, value in figures),
            *([_board(row, everything=wide)] if medium else []),
        )
    return table


def _whole(cells: Iterable[str], most: int) -> _Widths:
    """A column that is not squeezed in favour of others, up to a width."""
    return {"min_width": min(most, max(map(len, cells), default=1)), "no_wrap": True}


def _figures(throughput: Throughput, latency: Latency, *, wide: bool) -> list[tuple[str, str]]:
    lost = throughput.dropped + throughput.failed
    figures = [
        ("fps", f"{throughput.fps:,.1f}" if throughput.frames_in else "-"),
        ("p50", _ms(latency.p50_ms)),
        ("p95", _ms(latency.p95_ms)),
        ("p99", _ms(latency.p99_ms)),
    ]
    if wide:
        return [
            *figures,
            ("dropped", _share(throughput.dropped, throughput.frames_in)),
            ("failed", _share(throughput.failed, throughput.frames_in)),
        ]
    return [*figures, ("lost", _share(lost, throughput.frames_in))]


def _model_table(models: tuple[ModelRow, ...]) -> Table:
    table = Table(title="by model", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("model", "version"):
        table.add_column(name)
    for name in ("devices", "answers", "p50", "p95", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in models:
        latency = row.latency
        table.add_row(
            row.model,
            row.version,
            f"{row.devices:,}",
            f"{latency.count:,}",
            *(_ms(value_ms) for value_ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms)),
        )
    return table


def _escalation_table(view: FleetView, devices: list[DeviceRow]) -> Table:
    """Who asks a large model, how often, what came of it, and what of the promise holds."""
    table = Table(
        title=f"asked of large models, last {view.horizon_s / 60:g} min",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_footer=True,
    )
    total = [] if view.total.escalation is None else _escalated_cells(view.total.escalation)
    names = ("escalated", "calls", "corrected", "unmet", "agreement", "promise", "spent today")
    table.add_column("device", footer="all", no_wrap=True)
    for name, footer in zip(names, total, strict=True):
        table.add_column(name, footer=footer, justify="right", no_wrap=True)
    for row in devices:
        if row.escalation is not None:
            table.add_row(row.device, *_escalated_cells(row.escalation))
    return table


def _escalated_cells(found: Escalated) -> list[str]:
    agreement = "-"
    if found.agreement is not None:
        agreement = "{:.1%} ({:.0%}-{:.0%})".format(*found.agreement)
    promise = found.mode if found.mode != "calibrated" else f"{found.held_epsilon:.2%} of {found.epsilon:.2%}"
    return [
        f"{found.share:.1%}",
        f"{found.calls:,}",
        f"{found.corrected:,} of {found.answers:,}",
        f"{found.unmet:,}",
        agreement,
        promise or "-",
        f"{found.money_day:,.2f}" if found.money_day else "-",
    ]


def _update(row: DeviceRow, *, with_candidate: bool) -> Text:
    if row.phase in _RESTING:
        failed = row.update_result and not row.update_result.startswith("success")
        text = row.update_result if failed else row.phase
        return Text(text or "-", style="yellow" if failed or row.phase == "safe" else "dim")
    progress = "" if row.progress is None else f" {row.progress:.0%}"
    candidate = f" → {row.candidate}" if row.candidate and with_candidate else ""
    return Text(f"{row.phase}{progress}{candidate}", style="cyan")


def _board(row: DeviceRow, *, everything: bool) -> Text:
    """What may be behind slow answers; of `everything` else only what is wrong."""
    celsius = "" if row.temperature_c is None else f"{row.temperature_c:.0f} °C"
    fallback = f"{row.accelerator} (fallback)" if row.degraded else row.accelerator
    parts = [
        (fallback if everything or row.degraded else "", "yellow" if row.degraded else ""),
        (celsius if everything or row.throttled else "", ""),
        ("throttled" if row.throttled else "", "bold red"),
        (f"{row.worker_restarts} restarts" if row.worker_restarts else "", "yellow"),
        (f"clock {row.clock}" if row.clock else "", "yellow"),
    ]
    text = Text()
    for part, style in parts:
        if part:
            text.append((", " if text else "") + part, style=style)
    return text


def _notes(view: FleetView) -> list[str]:
    total: FleetRow = view.total
    notes = []
    if total.latency.accuracy > 0.0101:
        notes.append(
            f"percentiles are good to {total.latency.accuracy:.0%}: a report was too large to be finer"
        )
    if total.bad_messages:
        notes.append(f"messages that made no sense: {total.bad_messages:,}; the last one: {total.last_bad}")
    if total.too_many:
        notes.append(f"messages of devices beyond the {total.devices:,} that are kept: {total.too_many:,}")
    return notes


def _age(seen_s: float | None) -> str:
    if seen_s is None:
        return "-"
    if seen_s < 100:
        return f"{seen_s:.0f} s"
    return f"{seen_s / 60:.0f} min" if seen_s < 6000 else f"{seen_s / 3600:.0f} h"


def _ms(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    return f"{value_ms:,.{0 if value_ms >= 99.95 else 1 if value_ms >= 0.995 else 2}f}"


def _share(part: int, whole: int) -> str:
    """`0` is none at all; anything else shows."""
    if not whole:
        return "-"
    share = part / whole
    return "0" if not part else "<0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")
