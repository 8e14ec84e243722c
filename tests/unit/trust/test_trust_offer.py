"""What a device is offered, what it remembers, and what it does when disk or process fail."""

from __future__ import annotations

import errno
import fcntl
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.trust.simulator import DEVICE, RepositorySimulator, trust_in
from tuf.ngclient import Updater

from vedette import fsops
from vedette.errors import InternalError, TrustError, UnavailableError
from vedette.trust.documents import Device, owner_role
from vedette.trust.wall_clock import SystemWallClock
from vedette.wire.rollout import BUCKETS, bucket_of
from vedette_fleet.roles import owner_role as published_role

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.trust.offer import Offer


@pytest.fixture
def repository() -> RepositorySimulator:
    """Releases 1 and 2, both rolled out to everybody; the later entry wins."""
    simulator = RepositorySimulator()
    simulator.release("1")
    simulator.release("2", counter=2)
    simulator.publish()
    return simulator


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "trust"


def offer_of(repository: RepositorySimulator, state: Path, device: Device = DEVICE) -> Offer | None:
    return trust_in(state, repository, repository.bootstrap, device=device).refresh()


def version_of(repository: RepositorySimulator, state: Path, device: Device = DEVICE) -> str | None:
    offer = offer_of(repository, state, device)
    return None if offer is None else offer.manifest.version


def test_the_last_rollout_that_concerns_the_device_is_offered(
    repository: RepositorySimulator, state: Path
) -> None:
    offer = offer_of(repository, state)
    assert offer is not None
    assert (offer.counter, offer.rollout.id, offer.manifest.version) == (1, "r1", "2")
    assert offer.manifest_sha256 == offer.rollout.sha256


@pytest.mark.parametrize(
    "fields",
    [{"share": 0}, {"select": {"class": "phone"}}, {"withdrawn": True}],
    ids=["nobody yet", "other labels", "withdrawn"],
)
def test_a_rollout_that_is_not_for_the_device_leaves_the_one_before(
    repository: RepositorySimulator, state: Path, fields: dict[str, object]
) -> None:
    repository.change(1, **fields)
    repository.publish()
    assert version_of(repository, state) == "1"


def test_a_paused_rollout_offers_nothing_older_either(repository: RepositorySimulator, state: Path) -> None:
    repository.change(1, paused=True)
    repository.publish()
    assert version_of(repository, state) is None


def test_a_wave_holds_by_bucket(repository: RepositorySimulator, state: Path) -> None:
    """Casebook 62: strictly below the share; without an id only rollouts to everybody."""
    bucket = bucket_of("salt", DEVICE.device_id)
    assert bucket + 1 < BUCKETS
    repository.change(1, share=bucket)
    repository.publish()
    assert version_of(repository, state) == "1"
    repository.change(1, share=bucket + 1)
    repository.publish()
    assert version_of(repository, state) == "2"
    assert version_of(repository, state, Device("", "traffic", DEVICE.labels)) == "1"


def test_another_model_is_offered_nothing(repository: RepositorySimulator, state: Path) -> None:
    assert version_of(repository, state, Device("cam-7", "faces")) is None


def test_nothing_is_fetched_twice(repository: RepositorySimulator, state: Path) -> None:
    assert offer_of(repository, state) == offer_of(repository, state)
    repository.requests.clear()
    assert version_of(repository, state) == "2"
    assert repository.requests == ["metadata/2.root.json", "metadata/timestamp.json"]


def test_a_withdrawal_reaches_an_update_under_way(repository: RepositorySimulator, state: Path) -> None:
    trust = trust_in(state, repository, repository.bootstrap)
    offer = trust.refresh()
    assert offer is not None
    assert trust.still_wanted(offer)
    repository.change(1, withdrawn=True)
    repository.publish()
    trust.refresh()
    assert not trust.still_wanted(offer)
    # After a restart, with the repository and the clock gone.
    away = RepositorySimulator()
    away.files.clear()
    assert not trust_in(state, away, repository.bootstrap).still_wanted(offer)


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_an_update_goes_on_when_the_document_kept_is_damaged(
    repository: RepositorySimulator, state: Path, damage: str
) -> None:
    offer = offer_of(repository, state)
    assert offer is not None
    kept = state / "metadata" / "kept.rollouts.json"
    if damage == "gone":
        kept.unlink()
    else:
        kept.write_bytes(kept.read_bytes()[:-9])
    trust = trust_in(state, repository, repository.bootstrap)
    assert trust.still_wanted(offer)


def test_an_old_stick_gives_way_to_what_the_device_knows(
    repository: RepositorySimulator, state: Path
) -> None:
    """aktualizr-lite 314: import from a folder that is behind the device."""
    stick = repository.copy()
    repository.change(1, withdrawn=True)
    repository.publish()
    assert version_of(repository, state) == "1"
    trust = trust_in(state, stick, repository.bootstrap, accept_older=True)
    offer = trust.refresh()
    assert offer is not None
    assert (offer.counter, offer.manifest.version) == (2, "1")


def test_a_new_stick_is_the_repository(repository: RepositorySimulator, state: Path) -> None:
    trust = trust_in(state, repository, repository.bootstrap, accept_older=True)
    offer = trust.refresh()
    assert offer is not None
    assert offer.manifest.version == "2"


def test_an_old_stick_does_not_make_old_marks(repository: RepositorySimulator, state: Path) -> None:
    """With the cache lost there is nothing newer to go by, and the stick stays refused."""
    stick = repository.copy()
    repository.publish()
    offer_of(repository, state)
    for path in (state / "metadata").glob("*.json"):
        path.unlink()
    with pytest.raises(TrustError) as caught:
        trust_in(state, stick, repository.bootstrap, accept_older=True).refresh()
    assert caught.value.kind == "rollback_attack"


def test_a_second_process_is_told_so(repository: RepositorySimulator, state: Path) -> None:
    offer_of(repository, state)
    with (state / "trust.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="another process"):
            offer_of(repository, state)
    assert version_of(repository, state) == "2"


class Step:
    """Counts durable steps; at the chosen one, power or disk fails."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.count = 0
        self._at = at
        self._error = error

    def before(self, operation: fsops.Operation) -> None:
        assert operation.path
        self.count += 1
        if self.count == self._at:
            raise self._error


class PowerCutError(BaseException):
    """Nothing runs after it."""


def count_steps(repository: RepositorySimulator, state: Path) -> int:
    steps = Step(0, PowerCutError())
    with fsops.traced(steps):
        offer_of(repository, state)
    return steps.count


def test_power_lost_at_any_step_neither_forgets_nor_blocks(
    repository: RepositorySimulator, tmp_path: Path
) -> None:
    """Invariant I3 for trust: whatever step is the last, the older repository stays refused."""
    old = repository.copy()
    repository.publish()
    newer = repository.copy()
    newer.publish()
    total = count_steps(newer, tmp_path / "count")
    assert total > 20
    for at in range(1, total + 1, 3):  # `make crash` takes every step
        state = tmp_path / f"cut{at}"
        offer_of(repository, state)
        with fsops.traced(Step(at, PowerCutError())), pytest.raises(PowerCutError):
            raise_unless_cut(newer, state)
        with pytest.raises(TrustError) as caught:
            offer_of(old, state)
        assert caught.value.kind == "rollback_attack", at
        offer = offer_of(newer, state)
        assert offer is not None
        assert offer.counter == 3


def raise_unless_cut(repository: RepositorySimulator, state: Path) -> None:
    """Fewer steps are needed over a warm cache, so the last cuts may never come."""
    offer_of(repository, state)
    raise PowerCutError


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_no_refusal_and_offers_nothing(
    repository: RepositorySimulator, tmp_path: Path, code: int
) -> None:
    """F10: an offer is made only once its marks are durable; a copy that failed may be replaced meanwhile."""
    old = repository.copy()
    repository.publish()
    total = count_steps(repository, tmp_path / "count")
    failed = 0
    for at in range(1, total + 1, 5):
        state = tmp_path / f"{code}-{at}"
        try:
            with fsops.traced(Step(at, OSError(code, "as a test wants"))):
                offer_of(repository, state)
        except UnavailableError:
            failed += 1
            assert version_of(repository, state) == "2"
        shutil.rmtree(state / "metadata")
        with pytest.raises(TrustError):
            offer_of(old, state)
    assert failed > total / 10


def test_a_python_tuf_that_cannot_be_hardened_is_refused(
    repository: RepositorySimulator, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is overridden is private to it, and may be gone in a later version."""
    monkeypatch.delattr(Updater, "_persist_file")
    with pytest.raises(InternalError, match="_persist_file"):
        offer_of(repository, state)


def test_the_clock_of_this_box() -> None:
    clock = SystemWallClock()
    assert abs(clock.utc_s() - time.time()) < 5
    assert clock.synchronised() in {True, False, None}


def test_publisher_and_device_name_the_owner_role_alike(repository: RepositorySimulator) -> None:
    assert owner_role(repository.rollouts[0]) == published_role("acme")


_WITHOUT_SIGNING = """
import sys
sys.modules["cryptography"] = None
from pathlib import Path
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.update.folder import FolderFetcher
from vedette.trust.wall_clock import SystemWallClock

class Clock:
    def utc_s(self): return {now}
    def synchronised(self): return SystemWallClock().synchronised() and None

folder = Path({folder!r})
root = (folder / "metadata/1.root.json").read_bytes()
trust = TufTrust(FolderFetcher(folder), folder / "state", bootstrap=root, build_utc_s=0,
                 device=Device("cam-7", "traffic"), clock=Clock())
print(trust.refresh().manifest.version)
"""


def test_a_device_verifies_without_the_signing_library(
    repository: RepositorySimulator, tmp_path: Path
) -> None:
    """The device installs no `cryptography`: ed25519 is verified in Python."""
    for name, content in repository.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    script = _WITHOUT_SIGNING.format(now=repository.now.timestamp(), folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
