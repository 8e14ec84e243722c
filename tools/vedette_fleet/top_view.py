"""The fleet as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vedette_fleet.fleet_figures import DeviceRow, FleetRow, FleetView, Latency, ModelRow, Throughput

_STATE_STYLES = {"online": "green", "offline": "bold red", "silent": "yellow", "unknown": "dim"}
_STATE_ORDER = {"offline": 0, "silent": 1, "unknown": 2, "online": 3}
# Lines that are no rows of devices: titles, rules, the total, remarks.
_OTHER_LINES = 9
_RESTING = {"", "idle", "safe"}


def render(view: FleetView, *, height: int, remark: str = "") -> RenderableType:
    """Tables that fit into `height` lines; devices in trouble come first.

    Args:
        view: What is known now.
        height: Lines of the terminal.
        remark: A line below the tables, such as why there is no connection.
    """
    room = max(3, height - _OTHER_LINES - len(view.models))
    devices = sorted(
        view.devices, key=lambda row: (_STATE_ORDER[row.state], row.phase in _RESTING, row.device)
    )
    lines: list[RenderableType] = [_device_table(view, devices[:room])]
    if len(devices) > room:
        lines.append(
            Text(f"and {len(devices) - room:,} more devices, none of them in more trouble", style="dim")
        )
    if len(view.models) > 1:
        lines.append(_model_table(view.models))
    lines += [Text(line, style="dim") for line in _notes(view)]
    if remark:
        lines.append(Text(remark, style="yellow"))
    return Group(*lines)


def _device_table(view: FleetView, devices: list[DeviceRow]) -> Table:
    what = "arrival to answer" if view.stage == "total" else f"stage {view.stage}"
    table = Table(
        title=f"devices; latency: {what}, ms, last {view.horizon_s / 60:g} min",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_footer=True,
    )
    total = view.total
    table.add_column("device", footer=f"all {total.devices:,}", overflow="fold")
    table.add_column("state", footer=f"{total.online:,} online")
    table.add_column("seen", justify="right")
    table.add_column("model")
    table.add_column("update", footer=f"{total.updating:,} updating")
    for name, footer in _figures(total.throughput, total.latency):
        table.add_column(name, footer=footer, justify="right", no_wrap=True)
    table.add_column("box")
    for row in devices:
        table.add_row(
            row.device,
            Text(row.state, style=_STATE_STYLES[row.state]),
            _age(row.seen_s),
            row.model or "-",
            _update(row),
            *(value for _, value in _figures(row.throughput, row.latency)),
            _board(row),
        )
    return table


def _figures(throughput: Throughput, latency: Latency) -> list[tuple[str, str]]:
    return [
        ("fps", f"{throughput.fps:,.1f}" if throughput.frames_in else "-"),
        ("p50", _ms(latency.p50_ms)),
        ("p95", _ms(latency.p95_ms)),
        ("p99", _ms(latency.p99_ms)),
        ("dropped", _share(throughput.dropped, throughput.frames_in)),
        ("failed", _share(throughput.failed, throughput.frames_in)),
    ]


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


def _update(row: DeviceRow) -> Text:
    if row.phase in _RESTING:
        failed = row.update_result and not row.update_result.startswith("success")
        text = row.update_result if failed else row.phase
        return Text(text or "-", style="yellow" if failed or row.phase == "safe" else "dim")
    progress = "" if row.progress is None else f" {row.progress:.0%}"
    return Text(f"{row.phase}{progress}" + (f" → {row.candidate}" if row.candidate else ""), style="cyan")


def _board(row: DeviceRow) -> Text:
    """What may be behind slow answers."""
    parts = [
        (row.accelerator + (" (fallback)" if row.degraded else ""), "yellow" if row.degraded else ""),
        ("" if row.temperature_c is None else f"{row.temperature_c:.0f} °C", ""),
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
        notes.append(f"{total.bad_messages:,} messages made no sense; the last one: {total.last_bad}")
    if total.too_many:
        notes.append(f"{total.too_many:,} messages of devices beyond the {total.devices:,} that are kept")
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
