"""`init`, key files, and what python-tuf's client thinks of the result."""

from __future__ import annotations

import shutil
import stat
from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import NOW, Desk, PowerCut, PowerCutError
from tuf.api.exceptions import ExpiredMetadataError

from vedette import fsops
from vedette.errors import BadInputError, UnavailableError, UsageError
from vedette_fleet import roles
from vedette_fleet.key_files import KeyFolder, create_key, load_key, load_public_key, write_public_key
from vedette_fleet.tuf_ceremonies import Workshop
from vedette_fleet.tuf_repository import TufRepository

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_repository_satisfies_tuf_and_offers_nothing_yet(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised("demo", "acme")
    document = desk.device().rollouts()
    assert (document.counter, document.rollouts) == (1, ())
    assert desk.device().fetch("models/demo/tiny/1.json") is None
    current = desk.repository.load()
    keyids, threshold = roles.role_keys(current.root.signed, current.targets)["root"]
    assert (len(keyids), threshold) == (3, 2)
    assert not current.targets.targets, "top-level targets only delegates"
    delegated = roles.delegated_roles(current.targets)
    assert delegated["models-demo"].paths == ["models/demo/*/*"]
    assert delegated["models-demo"].terminating
    assert delegated["rollouts"].paths == ["rollouts.json"]


def test_roles_expire_as_they_should_and_the_timestamp_says_when_it_was_signed(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    days = {entry.role: (entry.expires - NOW).days for entry in desk.workshop.expiries()}
    assert days == {
        "root": 365,
        "targets": 90,
        "models-demo": 90,
        "rollouts": 7,
        "snapshot": 14,
        "timestamp": 7,
    }
    issued = desk.repository.load().timestamp.signed.unrecognized_fields["issued"]
    assert issued == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_private_keys_are_their_owners_alone_and_outside_of_what_is_served(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    files = list(desk.keys.path.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(desk.keys.path.stat().st_mode) == 0o700
    assert len(files) == 8
    inside = Workshop(desk.repository, KeyFolder(tmp_path / "repo" / "metadata" / "keys"), NOW)
    with pytest.raises(UsageError, match="lies inside the repository"):
        inside.initialise([])


def test_init_again_changes_nothing_but_admits_new_owners(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert desk.workshop.initialise(["demo"]) == []
    assert {path: path.read_bytes() for path in before} == before
    assert desk.workshop.initialise(["demo", "acme"]) == ["admitted owner acme"]
    keys = [path for path in before if path.suffix == ".pem"]
    assert all(path.read_bytes() == before[path] for path in keys)
    assert "models-acme" in desk.repository.load().roles


def test_init_leaves_a_folder_of_something_else_alone(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "lost+found").mkdir()  # of a disk that is mounted there
    photo = tmp_path / "repo" / "photo.jpg"
    photo.write_bytes(b"x")
    with pytest.raises(UsageError, match=r"not empty: it holds photo\.jpg"):
        Desk(tmp_path).initialised()
    assert not (tmp_path / "repo-keys").exists()
    photo.unlink()
    desk = Desk(tmp_path).initialised()
    photo.write_bytes(b"x")
    assert desk.workshop.initialise(["demo"]) == [], "a repository stays one"
    with pytest.raises(UnavailableError, match="Not a directory"):
        Workshop(TufRepository(photo), desk.keys, NOW).initialise([])


def test_init_cut_off_anywhere_is_finished_by_init_and_keeps_every_key(tmp_path: Path) -> None:
    count = PowerCut()
    with fsops.traced(count):
        Desk(tmp_path / "whole").initialised()
    assert count.steps > 50
    for at in range(1, count.steps + 1, 5):
        folder = tmp_path / str(at)
        with pytest.raises(PowerCutError), fsops.traced(PowerCut(at)):
            Desk(folder).initialised()
        keys = {path: path.read_bytes() for path in (folder / "repo-keys").glob("*.pem")}
        desk = Desk(folder).initialised()
        assert desk.device().rollouts().rollouts == ()
        assert {path: path.read_bytes() for path in keys} == keys
        shutil.rmtree(folder)


def test_a_key_that_others_may_read_is_refused_with_the_cure(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    (desk.keys.path / "timestamp-1.pem").chmod(0o640)
    with pytest.raises(BadInputError, match="others may read") as caught:
        desk.keys.load()
    assert caught.value.cure is not None
    assert "chmod 600" in caught.value.cure


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    first = create_key(path)
    with pytest.raises(UsageError, match="never overwritten"):
        create_key(path)
    assert load_key(path).keyid == first.keyid
    write_public_key(tmp_path / "k.pub", first)
    assert load_public_key(tmp_path / "k.pub").keyid == first.keyid
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["k.pem", "k.pub"]


@pytest.mark.parametrize("content", [b"", b"\0" * 200, b"-----BEGIN PRIVATE KEY-----\nAA\n"])
def test_a_damaged_key_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BadInputError, match=r"k\.pem"):
        load_key(path)


def test_only_one_edits_at_a_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    other = TufRepository(desk.repository.path)
    with (
        desk.repository.locked(),
        pytest.raises(UnavailableError, match="another vedette-fleet"),
        other.locked(),
    ):
        pass


def test_no_repository_is_said_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no update repository"), TufRepository(tmp_path).locked():
        pass


@pytest.mark.parametrize("name", ["timestamp.json", "1.snapshot.json", "1.targets.json", "1.rollouts.json"])
def test_damaged_metadata_is_not_published_over(tmp_path: Path, name: str) -> None:
    """Case 35: a zeroed file on the publisher's disk is an error, never an empty repository."""
    desk = Desk(tmp_path).initialised()
    path = desk.repository.path / "metadata" / name
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BadInputError, match=name):
        desk.repository.load()


def test_metadata_signed_by_somebody_else_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "a").initialised()
    stranger = Desk(tmp_path / "b").initialised()
    for name in ("1.targets.json", "1.snapshot.json", "timestamp.json"):
        theirs = stranger.repository.path / "metadata" / name
        shutil.copy(theirs, desk.repository.path / "metadata" / name)
    with pytest.raises(BadInputError, match="not signed as it must be"):
        desk.repository.load()


def test_refresh_renews_an_expired_repository_and_warns_early(tmp_path: Path) -> None:
    Desk(tmp_path, now=NOW - roles.lifetime("snapshot")).initialised()
    desk = Desk(tmp_path)
    with pytest.raises(ExpiredMetadataError):
        desk.device().rollouts()
    renewed, outcome, expiries = desk.workshop.refresh([])
    assert renewed == ["rollouts"]
    assert outcome.published
    assert desk.device().rollouts().counter == 1, "renewed, not edited"
    near = {entry.role for entry in expiries if entry.near}
    assert near == set()
    soon = desk.later(days=61)
    assert {"targets", "models-demo"} <= {entry.role for entry in soon.workshop.expiries() if entry.near}


def test_refresh_renews_offline_roles_only_when_they_are_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    assert desk.workshop.refresh([])[0] == []
    desk.workshop.refresh(["targets", "root"])
    versions = {entry.role: entry.version for entry in desk.workshop.expiries()}
    assert versions == {
        "root": 2,
        "targets": 2,
        "models-demo": 1,
        "rollouts": 1,
        "snapshot": 3,
        "timestamp": 3,
    }
    assert desk.device().rollouts().counter == 1
    with pytest.raises(UsageError, match="no role 'gardener'"):
        desk.workshop.refresh(["gardener"])
