"""What to tell whoever asked for a look, or brought a stick: what the machine made of what was found.

Follows the machine from the look to its decision; pure but for the futures that it resolves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.update import events as ev
from vedette.update import guards as on
from vedette.update.causes import Result
from vedette.update.phases import STAGED, Phase

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vedette.update.record import Report, UpdateRecord


class Replies:
    """One who waits at a time."""

    def __init__(self) -> None:
        self._waiting: Future[str] | None = None
        self._name = ""

    def wait_for(self, answer: Future[str] | None) -> None:
        """Whom to tell of the look that begins next."""
        if answer is not None:
            self._waiting, self._name = answer, ""

    def fail(self, error: Exception) -> None:
        """The look failed."""
        answer, self._waiting = self._waiting, None
        if answer is not None:
            answer.set_exception(error)

    def say(self, text: str) -> None:
        """This is what there is to say."""
        answer, self._waiting = self._waiting, None
        if answer is not None:
            answer.set_result(text)

    def found(self, name: str) -> None:
        """The look found this release; what becomes of it, the machine decides."""
        self._name = name

    def follow(self, before: UpdateRecord, event: ev.Event, after: UpdateRecord) -> None:
        """The machine took an event; tell as soon as it has decided."""
        if self._waiting is None or not self._name:
            return
        said = ""
        if isinstance(event, ev.Offered):
            said = _of_offer(before, event, after)
        elif before.phase is Phase.PLAN and after.phase is not Phase.PLAN:
            said = _of_plan(event)
        if said:
            self.say(f"{self._name}: {said}")


def _of_offer(before: UpdateRecord, event: ev.Offered, after: UpdateRecord) -> str:
    """Empty while it is being planned."""
    if after.phase is Phase.PLAN:
        return ""
    if on.lower(before, event):
        return "not taken up: a newer document than the one that says so was seen here"
    if before.phase is Phase.TRUST:
        return _not_taken(before, event, after)
    if on.same_release(before, event):
        return f"is under way: {before.phase.value.replace('_', ' ')}"
    if before.phase in STAGED:
        return "takes the place of the update that was under way"
    return "waits for the end of the update that is under way"


def _not_taken(before: UpdateRecord, event: ev.Offered, after: UpdateRecord) -> str:
    if on.active_already(before, event):
        return "serves already"
    if on.blacklisted(before, event):
        entry = next(entry for entry in before.blacklist if entry.sha256 == event.sha256)
        return (
            f"not tried: it failed here for {entry.cause.value} by rollout {entry.rollout}; a new rollout "
            "must name it before it is tried again"
        )
    if after.report is not None:
        return f"refused: {_ending(after.report)}"
    return "not tried" if before.last is None else f"not tried: finished here with {_ending(before.last)}"


def _of_plan(event: ev.Event) -> str:
    if isinstance(event, ev.Planned):
        return "the update begins"
    if isinstance(event, ev.PlanDeferred):
        return f"put off for {event.wait_s:.0f} s: {event.reason}"
    if isinstance(event, ev.PlanRefused):
        return f"refused: {event.cause.value}: {event.detail}"
    return "given up"


def _ending(report: Report) -> str:
    cause = "" if report.cause is None else f" ({report.cause.value})"
    detail = f": {report.detail}" if report.detail else ""
    ending = "a refusal" if report.result is Result.REJECTED else report.result.value
    return f"{ending}{cause}{detail}"
