"""Fault matrix: key rotation, thresholds, fast-forward and stale caches, as the device's client sees them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from securesystemslib.signer import CryptoSigner
from tests.unit.trust.simulator import OWNER_ROLE, RepositorySimulator, trust_in
from tests.unit.trust.test_trust_attacks import offered, refused
from tuf.api.metadata import Metadata, Snapshot

from vedette.journal import Journal
from vedette.trust.marks import Marks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository() -> RepositorySimulator:
    """One release, rolled out to everybody."""
    simulator = RepositorySimulator()
    simulator.release("1")
    simulator.publish()
    return simulator


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "trust"


def renew(repository: RepositorySimulator, role: str) -> None:
    """Another key for a delegated role, in place of the old one."""
    paths = {"rollouts": ["rollouts.json"], OWNER_ROLE: ["models/acme/*/*"]}
    repository.signers[role] = [CryptoSigner.generate_ed25519()]
    repository.delegate(role, paths[role])


@pytest.mark.parametrize(("cache", "word"), [("kept", "bad_signature"), ("lost", "rollback_attack")])
def test_root_1_to_2_to_3_while_offline_and_no_way_back(
    repository: RepositorySimulator, state: Path, cache: str, word: str
) -> None:
    """Fault matrix: key rotation: root 1→2→3 while offline; a chain that ends at 2 is refused afterwards."""
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 1
    repository.rotate("root")
    repository.publish()
    at_root_2 = repository.copy()
    repository.rotate("root", "timestamp")
    repository.publish()
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 3
    if cache == "lost":
        shutil.rmtree(state / "metadata")
    assert refused(trust_in(state, at_root_2, repository.bootstrap)) == word
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 3


def test_root_2_missing_ends_the_walk_and_the_new_timestamp_is_not_believed(
    repository: RepositorySimulator, state: Path
) -> None:
    """Fault matrix: key rotation: a mirror that copied root 3 and not root 2."""
    trust_in(state, repository, repository.bootstrap).refresh()
    repository.rotate("root")
    repository.rotate("timestamp")
    repository.publish()
    hidden = repository.files.pop("metadata/2.root.json")
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"
    repository.files["metadata/2.root.json"] = hidden
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 2


@pytest.mark.parametrize("role", ["rollouts", OWNER_ROLE])
def test_owner_key_and_rollouts_key_are_rotated_and_the_old_ones_are_refused(
    repository: RepositorySimulator, state: Path, role: str
) -> None:
    """Fault matrix: key rotation: owner key."""
    trust_in(state, repository, repository.bootstrap).refresh()
    stolen = repository.signers[role]
    renew(repository, role)
    repository.release("2", counter=2)
    repository.publish()
    offer = offered(trust_in(state, repository, repository.bootstrap))
    assert (offer.manifest.version, offer.epoch) == ("2", 0)
    repository.signers[role] = stolen
    repository.release("3", counter=3)
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_online_and_targets_keys_are_rotated_and_the_old_ones_are_refused(
    repository: RepositorySimulator, state: Path, role: str
) -> None:
    """Fault matrix: key rotation: timestamp, and the other top-level roles."""
    trust_in(state, repository, repository.bootstrap).refresh()
    stolen = repository.signers[role]
    repository.rotate(role)
    repository.publish()
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 2
    repository.signers[role] = stolen
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"


@pytest.mark.parametrize("role", ["targets", "rollouts", OWNER_ROLE])
def test_below_threshold_is_refused_with_one_key_or_the_same_twice(
    repository: RepositorySimulator, state: Path, role: str
) -> None:
    """Fault matrix: below threshold: two keys are wanted and one signed."""
    second = CryptoSigner.generate_ed25519()
    if role == "targets":
        repository.root.add_key(second.public_key, role)
        repository.root.roles[role].threshold = 2
        repository.publish_root()
    else:
        repository.targets.add_key(second.public_key, role)
        assert repository.targets.delegations is not None
        assert repository.targets.delegations.roles is not None
        repository.targets.delegations.roles[role].threshold = 2
    first = repository.signers[role][0]
    for signers in ([first], [first, first], [second, second]):
        repository.signers[role] = signers
        repository.publish()
        assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"
    repository.signers[role] = [first, second]
    repository.publish()
    assert offered(trust_in(state, repository, repository.bootstrap)).manifest.version == "1"


@pytest.mark.parametrize(("also", "word"), [("timestamp", "bad_signature"), ("snapshot", "rollback_attack")])
def test_fast_forward_by_the_rollouts_key_is_recovered_from(
    repository: RepositorySimulator, state: Path, also: str, word: str
) -> None:
    """Fault matrix: fast-forward attack recovery: high-water marks start over with new online keys only."""
    trust_in(state, repository, repository.bootstrap).refresh()
    thief = repository.copy()
    thief.delegated["rollouts"].version = 2**31
    thief.publish()
    assert offered(trust_in(state, thief, repository.bootstrap)).counter == 2**31 + 1
    repository.publish()
    renew(repository, "rollouts")
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"
    repository.rotate(also)
    repository.publish()
    offer = offered(trust_in(state, repository, repository.bootstrap))
    assert (offer.counter, offer.epoch) == (4, 1)
    assert refused(trust_in(state, thief, repository.bootstrap)) == word


def test_a_removed_role_is_refused_and_a_new_one_is_not(repository: RepositorySimulator, state: Path) -> None:
    """Fault matrix: replay, mix of two snapshots, removed role: an owner that vanishes was taken away."""
    trust_in(state, repository, repository.bootstrap).refresh()
    snapshot = repository.current_snapshot()
    del snapshot.meta[f"{OWNER_ROLE}.json"]
    repository.write_snapshot(snapshot)
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"
    snapshot = repository.current_snapshot()
    restored = Metadata.from_bytes(repository.files["metadata/1.snapshot.json"]).signed
    assert isinstance(restored, Snapshot)
    snapshot.meta = {**restored.meta, "models-newcomer.json": restored.meta["rollouts.json"]}
    repository.write_snapshot(snapshot)
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 1


def test_stale_caches_are_ignored_and_leave_the_watermark_untouched(
    repository: RepositorySimulator, state: Path
) -> None:
    """Casebook 40: an edge serves the timestamp of before, then a mixture, then all of the new."""
    old = repository.copy()
    repository.release("2", counter=2)
    repository.publish()
    trust = trust_in(state, repository, repository.bootstrap)
    assert offered(trust).counter == 2
    marks = read_marks(state)
    new = repository.copy()
    for stale in (
        {"metadata/timestamp.json": old.files["metadata/timestamp.json"]},
        {"metadata/2.snapshot.json": old.files["metadata/1.snapshot.json"]},
        {"metadata/2.rollouts.json": old.files["metadata/1.rollouts.json"]},
    ):
        shutil.rmtree(state / "metadata")
        repository.files = {**new.files, **stale}
        assert refused(trust) in {"rollback_attack", "hash_mismatch"}
        assert read_marks(state) == marks
    repository.files = new.files
    assert offered(trust).counter == 2


def read_marks(state: Path) -> Marks | None:
    return Journal(state, "trust", Marks, capacity_bytes=1 << 17).read()
