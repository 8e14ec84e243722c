"""Driving the machine by hand: offers, the events of a whole update, and records in any phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.machine import step
from vedette.update.phases import Phase
from vedette.update.record import (
    REUSE,
    FileProgress,
    Mark,
    ModelRef,
    Rung,
    UpdateRecord,
    first_record,
    on_disk,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FACTORY = ModelRef("f" * 64, 0)
SHA = {version: f"{version:x}" * 64 for version in range(1, 10)}
DELTA, FULL = 1, 0
T = TypeVar("T", bound=ef.Effect)


def offer(
    version: int = 1,
    *,
    mark: int = 1,
    rollout: str = "",
    shadow: bool = False,
    free_bytes: int = 1 << 30,
    rollback_of: int | None = None,
) -> ev.Offered:
    """Release `version` in rollout document `mark`."""
    return ev.Offered(
        mark=Mark(0, mark),
        rollout=rollout or f"roll-{version}",
        sha256=SHA[version],
        counter=version,
        manifest_sha256=SHA[version][::-1],
        free_bytes=free_bytes,
        shadow=shadow,
        rollback_of=rollback_of,
    )


PLANNED = ev.Planned(
    (FileProgress(DELTA, FULL), FileProgress(REUSE, FULL), FileProgress(FULL, FULL)), bytes_limit=2000
)
_SAFE = UpdateRecord(phase=Phase.SAFE, rung=Rung.NONE)
_NEWER = UpdateRecord(phase=Phase.UNKNOWN, active=FACTORY)
SERVED = ev.ProvenServes(FACTORY.sha256, FACTORY.counter)
# The events of an update without a shadow, in order, each with the phase that it leads to.
PATH: tuple[tuple[ev.Event, Phase], ...] = (
    (ev.Announced(Mark(0, 1)), Phase.TRUST),
    (offer(), Phase.PLAN),
    (PLANNED, Phase.FETCH),
    (ev.Fetched(700), Phase.VERIFY_PATCH),
    (ev.PatchesGood(), Phase.APPLY),
    (ev.Applied(), Phase.VERIFY_OUT),
    (ev.OutputsGood(), Phase.PREFLIGHT),
    (ev.PreflightPassed(), Phase.READY),
    (ev.Go(wanted=True), Phase.SWITCH),
    (ev.Switched("boot"), Phase.TRIAL),
    (ev.TrialPassed(), Phase.CONFIRM),
    (ev.MarkedConfirmed(), Phase.REPORT),
    (ev.ReportStored(), Phase.IDLE),
)


class Box:
    """A record, the one on disk, and every effect so far."""

    def __init__(self, record: UpdateRecord | None = None) -> None:
        self.record = first_record(FACTORY) if record is None else record
        self.disk = on_disk(self.record)
        self.effects: list[ef.Effect] = []
        self.latest: tuple[ef.Effect, ...] = ()

    def see(self, *events: ev.Event) -> tuple[ef.Effect, ...]:
        """Take events in turn; the effects of the last one."""
        for event in events:
            self.record, self.latest = step(self.record, event)
            self.effects += self.latest
            for effect in self.latest:
                if isinstance(effect, ef.Persist):
                    self.disk = effect.record
        return self.latest

    def power_cut(self) -> tuple[ef.Effect, ...]:
        """All memory is lost; the agent starts with what is on disk."""
        self.record = self.disk
        return self.see(ev.Started())

    @property
    def phase(self) -> Phase:
        return self.record.phase

    def at(self, phase: Phase) -> bool:
        """Whether it is in a phase; a call, so that a type checker asks anew after each event."""
        return self.record.phase is phase

    def did(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def results(self) -> list[tuple[str, Cause | None]]:
        """(result, cause) of every report, repetitions left out."""
        seen = {(put.report.update_id, put.report.seq): put.report for put in self.did(ef.StoreReport)}
        return [(report.result.value, report.cause) for report in seen.values()]


def box_in(phase: Phase, *, path: Iterable[tuple[ev.Event, Phase]] = PATH) -> Box:
    """A box whose update came as far as this phase."""
    if phase in (records := {Phase.IDLE: Box().record, Phase.SAFE: _SAFE, Phase.UNKNOWN: _NEWER}):
        return Box(records[phase])
    if phase is Phase.DEFERRED:
        box = box_in(Phase.PLAN)
        box.see(ev.PlanDeferred("outside the update window", 3600.0))
    elif phase is Phase.ROLLBACK:
        box = box_in(Phase.TRIAL)
        box.see(ev.TrialFailed(Cause.ERROR_RATE))
    else:
        box = _walk(phase, _shadowed() if phase is Phase.SHADOW else path)
    return box


def _walk(phase: Phase, path: Iterable[tuple[ev.Event, Phase]]) -> Box:
    box = Box()
    for event, expected in path:
        box.see(event)
        assert box.phase is expected
        if expected is phase:
            return box
    raise AssertionError(f"{phase} is not on the path")


def _shadowed() -> list[tuple[ev.Event, Phase]]:
    path = [(offer(shadow=True) if isinstance(event, ev.Offered) else event, phase) for event, phase in PATH]
    at = [phase for _, phase in path].index(Phase.READY)
    path[at : at + 1] = [(ev.PreflightPassed(), Phase.SHADOW), (ev.ShadowPassed(), Phase.READY)]
    return path
