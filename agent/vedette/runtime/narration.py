"""What is said of an update while it goes on: a line for each step, and how far a long one is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.runtime.log import Level, LogLine
from vedette.telemetry.summary import duration_text
from vedette.update.causes import Result
from vedette.update.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.record import Report
    from vedette.update.status import UpdateStatus

FETCH_EVERY_S = 10.0
TROUBLE_EVERY_S = 600.0

_STEPS = {
    Phase.APPLY: "making its files",
    Phase.PREFLIGHT: "trying it in a child process",
    Phase.SHADOW: "comparing it with the model that serves",
    Phase.READY: "ready, waiting for the moment to switch",
    Phase.SWITCH: "loading it beside the model that serves",
    Phase.TRIAL: "answering frames, on trial",
    Phase.CONFIRM: "passed its trial",
}


_NOT_TAKEN_UP = frozenset({Phase.IDLE, Phase.SAFE, Phase.TRUST, Phase.PLAN, Phase.DEFERRED, Phase.REPORT})


class Narrator:
    """Follows the status; `name_of` gives a release its name by the digest of its bundle."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._status: UpdateStatus | None = None
        self._announced = ""
        self._fetch_said_ns = 0
        self._waits_for = ""
        self._waits_said_ns = 0

    def follow(self, status: UpdateStatus, now_ns: int) -> list[str]:
        """The lines that are due, on the monotonic clock."""
        before, self._status = self._status, status
        if before is None:
            return [*(f"update: {note}" for note in status.notes), *self._resumed(status)]
        lines = self._beginning(status, now_ns)
        if status.phase is not before.phase:
            lines += self._step(status)
        elif status.phase is Phase.FETCH and now_ns - self._fetch_said_ns >= FETCH_EVERY_S * 1e9:
            self._fetch_said_ns = now_ns
            lines.append(f"update: fetched {progress_text(status)}")
        lines += self._waiting(status, now_ns)
        if status.last_result is not None and status.last_result != before.last_result:
            lines.append(f"update: {result_text(status.last_result, self._name_of)}")
        if status.changes and status.changes != before.changes:
            lines.append(f"update: attention, {status.changes}")
        if status.trouble and status.trouble != before.trouble:
            lines.append(LogLine(Level.WARNING, f"update: {status.trouble}"))
        return lines

    def _resumed(self, status: UpdateStatus) -> list[str]:
        """The update that the agent found under way when it started."""
        candidate = status.candidate
        if candidate is None or status.phase in _NOT_TAKEN_UP:
            return []
        self._announced = status.update_id
        phase = status.phase.value.replace("_", " ")
        return [f"update: {self._name_of(candidate.sha256)} by rollout {candidate.rollout} goes on: {phase}"]

    def _waiting(self, status: UpdateStatus, now_ns: int) -> list[str]:
        """Why a fetch does not go on, and when it does: when that is new, and then now and then."""
        if status.phase is not Phase.FETCH or status.next_try_s is None or not status.detail:
            return []
        rested = now_ns - self._waits_said_ns >= TROUBLE_EVERY_S * 1e9
        if status.detail == self._waits_for and not rested:
            return []
        self._waits_for, self._waits_said_ns = status.detail, now_ns
        return [f"update: {status.detail}; tried again in {duration_text(status.next_try_s)}"]

    def _beginning(self, status: UpdateStatus, now_ns: int) -> list[str]:
        """Once for each update, whichever of its phases is seen first."""
        candidate = status.candidate
        if candidate is None or status.phase in _NOT_TAKEN_UP or status.update_id == self._announced:
            return []
        self._announced = status.update_id
        self._fetch_said_ns = now_ns
        name, wanted = self._name_of(candidate.sha256), size_text(status.bytes_needed)
        return [f"update: {name} by rollout {candidate.rollout}: {wanted} to fetch"]

    def _step(self, status: UpdateStatus) -> list[str]:
        name = "" if status.candidate is None else f" {self._name_of(status.candidate.sha256)}:"
        detail = f" ({status.detail})" if status.detail else ""
        if status.phase is Phase.ROLLBACK:
            cause = "" if status.cause is None else f" for {status.cause.value}"
            return [LogLine(Level.WARNING, f"update:{name} taken back{cause}{detail}")]
        if status.phase is Phase.DEFERRED:
            return [f"update:{name} put off{detail}"]
        step = _STEPS.get(status.phase)
        return [] if step is None else [f"update:{name} {step}"]


def result_text(report: Report, name_of: Callable[[str], str]) -> str:
    """A result for people: what, how it ended, why, and what serves."""
    name = name_of(report.sha256)
    if report.result is Result.SUCCESS:
        return f"{name}: confirmed, {size_text(report.bytes_fetched)} were fetched for it"
    cause = "" if report.cause is None else f" ({report.cause.value})"
    detail = f": {report.detail}" if report.detail else ""
    serving = f"{name_of(report.serving)} serves" if report.serving else "no model serves"
    return f"{name}: {report.result.value.replace('_', ' ')}{cause}{detail}; {serving}"


def progress_text(status: UpdateStatus) -> str:
    """`1.2 of 3.9 MB, 31 %`."""
    if not status.bytes_needed:
        return size_text(status.bytes_fetched)
    share = min(status.bytes_fetched / status.bytes_needed, 1.0)
    return f"{size_text(status.bytes_fetched)} of {size_text(status.bytes_needed)}, {share:.0%}"


def short_text(status: UpdateStatus) -> str:
    """For the status line; empty while nothing goes on."""
    if status.phase is Phase.FETCH:
        return f"update {progress_text(status)}"
    if status.phase in {Phase.IDLE, Phase.TRUST, Phase.PLAN, Phase.REPORT}:
        return ""
    return f"update {status.phase.value.replace('_', ' ')}"


def size_text(count_bytes: int) -> str:
    """`3.9 MB`."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1000)):
        if count_bytes >= factor:
            return f"{count_bytes / factor:.1f} {unit}"
    return f"{count_bytes} bytes"
