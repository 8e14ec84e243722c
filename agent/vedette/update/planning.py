"""Carries out MakePlan and AwaitGo: whether, when and how an offer is taken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import StorageError
from vedette.update import events as ev
from vedette.update.box_facts import usable_codecs
from vedette.update.causes import Cause
from vedette.update.health import baseline_of
from vedette.update.jobs import Job, Wait
from vedette.update.looking import Standing
from vedette.update.plan import Deferred, Refused, make_plan, not_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from vedette.clock import Clock
    from vedette.trust.offer import Offer
    from vedette.update.effects_making import Making
    from vedette.update.effects_serving import Serving
    from vedette.update.kept_offer import KeptOffer
    from vedette.update.plan import Box
    from vedette.update.space import DiskSpace
    from vedette.update.veto import Moment

DISK_WAIT_S = 600.0
EARLY_WAIT_S = 3600.0
PAUSED_WAIT_S = 300.0
SETTLE_S = 1.0
MAX_REMEMBERED = 64


class Planning:
    """Decides with facts of this box; remembers in memory how long an offer has waited."""

    def __init__(
        self,
        making: Making,
        serving: Serving,
        *,
        box: Box,
        space: DiskSpace,
        moment: Moment,
        kept: KeptOffer,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._making = making
        self._serving = serving
        self._box = box
        self._space = space
        self._moment = moment
        self._kept = kept
        self._clock = clock
        self._draw = draw
        self._first_ns: dict[str, int] = {}
        self._start_ns: dict[str, int] = {}

    def plan(self, offer: Offer) -> Job:
        """Plan an offer; it is on disk before there is a plan, so that a restart can go on alone."""
        yield Wait()
        later_s = self._not_yet_s(offer)
        if later_s > 0:
            return ev.PlanDeferred("spread over the fleet, or not due yet", later_s)
        try:
            plan = make_plan(
                offer.manifest,
                box=self._box,
                stored=self._making.stored_files().keys(),
                free_bytes=self._space.free_bytes(),
                conditions=self._moment.conditions(waited_s=self._waited_s(offer)),
                codecs=usable_codecs(),
            )
            if isinstance(plan, Deferred):
                return ev.PlanDeferred(plan.reason, plan.wait_s)
            if isinstance(plan, Refused):
                return ev.PlanRefused(plan.cause, plan.detail, plan.space_wanted_bytes)
            self._kept.write(offer)
        except StorageError as error:
            if error.kind == Cause.NO_SPACE.value:
                return ev.PlanRefused(Cause.NO_SPACE, error.cause, 1)
            return ev.PlanDeferred(error.cause, DISK_WAIT_S)
        return ev.Planned(plan.progress(), plan.bytes_limit)

    def await_go(
        self, *, settled: Callable[[], bool], ask: Callable[[], Generator[Wait, None, Standing]]
    ) -> Job:
        """Wait until this moment suits and the model of before serves (`settled`), then ask a last time.

        `ask` refreshes trust; what else it finds is taken before this goes on.
        """
        begun_ns = self._clock.monotonic_ns()
        while True:
            waited_s = (self._clock.monotonic_ns() - begun_ns) / 1e9
            later = not_now(self._moment.conditions(waited_s=waited_s))
            if later is not None:
                yield Wait(later.wait_s)
                continue
            if not settled():
                yield Wait(SETTLE_S)
                continue
            standing = yield from ask()
            reached = standing is Standing.WANTED and (yield from self._serving.reaches_server())
            yield Wait()
            if standing is not Standing.PAUSED:
                wanted = standing is Standing.WANTED
                return ev.Go(wanted=wanted, baseline=baseline_of(self._serving.baseline(), reached=reached))
            yield Wait(PAUSED_WAIT_S * (1 + self._draw()))

    def _not_yet_s(self, offer: Offer) -> float:
        """Until the rollout is due, and this box's own place in it has come (casebook 61)."""
        early_s = self._moment.early_s(offer.rollout.not_before_utc)
        if early_s > 0:
            return min(early_s, EARLY_WAIT_S)
        now_ns = self._clock.monotonic_ns()
        key = f"{offer.rollout.id} {offer.manifest_sha256}"
        if key not in self._start_ns:
            _forget_oldest(self._start_ns)
            self._start_ns[key] = now_ns + round(self._draw() * offer.rollout.jitter_s * 1e9)
        return max(0.0, (self._start_ns[key] - now_ns) / 1e9)

    def _waited_s(self, offer: Offer) -> float:
        _forget_oldest(self._first_ns)
        first_ns = self._first_ns.setdefault(offer.manifest_sha256, self._clock.monotonic_ns())
        return (self._clock.monotonic_ns() - first_ns) / 1e9


def _forget_oldest(times: dict[str, int]) -> None:
    while len(times) >= MAX_REMEMBERED:
        del times[next(iter(times))]
