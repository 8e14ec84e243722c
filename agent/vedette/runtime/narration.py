"""What is said of an update while it goes on: a line for each step, and how far a long one is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.update.causes import Result
from vedette.update.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.record import Report
    from vedette.update.status import UpdateStatus

FETCH_EVERY_S = 10.0

_STEPS = {
    Phase.APPLY: "making its files",
    Phase.PREFLIGHT: "trying it in a child process",
    Phase.SHADOW: "comparing it with the model that serves",
    Phase.READY: "ready, waiting for the moment to switch",
    Phase.SWITCH: "loading it beside the model that serves",
    Phase.TRIAL: "answering frames, on trial",
    Phase.CONFIRM: "passed its trial",
}


class Narrator:
    """Follows the status; `name_of` gives a release its name by the digest of its bundle."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._status: UpdateStatus | None = None
        self._fetch_said_ns = 0

    def follow(self, status: UpdateStatus, now_ns: int) -> list[str]:
        """The lines that are due, on the monotonic clock."""
        before, self._status = self._status, status
        if before is None:
            return [f"update: {note}" for note in status.notes]
        lines = self._result(before, status)
        if status.phase is not before.phase:
            lines += self._step(before, status)
            self._fetch_said_ns = now_ns
        elif status.phase is Phase.FETCH and now_ns - self._fetch_said_ns >= FETCH_EVERY_S * 1e9:
            self._fetch_said_ns = now_ns
            lines.append(f"update: fetched {progress_text(status)}")
        if status.trouble and status.trouble != before.trouble:
            lines.append(f"update: {status.trouble}")
        return lines

    def _step(self, before: UpdateStatus, status: UpdateStatus) -> list[str]:
        name = "" if status.candidate is None else self._name_of(status.candidate.sha256)
        if status.phase is Phase.FETCH:
            if before.phase is Phase.FETCH or status.candidate is None:
                return []
            wanted = size_text(status.bytes_needed)
            return [f"update: {name} by rollout {status.candidate.rollout}: fetching {wanted}"]
        if status.phase is Phase.ROLLBACK:
            cause = "" if status.cause is None else f" for {status.cause.value}"
            detail = f" ({status.detail})" if status.detail else ""
            return [f"update: {name}: taken back{cause}{detail}"]
        if status.phase is Phase.DEFERRED:
            return [f"update: put off: {status.detail}" if status.detail else "update: put off"]
        step = _STEPS.get(status.phase)
        return [] if step is None else [f"update: {name}: {step}"]

    def _result(self, before: UpdateStatus, status: UpdateStatus) -> list[str]:
        report = status.last_result
        if report is None or report == before.last_result:
            return []
        return [f"update: {result_text(report, self._name_of)}"]


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
