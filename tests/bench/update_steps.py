"""The steps of an update beside a live daemon, for `tests.bench.update_latency`."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace
from tests.bench.swap import Serving, copy_of
from tests.stubs.fleet import Operator, serve_files

from vedette.bundle.folder import load_bundle, seal
from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.errors import InternalError
from vedette.frame.ring import available_bytes
from vedette.runtime.swap_table import SwapState
from vedette.update import events as ev
from vedette.update.effects_fetching import Fetching
from vedette.update.effects_making import Making
from vedette.update.http import HttpFetcher
from vedette.update.jobs import Wait
from vedette.update.limited_child import ChildProcesses
from vedette.update.ports import WindowStats
from vedette.update.preflight import Preflight
from vedette.update.record import REUSE
from vedette.wire.release import EncodingKind, ReleaseManifest, parse_manifest
from vedette.wire.rollout import Guards
from vedette_fleet.delta.locate import locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.update.jobs import Job
    from vedette.update.ports import Fetcher
    from vedette.update.store import Store

LOOK_S = 0.01
SETTLE_S = 0.3
# A frame that came so shortly before the candidate was seen to be ready may have waited for the move.
MOVE_NS = 60_000_000
JOB_TIMEOUT_S = 60.0
UPDATE_ID = "bench"
TUNED_EVERY = 20
UPLINK_BYTES_PER_S = 12_500_000  # 100 Mbit/s


class Span(NamedTuple):
    """A stretch of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int


# Goes on for so many seconds, or until it has been through once, and says when frames counted.
Step = Callable[[float], list[Span]]


class Release(NamedTuple):
    """What is served over HTTP: a fine-tune of the bundle that runs."""

    manifest: ReleaseManifest
    model_file: int
    url: str


class Paced:
    """Implements `ports.Fetcher`: another one, on a line of UPLINK_BYTES_PER_S, which few boxes have."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See Fetcher."""
        return self._fetcher.metadata(path, max_bytes)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """See Fetcher."""
        began_s, moved_bytes = time.monotonic(), 0
        for piece in self._fetcher.blob(sha256, start, end):
            yield piece
            moved_bytes += len(piece)
            time.sleep(max(0.0, began_s + moved_bytes / UPLINK_BYTES_PER_S - time.monotonic()))


class Steps:
    """The steps of an update, each beside frames."""

    def __init__(self, serving: Serving, store: Store, release: Release, bundles: tuple[Path, Path]) -> None:
        run_child = ChildProcesses(SystemClock())
        self._serving = serving
        self._live = serving.daemon.live
        self._store = store
        self._release = release
        self._serves, self._candidate = bundles
        self._fetching = Fetching(store, draw=lambda: 0.5)
        self._making = Making(store, run_child=run_child, timeout_s=JOB_TIMEOUT_S)
        self._preflight = Preflight(
            WorkerSpec(bundle=str(self._serves)),
            run_child=run_child,
            timeout_s=JOB_TIMEOUT_S,
            available_bytes=available_bytes,
            production=lambda: None,
        )
        self._fetcher = Paced(HttpFetcher(release.url))

    def named(self, beginnings: str) -> dict[str, Step]:
        """By name, in the order of an update; all, or those whose names begin with one of some words."""
        steps: dict[str, Step] = {
            "fetch, verify": self.fetch,
            "apply a delta": self.apply,
            "preflight": self.preflight,
            "load": self.load,
            "load of a shadow": self.shadow_load,
            "shadow": self.shadow,
            "trial": self.trial,
        }
        wanted = tuple(beginnings.split(","))
        return {name: step for name, step in steps.items() if name.startswith(wanted)}

    def _encoding(self, kind: EncodingKind) -> tuple[int, int]:
        file = self._release.model_file
        encodings = self._release.manifest.files[file].encodings
        return file, next(index for index, encoding in enumerate(encodings) if encoding.kind is kind)

    def fetch(self, phase_s: float) -> list[Span]:
        """The model in full, hashed, thrown away, and again."""
        manifest, wanted = self._release.manifest, [self._encoding(EncodingKind.FULL)]

        def once() -> None:
            fetched = run(self._fetching.fetch(UPDATE_ID, self._fetcher, manifest, wanted, 1 << 30))
            expect(fetched, ev.Fetched)
            expect(
                run(self._fetching.verify(UPDATE_ID, manifest, wanted, place=self._release.url)),
                ev.PatchesGood,
            )
            self._store.drop_stage(UPDATE_ID)

        return again(once, phase_s)

    def apply(self, phase_s: float) -> list[Span]:
        """The delta of the model, and copies of the other files."""
        manifest, delta = self._release.manifest, self._encoding(EncodingKind.DELTA)
        others = [(file, REUSE) for file in self._reused()]
        expect(run(self._fetching.fetch(UPDATE_ID, self._fetcher, manifest, [delta], 1 << 30)), ev.Fetched)
        return again(
            lambda: expect(run(self._making.apply(UPDATE_ID, manifest, [delta, *others])), ev.Applied),
            phase_s,
        )

    def _reused(self) -> list[int]:
        held = self._making.stored_files()
        return [i for i, file in enumerate(self._release.manifest.files) if file.sha256 in held]

    def preflight(self, phase_s: float) -> list[Span]:
        """A child process loads and tries it."""
        nothing = WindowStats(0.0, 0, 0, None, 0, "")
        loaded = load_bundle(self._candidate)
        spec = loaded.spec
        manifest = replace(
            self._release.manifest, name=spec.name, version=spec.version, bundle_sha256=loaded.sha256
        )

        def once() -> None:
            job = self._preflight.run(self._candidate, manifest, guards=Guards(), baseline=nothing)
            expect(run(job), ev.PreflightPassed)

        return again(once, phase_s)

    def load(self, phase_s: float) -> list[Span]:
        """From the wish to switch until the candidate is ready.

        The frames of the move, one or two of each camera, are `tests.bench.swap`'s: of a load that takes half
        a second they would be the worst twentieth by themselves.
        """
        spans = []
        swap = self._serving.daemon.swap
        until_s = time.monotonic() + phase_s
        while time.monotonic() < until_s:
            start_ns = time.monotonic_ns()
            self._live.switch(self._candidate, trial=True)
            look_until(lambda: swap.state is SwapState.LOADING, "it loads")
            look_until(lambda: swap.state is not SwapState.LOADING, "it is ready")
            spans.append(Span(start_ns, time.monotonic_ns() - MOVE_NS))
            self._back()
        return spans

    def shadow_load(self, phase_s: float) -> list[Span]:
        """From the wish to compare until the shadow is ready to."""
        spans = []
        until_s = time.monotonic() + phase_s
        while time.monotonic() < until_s:
            start_ns = time.monotonic_ns()
            self._live.start_shadow(self._candidate)
            look_until(lambda: self._live.stats().elapsed_s > 0, "the shadow is ready")
            spans.append(Span(start_ns, time.monotonic_ns()))
            self._live.stop_shadow()
            self._alone()
        return spans

    def shadow(self, phase_s: float) -> list[Span]:
        """While it compares; its load, which comes first, does not count."""
        self._live.start_shadow(self._candidate)
        look_until(lambda: self._live.stats().shadowed > 0, "frames are compared")
        start_ns = time.monotonic_ns()
        time.sleep(phase_s)
        end_ns = time.monotonic_ns()
        self._live.stop_shadow()
        self._alone()
        return [Span(start_ns, end_ns)]

    def trial(self, phase_s: float) -> list[Span]:
        """While it answers, and the model of before stands by; its first frames belong to the switch."""
        self._live.switch(self._candidate, trial=True)
        look_until(lambda: self._live.serving() == self._candidate, "the candidate serves")
        time.sleep(SETTLE_S)
        start_ns = time.monotonic_ns()
        time.sleep(phase_s)
        end_ns = time.monotonic_ns()
        self._back()
        return [Span(start_ns, end_ns)]

    def _back(self) -> None:
        look_until(lambda: self._live.serving() == self._candidate, "the candidate serves")
        self._live.switch(self._serves)
        look_until(lambda: self._live.serving() == self._serves, "the first model serves again")
        look_until(lambda: self._serving.daemon.swap.state is SwapState.IDLE, "the way back is gone")
        self._alone()

    def _alone(self) -> None:
        look_until(lambda: not self._serving.daemon.swap.others, "no other worker is left")


def look_until(condition: Callable[[], bool], what: str) -> None:
    """Look so seldom that looking is not felt."""
    deadline_s = time.monotonic() + JOB_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise InternalError(f"bench: not within {JOB_TIMEOUT_S:.0f} s: {what}")
        time.sleep(LOOK_S)


def run(job: Job) -> ev.Event:
    """Drive a job as the update thread does."""
    try:
        while True:
            said = next(job)
            if isinstance(said, Wait) and said.seconds > 0:
                select.select([] if said.fd is None else [said.fd], [], [], said.seconds)
    except StopIteration as end:
        event: ev.Event = end.value
        return event


def expect(found: ev.Event, kind: type[ev.Event]) -> None:
    """A step that fails early would be measured as a quick one."""
    if not isinstance(found, kind):
        raise InternalError(f"bench: a step ended in {found}, not in {kind.__name__}")


def again(once: Callable[[], None], phase_s: float) -> list[Span]:
    """The same again until the time is over."""
    start_ns = time.monotonic_ns()
    until_s = time.monotonic() + phase_s
    while time.monotonic() < until_s:
        once()
    return [Span(start_ns, time.monotonic_ns())]


def fine_tuned(bundle: Path, to: Path) -> Path:
    """The same model with every twentieth 8-bit weight moved by up to two steps, as training on leaves it."""
    tuned = copy_of(bundle, to)
    file = load_bundle(bundle).spec.file
    content = bytearray((tuned / file).read_bytes())
    dice = np.random.default_rng(20)
    for tensor in locate(bytes(content)):
        if tensor.element is not None and tensor.element.size == 1 and tensor.size_bytes > TUNED_EVERY:
            values = np.frombuffer(content, np.int8, tensor.size_bytes, tensor.offset)
            moved = dice.integers(0, len(values), len(values) // TUNED_EVERY)
            steps = dice.integers(-2, 3, len(moved))
            values[moved] = np.clip(values[moved].astype(np.int16) + steps, -128, 127)
    (tuned / file).write_bytes(content)
    seal(tuned)
    return tuned


@contextlib.contextmanager
def published(folder: Path, bundle: Path, tuned: Path) -> Iterator[Release]:
    """Both as releases of a repository that is served over HTTP."""
    operator = Operator(folder)
    operator.release(bundle)
    operator.release(tuned)
    loaded = load_bundle(tuned)
    (target,) = (operator.repo / "targets").rglob(f"*{loaded.spec.version}.json")
    manifest = parse_manifest(target.read_bytes())
    file = next(index for index, file in enumerate(manifest.files) if file.path == loaded.spec.file)
    with serve_files(operator.repo) as url:
        yield Release(manifest, file, url)
