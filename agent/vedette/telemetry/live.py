"""The status line of a running agent: one line that fits the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.telemetry.summary import ms_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.telemetry.ledger import LedgerSnapshot
    from vedette.telemetry.meter import Meter

_SEPARATOR = " · "


class LiveCamera(msgspec.Struct, frozen=True):
    """One camera now: answers a second and median latency of late; drops and failures since the start."""

    name: str
    fps: float
    p50_ms: float | None
    dropped: int
    failed: int


def status_line(cameras: Sequence[LiveCamera], width: int) -> str:
    """As much as fits into `width` columns: all figures, then fewer of each camera, then their sum."""
    for form in (_full, _short, _shortest):
        line = _SEPARATOR.join(form(camera) for camera in cameras)
        if len(line) <= width:
            return line
    fps = sum(camera.fps for camera in cameras)
    lost = sum(camera.dropped + camera.failed for camera in cameras)
    line = f"{len(cameras)} cameras {fps:.1f} fps" + (f"  lost {lost:,}" if lost else "")
    return line if len(line) <= width else line[: max(0, width)]


def _full(camera: LiveCamera) -> str:
    median = "" if camera.p50_ms is None else f"  p50 {ms_text(camera.p50_ms)} ms"
    return f"{camera.name} {camera.fps:.1f} fps{median}{_losses(camera)}"


def _short(camera: LiveCamera) -> str:
    return f"{camera.name} {camera.fps:.1f} fps{_losses(camera)}"


def _shortest(camera: LiveCamera) -> str:
    return f"{camera.name} {camera.fps:.0f}"


def _losses(camera: LiveCamera) -> str:
    dropped = f"  dropped {camera.dropped:,}" if camera.dropped else ""
    return dropped + (f"  failed {camera.failed:,}" if camera.failed else "")


class LiveStatus:
    """Turns ledger snapshots into status lines; rates are over the time between two calls."""

    def __init__(self, meter: Meter, now_ns: int) -> None:
        self._meter = meter
        self._then_ns = now_ns
        self._ok: dict[str, int] = {}

    def line(self, now_ns: int, snapshot: LedgerSnapshot, width: int) -> str:
        """The line for this moment.

        Args:
            now_ns: Monotonic clock.
            snapshot: The ledger now.
            width: Columns that may be used.
        """
        elapsed_s = (now_ns - self._then_ns) / 1e9
        cameras = [
            LiveCamera(
                name=name,
                fps=(counts.ok - self._ok.get(name, 0)) / elapsed_s if elapsed_s > 0 else 0.0,
                p50_ms=self._meter.take_recent(name).p50_ms,
                dropped=counts.dropped_total,
                failed=counts.failed_total,
            )
            for name, counts in snapshot.cameras.items()
        ]
        self._then_ns = now_ns
        self._ok = {name: counts.ok for name, counts in snapshot.cameras.items()}
        return status_line(cameras, width)
