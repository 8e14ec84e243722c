"""Attacks on the update repository, each refused with its reason; recovery afterwards, without a hand."""

from __future__ import annotations

import shutil
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.trust.simulator import (
    LIFETIME_DAYS,
    NOW,
    OWNER_ROLE,
    FixedClock,
    RepositorySimulator,
    trust_in,
)
from tuf.api.metadata import Metadata, Targets

from vedette.errors import TrustError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.trust.client import TufTrust
    from vedette.trust.offer import Offer


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


def refused(trust: TufTrust) -> str:
    """The word of a refusal; it always comes with a cause and a cure."""
    with pytest.raises(TrustError) as caught:
        trust.refresh()
    assert caught.value.cure
    return caught.value.kind


def offered(trust: TufTrust) -> Offer:
    offer = trust.refresh()
    assert offer is not None
    return offer


def two_publications(repository: RepositorySimulator, state: Path) -> RepositorySimulator:
    """A device that has seen the second publication; gives back a recording of the first."""
    trust_in(state, repository, repository.bootstrap).refresh()
    old = repository.copy()
    repository.release("2", counter=2)
    repository.publish()
    trust_in(state, repository, repository.bootstrap).refresh()
    return old


def zero(path: Path) -> None:
    path.write_bytes(b"")


LOSSES = {
    "nothing lost": [],
    "timestamp zeroed": ["metadata/timestamp.json"],
    "timestamp and snapshot zeroed": ["metadata/timestamp.json", "metadata/snapshot.json"],
    "cache and first marks zeroed": ["trust.rec.0", "metadata/timestamp.json", "metadata/snapshot.json"],
    "cache and second marks zeroed": ["trust.rec.1", "metadata/timestamp.json", "metadata/snapshot.json"],
    "both copies of the marks zeroed": ["trust.rec.0", "trust.rec.1"],
}


@pytest.mark.parametrize("lost", LOSSES.values(), ids=LOSSES.keys())
def test_replay_of_an_older_repository_is_refused_whatever_was_zeroed(
    repository: RepositorySimulator, state: Path, lost: list[str]
) -> None:
    """Casebook 35: the stock client accepts it when timestamp and snapshot are both zeroed."""
    old = two_publications(repository, state)
    for name in lost:
        zero(state / name)
    assert refused(trust_in(state, old, repository.bootstrap)) == "rollback_attack"
    assert offered(trust_in(state, repository, repository.bootstrap)).manifest.version == "2"


def test_replay_is_refused_with_the_whole_cache_gone(repository: RepositorySimulator, state: Path) -> None:
    old = two_publications(repository, state)
    shutil.rmtree(state / "metadata")
    assert refused(trust_in(state, old, repository.bootstrap)) == "rollback_attack"
    assert not (state / "metadata" / "timestamp.json").exists(), "a refused replay was kept"


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_torn_files_of_the_cache_are_fetched_again(
    repository: RepositorySimulator, state: Path, cut: int
) -> None:
    trust_in(state, repository, repository.bootstrap).refresh()
    for path in (state / "metadata").rglob("*.json"):
        path.write_bytes(path.read_bytes()[:cut])
    assert offered(trust_in(state, repository, repository.bootstrap)).manifest.version == "1"


def test_marks_lost_in_both_copies_are_reported(repository: RepositorySimulator, state: Path) -> None:
    two_publications(repository, state)
    for name in ("trust.rec.0", "trust.rec.1"):
        (state / name).write_bytes(b"\0" * 4096)
    trust = trust_in(state, repository, repository.bootstrap)
    assert offered(trust).counter == 2
    assert trust.marks_lost
    assert offered(trust).counter == 2
    assert not trust.marks_lost, "the copies were written anew"


@pytest.mark.parametrize("role", sorted(LIFETIME_DAYS))
def test_frozen_at_each_role_once_it_expired(state: Path, role: str) -> None:
    """Freeze: everything else is good for years, one role is served for longer than it was signed for."""
    years = dict.fromkeys(LIFETIME_DAYS, 2000)
    repository = RepositorySimulator(lifetime_days={**years, role: LIFETIME_DAYS[role]})
    repository.release("1")
    repository.publish()
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 1
    later = FixedClock(NOW + timedelta(days=LIFETIME_DAYS[role] + 1))
    assert refused(trust_in(state, repository, repository.bootstrap, clock=later)) == "expired"


def test_new_timestamp_with_an_old_snapshot(repository: RepositorySimulator, state: Path) -> None:
    """Mix and match of two publications, at the snapshot."""
    old = two_publications(repository, state)
    repository.publish()
    repository.files["metadata/3.snapshot.json"] = old.files["metadata/1.snapshot.json"]
    assert refused(trust_in(state, repository, repository.bootstrap)) == "hash_mismatch"


@pytest.mark.parametrize("role", ["targets", "rollouts", OWNER_ROLE])
def test_new_snapshot_with_an_old_role(repository: RepositorySimulator, state: Path, role: str) -> None:
    """Mix and match of two publications, below the snapshot."""
    old = two_publications(repository, state)
    repository.publish()
    repository.files[f"metadata/3.{role}.json"] = old.files[f"metadata/1.{role}.json"]
    assert refused(trust_in(state, repository, repository.bootstrap)) == "hash_mismatch"


def test_snapshot_key_lists_an_older_role(repository: RepositorySimulator, state: Path) -> None:
    """Somebody with the online keys alone rolls the owner's role back."""
    two_publications(repository, state)
    snapshot = repository.current_snapshot()
    snapshot.meta[f"{OWNER_ROLE}.json"].version = 1
    repository.write_snapshot(snapshot)
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"
    shutil.rmtree(state / "metadata")
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"


def test_snapshot_lists_a_role_no_more(repository: RepositorySimulator, state: Path) -> None:
    two_publications(repository, state)
    snapshot = repository.current_snapshot()
    del snapshot.meta["rollouts.json"]
    repository.write_snapshot(snapshot)
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"
    shutil.rmtree(state / "metadata")
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"


def test_older_rollout_document_under_a_newer_signature(repository: RepositorySimulator, state: Path) -> None:
    """The rollouts key signs an old document as new."""
    two_publications(repository, state)
    repository.counter = 1
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"


def test_root_below_the_threshold_of_the_old_keys(repository: RepositorySimulator, state: Path) -> None:
    """One old signature and two new ones are not enough, two and two are."""
    trust_in(state, repository, repository.bootstrap).refresh()
    repository.rotate("root")
    good = repository.files["metadata/2.root.json"]
    signers = repository.signers["root"]
    metadata = Metadata.from_bytes(good)
    for signer in signers[4:]:
        del metadata.signatures[signer.public_key.keyid]
    repository.files["metadata/2.root.json"] = metadata.to_bytes()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"
    repository.files["metadata/2.root.json"] = good
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 1


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "rollouts", OWNER_ROLE])
def test_signature_of_a_stranger(repository: RepositorySimulator, state: Path, role: str) -> None:
    stranger = RepositorySimulator()
    repository.signers[role] = stranger.signers[role]
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_signature"
    assert not (state / "trust.rec.0").exists()


def test_device_that_was_offline_over_three_roots(repository: RepositorySimulator, state: Path) -> None:
    trust_in(state, repository, repository.bootstrap).refresh()
    repository.rotate("root")
    repository.rotate("timestamp", "root")
    repository.rotate("targets")
    repository.publish()
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 2


def test_old_roots_alone_with_keys_that_were_revoked(repository: RepositorySimulator, state: Path) -> None:
    """The cache is lost, and whoever stole the old online keys hides the root that revoked them."""
    trust_in(state, repository, repository.bootstrap).refresh()
    thief = repository.copy()
    thief.publish()
    repository.rotate("timestamp", "snapshot")
    repository.publish()
    trust_in(state, repository, repository.bootstrap).refresh()
    shutil.rmtree(state / "metadata")
    assert refused(trust_in(state, thief, repository.bootstrap)) == "rollback_attack"


@pytest.mark.parametrize("stolen", ["timestamp", "snapshot"])
def test_fast_forward_is_recovered_from_by_new_keys(
    repository: RepositorySimulator, state: Path, stolen: str
) -> None:
    """A thief pushed every number to its limit: nothing is believed before new keys, everything after."""
    thief = repository.copy()
    thief.timestamp_version = thief.snapshot_version = 2**31
    for signed in thief.delegated.values():
        signed.version = 2**31
    thief.publish()
    assert offered(trust_in(state, thief, repository.bootstrap)).counter == 2**31 + 1
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "rollback_attack"
    repository.rotate(stolen)
    repository.publish()
    offer = offered(trust_in(state, repository, repository.bootstrap))
    assert (offer.counter, offer.epoch) == (3, 1)
    assert trust_in(state, repository, repository.bootstrap).still_wanted(offer)
    repository.change(0, withdrawn=True)
    repository.publish()
    trust = trust_in(state, repository, repository.bootstrap)
    assert trust.refresh() is None
    assert not trust.still_wanted(msgspec.structs.replace(offer, counter=2**31 + 1, epoch=0))
    assert refused(trust_in(state, thief, repository.bootstrap)) == "bad_signature"


@pytest.mark.parametrize(
    "path", ["metadata/timestamp.json", "metadata/1.snapshot.json", "metadata/1.rollouts.json"]
)
def test_endless_metadata(repository: RepositorySimulator, state: Path, path: str) -> None:
    repository.files[path] += b" " * 6_000_000
    assert refused(trust_in(state, repository, repository.bootstrap)) == "hash_mismatch"


@pytest.mark.parametrize("mutation", ["longer", "shorter", "bit flip"])
@pytest.mark.parametrize("name", ["rollouts.json", "1.json"])
def test_documents_that_are_not_what_was_signed(
    repository: RepositorySimulator, state: Path, name: str, mutation: str
) -> None:
    (path,) = [path for path in repository.files if path.endswith(f".{name}") and "targets/" in path]
    content = repository.files[path]
    flipped = bytes([content[0] ^ 1]) + content[1:]
    mutated = {"longer": content + b" " * 10_000, "shorter": content[:-1], "bit flip": flipped}
    repository.files[path] = mutated[mutation]
    assert refused(trust_in(state, repository, repository.bootstrap)) == "hash_mismatch"
    repository.files[path] = content
    assert offered(trust_in(state, repository, repository.bootstrap)).counter == 1


def test_metadata_nested_without_end(repository: RepositorySimulator, state: Path) -> None:
    repository.files["metadata/timestamp.json"] = b"[" * 16_000
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"


def test_delegations_deeper_than_one_are_never_walked(repository: RepositorySimulator, state: Path) -> None:
    """The owner delegates to a chain of a hundred roles, the last of which signs the release."""
    owner = repository.delegated[OWNER_ROLE]
    chain = [OWNER_ROLE, *(f"deep-{depth}" for depth in range(100))]
    for by, role in pairwise(chain):
        repository.delegated[role] = Targets()
        repository.delegated[role].version = 0
        repository.signers[role] = repository.signers[OWNER_ROLE]
        repository.delegate(role, ["models/acme/*/*"], by=by)
    repository.delegated[chain[-1]].targets, owner.targets = owner.targets, {}
    repository.publish()
    trust = trust_in(state, repository, repository.bootstrap)
    assert refused(trust) == "bad_metadata"
    assert not any("deep" in request for request in repository.requests)


def test_a_release_that_the_owner_did_not_sign(repository: RepositorySimulator, state: Path) -> None:
    """The rollouts key alone can install nothing."""
    repository.change(0, target="models/acme/traffic/9.json")
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"


def test_a_release_with_another_digest_than_the_owner_signed(
    repository: RepositorySimulator, state: Path
) -> None:
    repository.change(0, sha256="0" * 64)
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "hash_mismatch"


@pytest.mark.parametrize(
    "path", ["models/../../etc/passwd", "rollouts.json", "models/nobody/traffic/1.json", "/etc/passwd", ""]
)
def test_a_release_under_a_strange_path(repository: RepositorySimulator, state: Path, path: str) -> None:
    repository.change(0, target=path)
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"
    assert not [request for request in repository.requests if ".." in request]


def test_a_release_of_another_model(repository: RepositorySimulator, state: Path) -> None:
    repository.release("5", model="faces")
    repository.change(-1, model="traffic")
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"


def test_an_owner_who_signs_for_another(repository: RepositorySimulator, state: Path) -> None:
    """The path is outside of what was delegated to the role."""
    repository.delegate(OWNER_ROLE, ["models/other/*/*"])
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"


@pytest.mark.parametrize(
    ("now", "word"),
    [("1970", "before"), ("+10 years", "ten years after")],
)
def test_wrong_clocks_neither_block_nor_believe_what_expired(
    repository: RepositorySimulator, state: Path, now: str, word: str
) -> None:
    """Casebook 39, invariant I10."""
    wrong = FixedClock(NOW.replace(year=1970) if now == "1970" else NOW + timedelta(days=3700))
    trust = trust_in(state, repository, repository.bootstrap, clock=wrong)
    assert offered(trust).counter == 1
    assert word in trust.clock_doubt
    old = repository.copy()
    repository.now = NOW + timedelta(days=5)
    repository.publish()
    assert offered(trust).counter == 2
    # Signed after those five days: a timestamp that was good for three is known to be expired.
    old.timestamp_version = repository.timestamp_version
    old.snapshot_version = repository.snapshot_version
    old.publish()
    assert refused(trust_in(state, old, repository.bootstrap, clock=wrong)) == "expired"


def test_a_clock_ahead_by_400_days_is_refused_and_poisons_nothing(
    repository: RepositorySimulator, state: Path
) -> None:
    ahead = FixedClock(NOW + timedelta(days=400))
    assert refused(trust_in(state, repository, repository.bootstrap, clock=ahead)) == "expired"
    trust = trust_in(state, repository, repository.bootstrap)
    assert offered(trust).counter == 1
    assert trust.clock_doubt == ""


def test_an_unsynchronised_clock_is_not_used(repository: RepositorySimulator, state: Path) -> None:
    clock = FixedClock(NOW + timedelta(days=30), synchronised=False)
    trust = trust_in(state, repository, repository.bootstrap, clock=clock)
    assert offered(trust).counter == 1
    assert "synchronised" in trust.clock_doubt


def test_a_signer_in_the_future_is_not_believed_by_a_synchronised_device(
    repository: RepositorySimulator, state: Path
) -> None:
    repository.now = NOW + timedelta(days=900)
    repository.publish()
    trust = trust_in(state, repository, repository.bootstrap)
    assert offered(trust).counter == 2
    repository.now = NOW
    repository.publish()
    assert offered(trust).counter == 3
    assert trust.clock_doubt == ""


def test_a_floor_pushed_into_the_future_ends_with_the_keys_that_pushed_it(
    repository: RepositorySimulator, state: Path
) -> None:
    """Without a time server the device believes a signature of 2100; new keys set it free."""
    thief = repository.copy()
    thief.now = NOW + timedelta(days=20_000)
    thief.publish_root()
    thief.publish()
    clock = FixedClock(synchronised=None)
    trust = trust_in(state, thief, repository.bootstrap, clock=clock)
    assert offered(trust).counter == 2
    repository.publish_root()
    repository.rotate("timestamp")
    repository.publish()
    repository.publish()
    trust = trust_in(state, repository, repository.bootstrap, clock=clock)
    assert offered(trust).counter == 3


@pytest.mark.parametrize("issued", ["yesterday", 17, "2099-01-01T00:00:00Z"])
def test_a_signing_time_that_makes_no_sense(
    repository: RepositorySimulator, state: Path, issued: object
) -> None:
    repository.issued = issued
    repository.publish()
    assert refused(trust_in(state, repository, repository.bootstrap)) == "bad_metadata"


def test_a_repository_that_is_away_is_no_refusal(repository: RepositorySimulator, state: Path) -> None:
    trust = trust_in(state, repository, repository.bootstrap)
    offer = offered(trust)
    repository.files.clear()
    with pytest.raises(UnavailableError, match="timestamp"):
        trust.refresh()
    assert trust.still_wanted(offer)
