"""Carries out what concerns the data plane: serve a proven bundle, shadow, switch, watch a trial.

Everything goes through the port Live, whose calls return at once; its state is looked at now and then.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.bundle.folder import load_bundle
from vedette.errors import BundleError, StorageError
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.health import Outcome, baseline_of, death_cause, judge_shadow, judge_trial
from vedette.update.jobs import Job, Wait
from vedette.update.record import ModelRef
from vedette.update.watched import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from vedette.clock import Clock
    from vedette.update.health import Verdict
    from vedette.update.ports import Live, WindowStats
    from vedette.update.reach import Reach
    from vedette.update.record import Baseline
    from vedette.update.settings import UpdateSettings
    from vedette.update.store import Store
    from vedette.update.watched import Watched
    from vedette.wire.rollout import Guards, Window

LOOK_S = 0.25
WATCH_S = 1.0
SEATED_S = 30.0  # a model that is given its cameras and gets no frame for so long counts as serving
PROGRESS_S = 120.0  # each is a durable write


class Serving:
    """Drives the data plane. `booted` is the bundle that it began to load by itself when the agent began."""

    def __init__(
        self,
        live: Live,
        store: Store,
        *,
        name: str,
        factory_sha256: str,
        clock: Clock,
        settings: UpdateSettings,
        booted: Path | None,
        reach: Reach | None = None,
    ) -> None:
        self._live = live
        self._store = store
        self._name = name
        self._clock = clock
        self._settings = settings
        self._booting = booted
        self._factory_sha256 = factory_sha256
        self._reach = reach
        self.watched: Watched | None = None

    # Proven bundles ---------------------------------------------------------------------------------------

    def active(self, sha256: str) -> Job:
        """Serve this proven bundle; a trial of it ends well."""
        try:
            path, counter = self.locate(sha256)
        except (BundleError, StorageError) as error:
            return ev.ProvenBad(Cause.HASH_MISMATCH, error.cause)
        return (yield from self._serve(path, sha256, counter))

    def confirmed(self, excluding: tuple[str, ...]) -> Job:
        """Serve the newest confirmed bundle of the store that loads."""
        said = "no other confirmed bundle is in the store"
        try:
            for path in self._fallbacks(excluding):
                manifest = self._store.find(path.parent.name).manifest
                served = yield from self._serve(path, manifest.bundle_sha256, manifest.counter)
                if isinstance(served, ev.ProvenServes):
                    return replace(served, next_best=self._after(served.sha256, excluding))
                said = served.detail
        except (BundleError, StorageError) as error:
            said = error.cause
        return ev.ProvenBad(Cause.LOAD_FAIL, said)

    def factory(self) -> Job:
        """Serve the bundle that the box came with."""
        if self._store.factory is None:
            return ev.ProvenBad(Cause.LOAD_FAIL, "the box came without a model")
        try:
            sha256 = self.read_factory()
        except BundleError as error:
            return ev.ProvenBad(Cause.HASH_MISMATCH, error.cause)
        return (yield from self._serve(self._store.factory, sha256, 0))

    def any_proven(self, sha256: str | None) -> Generator[Wait | ev.Event, None, None]:
        """Serve something proven without a word of it: for a disk that takes no record."""
        rungs = [] if sha256 is None else [self.active(sha256)]
        for rung in (*rungs, self.confirmed(()), self.factory()):
            served = yield from rung
            if isinstance(served, ev.ProvenServes):
                return

    def locate(self, sha256: str) -> tuple[Path, int]:
        """A proven bundle's folder and its release counter, hashed since this process started.

        Raises:
            BundleError: It is missing or damaged.
        """
        if sha256 == self._factory_sha256 and self._store.factory is not None:
            if self.read_factory() != sha256:
                raise BundleError("the factory's model was replaced", cure="the new one is used")
            return self._store.factory, 0
        entry = self._store.verify(sha256)
        return entry.bundle, entry.manifest.counter

    def read_factory(self) -> str:
        """The digest of the factory's bundle, hashed now; empty without one.

        Raises:
            BundleError: It is damaged.
        """
        if self._store.factory is not None:
            self._factory_sha256 = load_bundle(self._store.factory).sha256
        return self._factory_sha256

    def mute(self) -> ev.ProvenBad | None:
        """Whether nothing serves; the caller knows since when that is no transition."""
        if self._live.serving() is not None:
            return None
        said = self._live.stats().last_death or "nothing answers"
        return ev.ProvenBad(death_cause(said), said)

    def _after(self, sha256: str, excluding: tuple[str, ...]) -> ModelRef | None:
        """The confirmed bundle that was the newest before this one; hashed when it is used."""
        entries = {
            entry.sha256: entry for entry in self._store.scan()[0] if entry.manifest.name == self._name
        }
        limit = entries[sha256].confirmed_order or 0
        older = [
            (entry.confirmed_order, entry)
            for entry in entries.values()
            if entry.confirmed_order is not None
            and entry.confirmed_order < limit
            and entry.sha256 not in excluding
        ]
        if not older:
            return None
        _order, entry = max(older, key=operator.itemgetter(0))
        return ModelRef(entry.sha256, entry.manifest.counter)

    def _fallbacks(self, excluding: tuple[str, ...]) -> Iterator[Path]:
        for path in self._store.fallbacks(self._name, without=excluding):
            if path != self._store.factory:
                yield path

    def _serve(
        self, path: Path, sha256: str, counter: int
    ) -> Generator[Wait | ev.Event, None, ev.ProvenServes | ev.ProvenBad]:
        serves = ev.ProvenServes(sha256, counter)
        booting, self._booting = self._booting, None
        if self._live.serving() == path:
            self._live.confirm()
            return serves
        if booting == path and (yield from self._until_booted(path)):
            return serves
        self._live.switch(path)
        deadline_ns = self._deadline_ns()
        while self._clock.monotonic_ns() < deadline_ns:
            yield Wait(LOOK_S)
            stats = self._live.stats()
            if self._live.serving() == path or _is_seated(stats):
                return serves
            if stats.given_up:
                return ev.ProvenBad(death_cause(stats.last_death), stats.last_death)
        return ev.ProvenBad(Cause.WATCHDOG, f"not loaded within {self._settings.load_timeout_s:.0f} s")

    def _until_booted(self, path: Path) -> Generator[Wait | ev.Event, None, bool]:
        """The data plane loads it already; asking again would load it twice."""
        deadline_ns = self._deadline_ns()
        while self._clock.monotonic_ns() < deadline_ns:
            if self._live.serving() == path:
                return True
            if self._live.stats().worker_deaths:
                return False
            yield Wait(LOOK_S)
        return False

    # Candidates -------------------------------------------------------------------------------------------

    def shadow(self, sha256: str, *, guards: Guards, window: Window) -> Job:
        """Run a candidate beside the model that serves until its window closes."""
        try:
            bundle = self._store.verify(sha256).bundle
        except (BundleError, StorageError) as error:
            return ev.ShadowFailed(Cause.HASH_MISMATCH, error.cause)
        self._live.start_shadow(bundle)
        try:
            while True:
                yield Wait(WATCH_S)
                verdict = self._look_at_shadow(guards, window)
                if verdict.outcome is Outcome.PASS:
                    return ev.ShadowPassed()
                if verdict.outcome is Outcome.FAIL:
                    return ev.ShadowFailed(verdict.cause or Cause.CRASH_LOOP, verdict.detail)
        finally:
            self.watched = None

    def _look_at_shadow(self, guards: Guards, window: Window) -> Verdict:
        stats, baseline = self._live.stats(), baseline_of(self._live.baseline())
        verdict = judge_shadow(
            stats, baseline, guards=guards, window=window, policy=self._settings.shadow_policy
        )
        self.watched = watched(stats, baseline, verdict, guards=guards, window=window, shadow=True)
        return verdict

    def stop_shadow(self) -> None:
        """End the shadow, if one runs."""
        self._live.stop_shadow()

    def switch(self, sha256: str, *, boot_id: str, window: Window, settled: Callable[[], bool]) -> Job:
        """Serve with a candidate, the model of before kept ready; waits until that one serves (`settled`).

        Its files are hashed from the disk once more: what was adopted may have rotted since.
        """
        while not settled():
            yield Wait(LOOK_S)
        try:
            path = self._store.verify(sha256, full=True).bundle
        except (BundleError, StorageError) as error:
            return ev.CandidateDied(Cause.HASH_MISMATCH, error.cause)
        self._live.switch(path, trial=True)
        limit_s = self._settings.load_timeout_s + window.max_s
        deadline_ns = self._clock.monotonic_ns() + round(limit_s * 1e9)
        while self._clock.monotonic_ns() < deadline_ns:
            yield Wait(LOOK_S)
            if self._live.serving() == path:
                return ev.Switched(boot_id)
            stats = self._live.stats()
            if stats.given_up:
                return ev.CandidateDied(death_cause(stats.last_death), stats.last_death)
        return ev.TrialFailed(Cause.TRIAL_TIMEOUT, f"no frame came for it within {limit_s:.0f} s")

    def trial(
        self, sha256: str, *, baseline: Baseline | None, guards: Guards, window: Window, used_before_s: float
    ) -> Job:
        """Watch a candidate that serves until its window closes."""
        path = self._store.find(sha256).bundle
        reach = self._reach if baseline is not None and baseline.reached else None
        if reach is not None:
            reach.begin()
        reported_s = 0.0
        try:
            while True:
                stats = self._live.stats()
                if stats.given_up or self._live.serving() not in {path, None}:
                    said = stats.last_death or "another model serves"
                    return ev.CandidateDied(death_cause(said), said)
                verdict = self._look_at_trial(stats, baseline, guards, window, used_before_s, reach)
                if verdict.outcome is Outcome.PASS:
                    return ev.TrialPassed()
                if verdict.outcome is Outcome.FAIL:
                    return ev.TrialFailed(verdict.cause or Cause.CRASH_LOOP, verdict.detail)
                if stats.elapsed_s - reported_s >= PROGRESS_S:
                    yield ev.TrialProgressed(stats.elapsed_s - reported_s)
                    reported_s = stats.elapsed_s
                yield Wait(WATCH_S)
        finally:
            self.watched = None

    def _look_at_trial(  # noqa: PLR0917 - what was seen, then the terms
        self,
        stats: WindowStats,
        baseline: Baseline | None,
        guards: Guards,
        window: Window,
        used_before_s: float,
        reach: Reach | None,
    ) -> Verdict:
        contact = None if reach is None else reach.look()
        verdict = judge_trial(
            stats,
            baseline,
            guards=guards,
            window=window,
            policy=self._settings.trial_policy,
            used_before_s=used_before_s,
            contact=contact,
        )
        self.watched = watched(
            stats,
            baseline,
            verdict,
            guards=guards,
            window=window,
            used_before_s=used_before_s,
            contact=contact,
        )
        return verdict

    def reaches_server(self) -> Generator[Wait, None, bool]:
        """Whether the update server answers just now; False also where nobody can ask."""
        if self._reach is None:
            return False
        while (reached := self._reach.asked()) is None:
            yield Wait(LOOK_S)
        return reached

    def baseline(self) -> WindowStats:
        """What the model that serves did in the window before now."""
        return self._live.baseline()

    def answers(self) -> bool:
        """Whether any model serves."""
        return self._live.serving() is not None

    def _deadline_ns(self) -> int:
        return self._clock.monotonic_ns() + round(self._settings.load_timeout_s * 1e9)


def _is_seated(stats: WindowStats) -> bool:
    """Loaded, and given cameras that bring no frames."""
    return stats.elapsed_s >= SEATED_S and stats.frames == 0 and not stats.worker_deaths
