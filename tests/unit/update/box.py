"""A whole box in a temporary folder: real files, store, journal and codecs; trust and data plane are fakes.

Time stands still but for the waits that the driver asks for, so a trial of hours takes milliseconds.
`restart` is the end of the process: new objects on the same disk.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import random
import select
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import bsdiff4
import msgspec
import numpy as np
from backports import zstd
from tests.stubs.played_bundles import played_bundle, played_worker

from vedette.bundle.folder import load_bundle
from vedette.clock import ManualClock
from vedette.errors import BundleError, NotFoundError, UnavailableError
from vedette.trust.offer import Offer
from vedette.update.background import inline
from vedette.update.box_facts import read_box
from vedette.update.driver import UpdateDriver
from vedette.update.driver_parts import DriverParts, DriverPorts
from vedette.update.folder import FolderFetcher
from vedette.update.jobs import Ended
from vedette.update.looking import Road
from vedette.update.phases import HOME, Phase
from vedette.update.ports import WindowStats
from vedette.update.settings import UpdateSettings
from vedette.update.startup import open_state
from vedette.wire.release import (
    Codec,
    Encoding,
    EncodingKind,
    ReleaseFile,
    ReleaseManifest,
    ReleaseNeeds,
    build_manifest,
)
from vedette.wire.rollout import BUCKETS, Rollout, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vedette.errors import VedetteError
    from vedette.update.jobs import Child, Limits
    from vedette.update.outbox import OutboxEntry
    from vedette.update.record import Report, UpdateRecord

NAME = "tiny"
FPS = 25.0
LOAD_S = 1.0
WEIGHTS = 60_000
TRIAL = Window(60.0, 100, 3600.0)
RUNTIME_NEEDS = ReleaseNeeds("onnx", "0.1", (7, 17), (), (), 10, "0.0.1")


def weights(version: int, count: int = WEIGHTS) -> bytes:
    """Weights of a fine-tune: a few per cent of them differ between neighbours."""
    values = np.random.default_rng(1).integers(-128, 128, count).astype(np.int8)
    values[: version * 500] += np.int8(1)
    return values.tobytes()


# Publishing -----------------------------------------------------------------------------------------------


class Publisher:
    """Makes bundles, blobs and manifests in a folder, as `vedette-fleet` does, but quickly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "repository" / "blobs"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.weights_count = WEIGHTS

    def bundle(self, version: int, **play: str) -> Path:
        """A bundle with some weights; `play` tells the stub engine how to behave."""
        root = self.folder / f"v{version}"
        files = {"weights.bin": weights(version, self.weights_count)}
        return played_bundle(
            root, spec={"version": str(version), "sidecars": ["weights.bin"]}, files=files, **play
        )

    def release(
        self, version: int, bundle: Path, *, base: Path | None = None, needs: ReleaseNeeds = RUNTIME_NEEDS
    ) -> ReleaseManifest:
        """Blobs of every file, full and against the base where one is given."""
        loaded = load_bundle(bundle)
        files = []
        for name, sha256 in sorted(loaded.files.items()):
            content = (bundle / name).read_bytes()
            packed = zstd.compress(content)
            codec = Codec.ZSTD if len(packed) < len(content) else Codec.RAW
            encodings = [self._encoding(EncodingKind.FULL, codec, packed if codec is Codec.ZSTD else content)]
            if base is not None and name == "weights.bin":
                old = (base / name).read_bytes()
                patch = bsdiff4.diff(old, content)
                base_sha256 = hashlib.sha256(old).hexdigest()
                encodings.append(self._encoding(EncodingKind.DELTA, Codec.BSDIFF4, patch, base_sha256))
            files.append(ReleaseFile(name, sha256, len(content), tuple(encodings)))
        return ReleaseManifest(1, "acme", NAME, str(version), version, loaded.sha256, tuple(files), needs)

    def _encoding(self, kind: EncodingKind, codec: Codec, blob: bytes, base: str | None = None) -> Encoding:
        sha256 = hashlib.sha256(blob).hexdigest()
        (self.blobs / sha256).write_bytes(blob)
        return Encoding(kind, codec, sha256, len(blob), base)

    def swap_delta(self, manifest: ReleaseManifest, base: Path, other: Path) -> ReleaseManifest:
        """The manifest with a delta that makes another bundle's weights."""
        patch = bsdiff4.diff((base / "weights.bin").read_bytes(), (other / "weights.bin").read_bytes())
        files = []
        for file in manifest.files:
            encodings = tuple(
                self._encoding(encoding.kind, encoding.codec, patch, encoding.base_sha256)
                if encoding.kind is EncodingKind.DELTA
                else encoding
                for encoding in file.encodings
            )
            files.append(msgspec.structs.replace(file, encodings=encodings))
        return msgspec.structs.replace(manifest, files=tuple(files))

    def swap_full(self, manifest: ReleaseManifest, other: Path) -> ReleaseManifest:
        """The manifest with a full encoding that makes another bundle's weights."""
        blob = zstd.compress((other / "weights.bin").read_bytes())
        files = []
        for file in manifest.files:
            encodings = tuple(
                self._encoding(EncodingKind.FULL, Codec.ZSTD, blob)
                if encoding.kind is EncodingKind.FULL and file.path == "weights.bin"
                else encoding
                for encoding in file.encodings
            )
            files.append(msgspec.structs.replace(file, encodings=encodings))
        return msgspec.structs.replace(manifest, files=tuple(files))

    def blob_of(self, manifest: ReleaseManifest, name: str, kind: EncodingKind) -> Path:
        """The blob of a file."""
        file = next(file for file in manifest.files if file.path == name)
        encoding = next(encoding for encoding in file.encodings if encoding.kind is kind)
        return self.blobs / encoding.sha256


def offer_of(manifest: ReleaseManifest, *, counter: int = 1, rollout: str = "", **fields: Any) -> Offer:  # noqa: ANN401 - fields of Rollout
    """An offer to everybody, without delay; `fields` are the rollout's."""
    sha256 = hashlib.sha256(build_manifest(manifest)).hexdigest()
    made = Rollout(
        id=rollout or f"roll-{manifest.version}",
        model=NAME,
        target=f"models/acme/{NAME}/{manifest.version}.json",
        sha256=sha256,
        salt="s",
        share=BUCKETS,
        jitter_s=0.0,
        trial=TRIAL,
    )
    return Offer(counter, msgspec.structs.replace(made, **fields), manifest, sha256)


# Fakes of the ports ---------------------------------------------------------------------------------------


class FakeTrust:
    """Vouches for what it is told to."""

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.error: VedetteError | None = None
        self.paused = False
        self.gone: set[str] = set()
        self.looks = 0

    def refresh(self) -> Offer | None:
        self.looks += 1
        if self.error is not None:
            raise self.error
        if self.paused or (self.offer is not None and self.offer.rollout.id in self.gone):
            return None
        return self.offer

    def still_wanted(self, offer: Offer) -> bool:
        return not self.paused and offer.rollout.id not in self.gone

    def withdrawn(self, offer: Offer) -> bool:
        return offer.rollout.id in self.gone


class CountingFetcher(FolderFetcher):
    """Counts bytes; `fail` is asked before each piece, and raises what goes wrong."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fetched_bytes = 0
        self.requests: list[str] = []
        self.fail: Callable[[str, int], None] = lambda _sha256, _offset: None

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        self.requests.append(sha256)
        offset = start
        self.fail(sha256, offset)
        for piece in super().blob(sha256, start, end):
            yield piece
            self.fetched_bytes += len(piece)
            offset += len(piece)
            self.fail(sha256, offset)


@dataclass(frozen=True)
class Behaviour:
    """How the model in a bundle fares on live frames; `dies` is the data plane's word for its death.

    `leaks_per_s` is in bytes.
    """

    p95_ms: float = 10.0
    failed: float = 0.0
    constant: bool = False
    dies: str = ""
    dies_after_s: float = 0.0
    disagrees: float = 0.0
    frames: bool = True
    leaks_per_s: int = 0


@functools.cache
def version_of(bundle: Path) -> str:
    """The version in a bundle's model.yaml."""
    lines = (bundle / "model.yaml").read_text(encoding="utf-8").splitlines()
    return next(line.split(":")[1].strip(" '") for line in lines if line.startswith("version:"))


class FakeLive:
    """Implements ports.Live on a clock: models load in LOAD_S and answer FPS frames a second."""

    def __init__(self, clock: ManualClock, booted: Path | None) -> None:
        self._clock = clock
        self.behaviours: dict[str, Behaviour] = {}
        self.calls: list[str] = []
        self._now: Path | None = None
        self._since_s = self._time_s()
        self._next: Path | None = (
            booted  # it loads like any other: nothing serves in a process that just began
        )
        self._next_s = self._time_s() + LOAD_S
        self._trial_from: Path | None = None
        self._shadow: Path | None = None
        self._shadow_s = 0.0
        self._given_up = ""
        self.dead = False  # nothing serves any more
        self.on_load: Callable[[Path], None] = lambda _bundle: None  # sees each bundle that is to be loaded

    @property
    def loading(self) -> bool:
        """Whether a bundle is on its way to serve."""
        self._settle()
        return self._next is not None

    def _time_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _behaviour(self, bundle: Path | None) -> Behaviour:
        return self.behaviours.get("" if bundle is None else version_of(bundle), Behaviour())

    def _settle(self) -> None:
        now_s = self._time_s()
        if self._next is not None and now_s >= self._next_s:
            refused = self._refusal(self._next)
            if refused:
                self._given_up, self._next = refused, None
                return
            self._now, self._next, self._since_s, self.dead = self._next, None, now_s, False
        behaviour = self._behaviour(self._now) if self._trial_from is not None else Behaviour()
        if behaviour.dies and self._next is None and now_s - self._since_s >= behaviour.dies_after_s:
            self._now, self._trial_from, self._given_up = self._trial_from, None, behaviour.dies

    def _refusal(self, bundle: Path) -> str:
        """Why a worker does not get it loaded."""
        behaviour = self._behaviour(bundle)
        try:
            load_bundle(bundle)
        except BundleError as error:
            return f"load_fail: {error.cause}"
        return behaviour.dies if behaviour.dies_after_s == 0 else ""

    def start_shadow(self, bundle: Path) -> None:
        self.calls.append(f"shadow {bundle.parent.name[:8]}")
        self.on_load(bundle)
        self._shadow, self._shadow_s, self._given_up = bundle, self._time_s(), ""

    def stop_shadow(self) -> None:
        self._shadow = None

    def switch(self, bundle: Path, *, trial: bool = False) -> None:
        self._settle()
        self.calls.append(f"{'trial' if trial else 'switch'} {bundle.parent.name[:8]}")
        self.on_load(bundle)
        self._shadow, self._given_up = None, ""
        if bundle == self._now and not self.dead:
            self._trial_from = None
            return
        self._trial_from = self._now if trial else None
        self._next, self._next_s = bundle, self._time_s() + LOAD_S

    def confirm(self) -> None:
        self._trial_from = None

    def serving(self) -> Path | None:
        self._settle()
        return None if self.dead else self._now

    def stats(self) -> WindowStats:
        self._settle()
        if self._shadow is not None:
            return self._stats(self._behaviour(self._shadow), self._time_s() - self._shadow_s, shadow=True)
        if self._next is not None or self._given_up:
            return WindowStats(
                0.0, 0, 0, None, bool(self._given_up), self._given_up, given_up=bool(self._given_up)
            )
        return self._stats(self._behaviour(self._now), self._time_s() - self._since_s)

    def baseline(self) -> WindowStats:
        return self._stats(Behaviour(), 600.0)

    def _stats(self, behaviour: Behaviour, elapsed_s: float, *, shadow: bool = False) -> WindowStats:
        frames = int(elapsed_s * FPS) if behaviour.frames else 0
        return WindowStats(
            elapsed_s,
            frames,
            int(frames * behaviour.failed),
            behaviour.p95_ms if frames else None,
            0,
            "",
            shadowed=frames if shadow else 0,
            disagreed=int(frames * behaviour.disagrees) if shadow else 0,
            constant_answers=behaviour.constant,
            grown_bytes=int(behaviour.leaks_per_s * elapsed_s),
        )


class FakeWall:
    """A wall clock that moves with the other one."""

    def __init__(self, clock: ManualClock, began_utc_s: float = 1_800_000_000.0) -> None:
        self._clock = clock
        self.began_utc_s = began_utc_s
        self.sync: bool | None = True

    def utc_s(self) -> float:
        return self.began_utc_s + self._clock.monotonic_ns() / 1e9

    def synchronised(self) -> bool | None:
        return self.sync


class FakeSpace:
    """A disk whose free space is what a test says."""

    def __init__(self, free_bytes: int = 1 << 30) -> None:
        self.free = free_bytes

    def free_bytes(self) -> int:
        return self.free


def inline_child(module: str, spec: bytes, limits: Limits, on_line: Callable[[bytes], None]) -> Child:
    """The same work in this process: quick, and its durable steps can be traced."""
    del limits
    yield from ()
    lines: list[bytes] = []

    def tell(line: bytes) -> None:
        lines.append(line)
        on_line(line)

    importlib.import_module(module).work(spec, tell)
    return Ended(tuple(lines), 0, "")


# The box --------------------------------------------------------------------------------------------------


@dataclass
class Box:
    """One device; `start` and `restart` make the agent's objects anew."""

    folder: Path
    publisher: Publisher = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    trust: FakeTrust = field(default_factory=FakeTrust)
    space: FakeSpace = field(default_factory=FakeSpace)
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    settings: UpdateSettings = field(default_factory=UpdateSettings)
    ports: dict[str, object] = field(default_factory=dict)
    boots: int = 0

    def __post_init__(self) -> None:
        self.publisher = Publisher(self.folder / "publisher")
        self.root = self.folder / "box"
        self.root.mkdir(parents=True, exist_ok=True)
        self.factory = self.folder / "factory"
        if not self.factory.exists():
            shutil.move(self.publisher.bundle(0), self.factory)
        self.fetcher = CountingFetcher(self.publisher.folder / "repository")

    def start(self) -> Box:
        """Start the agent."""
        self.boots += 1
        self.opened = open_state(self.root, NAME, factory=self.factory)
        self.live = FakeLive(self.clock, self.opened.first_bundle)
        self.live.behaviours = self.behaviours
        given = {
            "road": Road(self.trust, self.fetcher),
            "live": self.live,
            "worker": played_worker(self.factory),
            "box": read_box(accelerators=("cpu",), plugins={}),
            "clock": self.clock,
            "wall": FakeWall(self.clock),
            "settings": self.settings,
            "draw": random.Random(self.boots).random,  # noqa: S311 - repeatable
            "run_child": inline_child,
            "boot_id": f"boot-{self.boots}",
            "space": self.space,
            "background": inline,
            **self.ports,
        }
        self.parts = DriverParts(self.opened, DriverPorts(**given))  # type: ignore[arg-type]
        self.driver = UpdateDriver(self.parts)
        self.driver.start()
        return self

    def restart(self) -> Box:
        """The process is gone, and starts again."""
        self.driver.close()
        return self.start()

    def step(self) -> None:
        """One call, and the wait that it asks for."""
        wait = self.driver.run_once()
        if wait.fd is not None:
            begun_s = time.monotonic()
            select.select([wait.fd], [], [], min(wait.seconds, 0.05))
            self.clock.advance_s(time.monotonic() - begun_s)
        else:
            self.clock.advance_s(wait.seconds)

    def until(self, done: Callable[[], bool], steps: int = 20000) -> Box:
        """Go on until something is so."""
        for _ in range(steps):
            if done():
                return self
            self.step()
        raise AssertionError(f"never so: {self.driver.record}")

    def until_serving(self) -> Box:
        """Go on until a process that just began has loaded what it serves first."""
        return self.until(lambda: not self.live.loading)

    def until_phase(self, phase: Phase) -> Box:
        return self.until(lambda: self.record.phase is phase)

    def until_result(self) -> Report:
        """Go on until there is another result and the box is idle."""
        before = self.record.last
        self.until(lambda: self.record.last not in {None, before} and self.idle)
        assert self.record.last is not None
        return self.record.last

    def look_until_result(self) -> Report:
        """Announce, and go on until something came of it."""
        self.driver.announce()
        return self.until_result()

    def until_looked(self, looks: int = 1) -> Box:
        """Go on until trust was asked so many times more, and what it said was acted on."""
        wanted = self.trust.looks + looks
        return self.until(lambda: self.trust.looks >= wanted and self.idle)

    def look(self) -> Box:
        """Announce, and go on until it was acted on."""
        self.driver.announce()
        return self.until_looked()

    @property
    def idle(self) -> bool:
        return self.record.phase in HOME and not self.driver._events and not self.driver.mailbox.waiting()

    @property
    def record(self) -> UpdateRecord:
        return self.driver.record

    @property
    def serving(self) -> str:
        """The version that serves."""
        bundle = self.live.serving()
        return "" if bundle is None else version_of(bundle)

    def outbox(self) -> tuple[OutboxEntry, ...]:
        return self.parts.outbox.entries()

    def results(self) -> list[Report]:
        return [entry.result for entry in self.outbox() if entry.result is not None]

    def staged(self) -> list[str]:
        return sorted(path.name for path in (self.root / "staging").iterdir())

    def stored(self) -> set[str]:
        """Versions in the store."""
        return {entry.manifest.version for entry in self.opened.store.scan()[0]}

    # Releases ---------------------------------------------------------------------------------------------

    def offer(
        self,
        version: int,
        *,
        base: Path | None = None,
        counter: int | None = None,
        play: dict[str, str] | None = None,
        needs: ReleaseNeeds = RUNTIME_NEEDS,
        **fields: Any,  # noqa: ANN401 - fields of Rollout
    ) -> ReleaseManifest:
        """Publish a version and roll it out."""
        folder = self.publisher.folder / f"v{version}"
        bundle = folder if folder.exists() else self.publisher.bundle(version, **(play or {}))
        manifest = self.publisher.release(version, bundle, base=base, needs=needs)
        self.trust.offer = offer_of(manifest, counter=counter or version, **fields)
        return manifest

    def away(self, said: str) -> None:
        """No blob can be had, for this reason."""

        def fail(_asked: str, _offset: int) -> None:
            raise UnavailableError(said)

        self.fetcher.fail = fail

    def gone(self, sha256: str) -> None:
        """Every request for a blob is answered with 404."""

        def fail(asked: str, _offset: int) -> None:
            if asked == sha256:
                raise NotFoundError("no such blob")

        self.fetcher.fail = fail
