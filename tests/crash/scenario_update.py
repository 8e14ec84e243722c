"""The whole update driver on real files: a delta, a full download, a rollback, aborts before and in a trial.

The data plane is a fake on a clock that stands still, decoding runs in this process so that its steps are
seen, and the preflight child, which writes nothing, is played. What is published lies outside of the state.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from tests.crash.invariants import broken, said_in, word_of
from tests.crash.scenario import KILLED
from tests.unit.update.box import NAME, Behaviour, Box, inline_child, offer_of, version_of

from vedette.bundle.checksums import SUMS_NAME
from vedette.bundle.folder import load_bundle
from vedette.errors import VedetteError
from vedette.journal import Journal
from vedette.update.causes import Cause, Result
from vedette.update.guards import TRIES
from vedette.update.jobs import Ended
from vedette.update.machine import TRANSITION_BUDGET
from vedette.update.outbox import Outbox
from vedette.update.phases import Phase
from vedette.update.preflight import PREFLIGHT_MODULE
from vedette.update.preflight_child import Loaded, Trial
from vedette.update.record import SCHEMA, UpdateRecord, on_disk
from vedette.update.settings import UpdateSettings
from vedette.update.store import Store
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vedette.update.jobs import Child, Limits
    from vedette.wire.release import ReleaseManifest

MAX_STEPS = 4000
MAX_STILL_STEPS = 200  # without news in the record: the disk refuses for good, and the box waits for another
MAX_OFFERS = 6
MAX_ATTEMPTS = 2  # encodings of one file that may fail
SLACK_BYTES = 32768  # maps, manifests and markers beside what a release weighs
WINDOW = Window(2.0, 30, 60.0)
GUARDS = Guards(error_rate=0.9)
GOOD, SLOW = Behaviour(), Behaviour(p95_ms=60.0)
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def published() -> Path:
    """Release 1, with a delta from the factory's model; made once, read by everybody."""
    folder = tempfile.TemporaryDirectory(prefix="vedette-crash-")
    _TEMPORARY.append(folder)
    box = Box(Path(folder.name))
    box.publisher.bundle(1)
    return Path(folder.name)


@functools.cache
def release(*, delta: bool) -> ReleaseManifest:
    """The manifest of release 1; its blobs are written once."""
    box = Box(published())
    return box.publisher.release(1, box.publisher.folder / "v1", base=box.factory if delta else None)


def played_child(module: str, spec: bytes, limits: Limits, on_line: Callable[[bytes], None]) -> Child:
    """Preflight passes at once; everything else is done here."""
    if module != PREFLIGHT_MODULE:
        return (yield from inline_child(module, spec, limits, on_line))
    bundle = Path(msgspec.json.decode(spec, type=Trial).worker.bundle)
    sha256 = load_bundle(bundle).sha256
    return Ended((msgspec.json.encode(Loaded(NAME, version_of(bundle), sha256, "cpu", 0, 1.0, 10)),), 0, "")


@functools.cache
def known_bundles() -> dict[str, dict[str, str]]:
    """The hashes of the files of each bundle that there is, by its digest: what may be loaded."""
    factory, made = load_bundle(published() / "factory"), release(delta=True)
    files = {file.path: file.sha256 for file in made.files}
    return {factory.sha256: dict(factory.files), made.bundle_sha256: files}


class _Device(Box):
    """A box on a given state folder, with what was published once; says what it sees broken on its way."""

    def __init__(self, root: Path, say: Callable[[str], None] = lambda _word: None) -> None:
        super().__init__(
            published(), settings=UpdateSettings(first_look_s=0.0), ports={"run_child": played_child}
        )
        self.root = root
        self.say = say

    def start(self) -> _Device:
        """Start the agent, and look at whatever it loads."""
        super().start()
        self.live.on_load = self._loads
        return self

    def step(self) -> None:
        """One call."""
        super().step()
        if self.live.serving() is None and not self.live.loading:
            self.say(word_of(broken("I7", f"nothing serves in {self.record.phase.value}")))

    def _loads(self, bundle: Path) -> None:
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in bundle.iterdir()}
        hashes.pop(SUMS_NAME, None)
        digest = next((name for name, files in known_bundles().items() if files == hashes), None)
        if digest is None:
            self.say(word_of(broken("I2", f"{bundle} is loaded, and is no bundle that was signed")))
        if digest in {entry.sha256 for entry in self.record.blacklist}:
            self.say(word_of(broken("I8", f"{bundle} is loaded, which was condemned")))


@dataclass
class UpdateScenario:
    """One way in which an update may go; `aborts_in` is the phase in which the operator stops it."""

    name: str
    result: Result
    delta: bool = True
    behaviour: Behaviour = GOOD
    aborts_in: Phase | None = None
    counts_kills: bool = True

    def prepare(self, root: Path) -> None:
        """A box that started once and has looked at nothing."""
        device = _Device(root)
        device.trust.offer = None
        device.start().until_looked()
        device.driver.close()

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Start, and follow the offer to its end, however often it takes."""
        device = _Device(root, promise)
        device.behaviours["1"] = self.behaviour
        manifest = release(delta=self.delta)
        device.start()
        counter = max(1, device.record.seen.counter)
        device.trust.offer = offer_of(manifest, counter=counter, trial=WINDOW, guards=GUARDS)
        said: set[str] = set()
        results, offers, looks, asked = len(device.results()), 0, 0, False
        known, known_at = device.record, 0
        try:
            for count in range(MAX_STEPS):
                device.step()
                if device.record is not known:
                    known, known_at = device.record, count
                if count - known_at > MAX_STILL_STEPS:
                    return
                for word in _words(device.record, device) - said:
                    said.add(word)
                    promise(word)
                if device.record.phase is self.aborts_in and not asked:
                    device.driver.abort()
                    asked = True
                if not device.idle or device.trust.looks == looks:
                    continue
                if self._is_over(device.record) and device.live.serving() is not None:
                    return
                if len(device.results()) == results and offers:
                    return  # it says nothing any more
                results, offers, asked = len(device.results()), offers + 1, False
                looks = device.trust.looks
                device.trust.offer = offer_of(manifest, counter=counter + offers, trial=WINDOW, guards=GUARDS)
                device.driver.announce()
                if offers > MAX_OFFERS:
                    return
        finally:
            device.driver.close()

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """I1 to I9 of `invariants`, and every promise kept."""
        store = Store(root, factory=published() / "factory")
        yield from (what for word in promises if (what := said_in(word)) is not None)
        try:
            record = Journal(root / "state", NAME, UpdateRecord, schema=SCHEMA).read()
            reports = [entry.result for entry in Outbox(root / "state" / "outbox").entries() if entry.result]
        except VedetteError as error:
            yield broken("I1", f"the record is lost: {error}")
            return
        if record is None:
            if set(promises) - {KILLED}:
                yield broken("I1", f"there is no record, after {promises}")
            return
        yield from _proven_is_whole(record, store)
        yield from _unbounded(root, record, release(delta=self.delta))
        keys = [f"{report.update_id} {report.seq}" for report in reports]
        if len(set(keys)) != len(keys):
            yield broken("I6", f"reported twice: {keys}")
        for word in promises:
            if word.startswith("reported ") and word.removeprefix("reported ") not in keys:
                yield broken("I6", f"a report is gone: {word}")
        yield from _forgotten(record, promises)
        if ended:
            kills = promises.count(KILLED)
            yield from self._unfinished(root, record, store, [report.result for report in reports], kills)

    def _is_over(self, record: UpdateRecord) -> bool:
        return record.last is not None and record.last.result is self.result

    def _unfinished(
        self, root: Path, record: UpdateRecord, store: Store, results: list[Result], kills: int
    ) -> Iterable[str]:
        wanted = self.result
        condemned = record.last is not None and record.last.cause is Cause.CRASH_LOOP
        if record.last is not None and condemned and kills >= TRIES and results:
            wanted = (
                record.last.result
            )  # killed too often while the candidate was loaded: it had to be suspected
        over = record.last is not None and record.last.result is wanted
        if record.phase is not Phase.IDLE or not over or results[-1:] != [wanted]:
            yield broken(
                "I6", f"it ended in {record.phase.value} with {record.last}, having reported {results}"
            )
            return
        if results.count(wanted) != 1:
            yield broken("I6", f"it ended more than once: {results}")
        new = {"1"} if wanted is Result.SUCCESS else set()
        entries, damaged = store.scan()
        if {entry.manifest.version for entry in entries} != new or damaged:
            yield broken(
                "I9", f"the store holds {[entry.manifest.version for entry in entries]} and {damaged}"
            )
        for entry in entries:
            yield from _harmed(store, entry.sha256)
        left = [path.name for path in (root / "staging").iterdir()]
        left += [path.name for path in (root / "store").iterdir() if path.name.startswith(".")]
        if left:
            yield broken("I9", f"left behind: {left}")
        if (condemned or wanted is Result.FAILED_ROLLED_BACK) and not record.blacklist:
            yield broken("I8", "the verdict is forgotten")


def _words(record: UpdateRecord, device: Box) -> set[str]:
    """What a driver that took this record may be held to: it wrote it before."""
    durable = on_disk(record)
    words = {f"seen {durable.seen.counter}"} if durable.seen.counter else set()
    words |= {f"floor {durable.release_floor}"} if durable.release_floor else set()
    words |= {f"condemned {entry.sha256}" for entry in durable.blacklist}
    if durable.phase is Phase.IDLE:
        words |= {f"reported {report.update_id} {report.seq}" for report in device.results()}
    return words


def _proven_is_whole(record: UpdateRecord, store: Store) -> Iterable[str]:
    factory_sha256 = next(iter(known_bundles()))
    for model in (record.active, record.previous):
        if model is None or model.sha256 == factory_sha256:
            continue
        harmed = list(_harmed(store, model.sha256))
        if not harmed and store.verify(model.sha256).confirmed_order is None:
            yield broken("I4", "an unconfirmed model is active")
        yield from harmed
    if record.active is None:
        yield broken("I1", "no model is active")


def _harmed(store: Store, sha256: str) -> Iterable[str]:
    try:
        store.verify(sha256, full=True)
    except VedetteError as error:
        yield broken("I1", f"a bundle of the store is not whole: {error}")


def _unbounded(root: Path, record: UpdateRecord, manifest: ReleaseManifest) -> Iterable[str]:
    """Bytes over the wire, tries, transitions; and on the disk: the new bundle, once more in the making."""
    encodings = [encoding for file in manifest.files for encoding in file.encodings]
    blobs_bytes = sum(encoding.size_bytes for encoding in encodings)
    if record.bytes_fetched > 2 * blobs_bytes:
        yield broken("I5", f"{record.bytes_fetched} bytes were fetched of {blobs_bytes}")
    if any(progress.attempts > MAX_ATTEMPTS for progress in record.files):
        yield broken("I5", f"too many attempts: {record.files}")
    if record.transitions_used > TRANSITION_BUDGET:
        yield broken("I5", f"{record.transitions_used} transitions")
    limit_bytes = 2 * sum(file.size_bytes for file in manifest.files) + blobs_bytes + SLACK_BYTES
    there = [path for folder in ("store", "staging") for path in (root / folder).rglob("*")]
    on_disk_bytes = sum(path.stat().st_size for path in there if path.is_file())
    if on_disk_bytes > limit_bytes:
        yield broken("I5", f"{on_disk_bytes} bytes in store and staging; {limit_bytes} may be")


def _forgotten(record: UpdateRecord, promises: Sequence[str]) -> Iterable[str]:
    condemned = {entry.sha256 for entry in record.blacklist}
    for word in promises:
        kind, _, value = word.partition(" ")
        if (kind == "seen" and record.seen.counter < int(value)) or (
            kind == "floor" and record.release_floor < int(value)
        ):
            yield broken("I3", f"forgotten: {word}")
        if kind == "condemned" and value not in condemned:
            yield broken("I8", f"forgotten: {word}")


UPDATES = (
    UpdateScenario("update delta", Result.SUCCESS),
    UpdateScenario("update full", Result.SUCCESS, delta=False),
    UpdateScenario("update rollback", Result.FAILED_ROLLED_BACK, behaviour=SLOW),
    UpdateScenario("update abort", Result.ABORTED, aborts_in=Phase.APPLY),
    UpdateScenario("trial abort", Result.FAILED_ROLLED_BACK, aborts_in=Phase.TRIAL),
)
