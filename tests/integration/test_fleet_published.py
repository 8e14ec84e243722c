"""What the operator publishes over real HTTP is what the device's own trust, fetcher and decoders take."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import NOW, Desk, bundle, weights

from vedette.bundle.folder import load_bundle
from vedette.errors import TrustError
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.update.codecs.decode import FileDecoder
from vedette.update.http import HttpFetcher
from vedette.update.staging import Staging
from vedette.wire.release import EncodingKind
from vedette.wire.rollout import Guards, Window
from vedette_fleet import rollout as edits
from vedette_fleet.encoders import SmallestEncoder
from vedette_fleet.release_files import Publisher, Request
from vedette_fleet.rollout import Terms
from vedette_fleet.rollout_files import edit_rollouts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.trust.offer import Offer
    from vedette.wire.release import Encoding, ReleaseFile


class _Clock:
    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def utc_s(self) -> float:
        return NOW.timestamp() + self.ahead_s

    def synchronised(self) -> bool | None:
        return True


@contextlib.contextmanager
def serve_files(folder: Path) -> Iterator[str]:
    """The installed command, ended as systemd would."""
    command = [sys.executable, "-c", "from vedette_fleet.cli.main import main; main()"]
    process = subprocess.Popen(
        [*command, "serve-files", str(folder), "--port", "0", "--quiet"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.stdout.close()


class Box:
    """A device in a folder, put together from the agent's own parts."""

    def __init__(self, folder: Path, url: str, root: bytes, clock: _Clock | None = None) -> None:
        folder.mkdir()
        self.fetcher = HttpFetcher(url, stall_s=5)
        self.trust = TufTrust(
            self.fetcher,
            folder / "trust",
            bootstrap=root,
            build_utc_s=int(NOW.timestamp()) - 86400,
            device=Device("cam-1", "tiny", {"class": "orin-nano"}),
            clock=clock or _Clock(),
        )
        self._folder = folder
        self.fetched_bytes = 0

    def install(self, offer: Offer, base: Path | None) -> Path:
        """Every file by delta where the base fits, the sealed bundle at the end."""
        staging = Staging(self._folder / f"staging-{offer.manifest.version}")
        staging.make()
        for file in offer.manifest.files:
            self._make(file, staging, base)
        staging.seal(offer.manifest)
        return staging.bundle

    def _make(self, file: ReleaseFile, staging: Staging, base: Path | None) -> None:
        old = None if base is None else base / file.path
        held = None if old is None else hashlib.sha256(old.read_bytes()).hexdigest()
        if old is not None and held == file.sha256:
            staging.copy_in(old, file.path)
            return
        deltas = [item for item in file.encodings if item.base_sha256 == held]
        item = deltas[0] if held is not None and deltas else _full(file)
        patch = self._folder / item.sha256
        patch.write_bytes(b"".join(self.fetcher.blob(item.sha256, 0, item.size_bytes)))
        self.fetched_bytes += item.size_bytes
        start = old if item.kind is EncodingKind.DELTA else None
        FileDecoder().decode(item.codec, patch, start, staging.output(file.path), size_bytes=file.size_bytes)


def _full(file: ReleaseFile) -> Encoding:
    return next(item for item in file.encodings if item.kind is EncodingKind.FULL)


def _publish(desk: Desk, folder: Path) -> None:
    Publisher(desk.workshop, SmallestEncoder(lambda _note: None), lambda _w, _d, _t: None).release(
        Request(folder)
    )


def _roll_out(desk: Desk, name: str, release: str) -> None:
    terms = Terms({"class": "orin-nano"}, (10_000,), 0, 0.0, None, Window(1.0, 1, 60.0), Guards())
    edit_rollouts(
        desk.workshop,
        lambda known: edits.start(
            known.plan,
            name,
            known.release(release),
            terms,
            counters=known.counters(),
            rollback_of=None,
        ),
    )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path).initialised()
    _publish(desk, bundle(tmp_path, "1"))
    _roll_out(desk, "one", "tiny@1")
    return desk


def test_a_device_installs_the_first_release_whole_and_the_second_by_delta(
    desk: Desk, tmp_path: Path
) -> None:
    root = (desk.repository.path / "metadata" / "1.root.json").read_bytes()
    with serve_files(desk.repository.path) as url:
        box = Box(tmp_path / "box", url, root)
        offer = box.trust.refresh()
        assert offer is not None
        first = box.install(offer, None)
        whole_bytes, box.fetched_bytes = box.fetched_bytes, 0
        assert load_bundle(first).sha256 == load_bundle(tmp_path / "tiny-1").sha256

        _publish(desk, bundle(tmp_path, "2", weights(tuned=0.02)))
        _roll_out(desk, "two", "tiny@2")
        desk.workshop.rotate("timestamp", None)
        desk.workshop.rotate("models-demo", None)
        newer = box.trust.refresh()
        assert newer is not None
        assert (newer.manifest.version, newer.counter > offer.counter) == ("2", True)
        assert not box.trust.still_wanted(offer)
        second = box.install(newer, first)
        assert load_bundle(second).sha256 == load_bundle(tmp_path / "tiny-2").sha256
        assert box.fetched_bytes < 0.1 * whole_bytes

        edit_rollouts(desk.workshop, lambda known: edits.withdraw(known.plan, newer.rollout.target))
        again = box.trust.refresh()
        assert again is not None
        assert again.manifest.version == "1", "a withdrawn rollout is as if it were not there"
        assert not box.trust.still_wanted(newer)


def test_a_repository_that_nobody_refreshed_starts_no_update(desk: Desk, tmp_path: Path) -> None:
    """Case 39: expired metadata keeps the model and says so; `refresh` is the cure."""
    root = (desk.repository.path / "metadata" / "1.root.json").read_bytes()
    with serve_files(desk.repository.path) as url:
        box = Box(tmp_path / "box", url, root, _Clock(ahead_s=8 * 86400))
        with pytest.raises(TrustError) as caught:
            box.trust.refresh()
        assert caught.value.kind == "expired"
        desk.later(days=8).workshop.refresh([])
        assert box.trust.refresh() is not None
