"""Rotation, revocation and ceremonies, as python-tuf's client sees them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import Desk, PowerCut, PowerCutError, bundle
from tuf.api.exceptions import BadVersionNumberError, UnsignedMetadataError

from vedette import fsops
from vedette.errors import BadInputError, UsageError
from vedette_fleet import roles
from vedette_fleet.key_files import KeyFolder, create_key
from vedette_fleet.tuf_ceremonies import Workshop
from vedette_fleet.tuf_signing import sign_file

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "models/demo/tiny/1.json"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path).initialised()
    made.release(bundle(tmp_path, "1"))
    return made


def keyids(desk: Desk, role: str) -> list[str]:
    current = desk.repository.load()
    return roles.role_keys(current.root.signed, current.targets)[role][0]


def test_root_1_to_2_to_3_is_followed_by_old_and_new_devices(desk: Desk) -> None:
    old_device = desk.device()
    assert old_device.manifest(TARGET) is not None
    before = keyids(desk, "root")
    for keyid in before[:2]:
        assert desk.workshop.rotate("root", keyid)[2].published
    assert old_device.manifest(TARGET) is not None, "a device that trusts root 1 and cached it"
    for trusts in (1, 2, 3):
        assert desk.device(trusts=trusts).manifest(TARGET) is not None
    assert len(set(before) & set(keyids(desk, "root"))) == 1


@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp", "rollouts", "models-demo"])
def test_every_key_can_be_rotated_and_used_afterwards(desk: Desk, role: str) -> None:
    device = desk.device()
    device.rollouts()
    old = keyids(desk, role)
    desk.workshop.rotate(role, None)
    assert not set(old) & set(keyids(desk, role))
    assert device.manifest(TARGET) is not None
    desk.workshop.refresh([role])
    desk.release(bundle(desk.folder, "2"))
    assert device.manifest("models/demo/tiny/2.json") is not None
    (desk.keys.path / f"{role}-1.pem").unlink()
    desk.workshop.refresh([role])
    assert desk.device().manifest(TARGET) is not None, "the old key is needed for nothing"


@pytest.mark.parametrize("role", ["timestamp", "targets", "models-demo"])
def test_a_rotation_cut_off_anywhere_is_never_seen_half_done(desk: Desk, tmp_path: Path, role: str) -> None:
    count = PowerCut()
    saved = tmp_path / "saved"
    shutil.copytree(desk.repository.path, saved)
    with fsops.traced(count):
        desk.workshop.rotate(role, None)
    for at in range(1, count.steps + 1):
        shutil.rmtree(desk.repository.path)
        shutil.copytree(saved, desk.repository.path)
        with pytest.raises(PowerCutError), fsops.traced(PowerCut(at)):
            desk.workshop.rotate(role, None)
        assert desk.device().manifest(TARGET) is not None
        desk.workshop.refresh([])
        assert desk.device().manifest(TARGET) is not None


def test_a_lost_timestamp_key_is_replaced_by_the_root_alone(desk: Desk) -> None:
    (desk.keys.path / "timestamp-1.pem").unlink()
    with pytest.raises(BadInputError, match="timestamp"):
        desk.workshop.refresh([])
    assert desk.workshop.rotate("timestamp", None)[2].published
    assert desk.device().manifest(TARGET) is not None


def test_a_rotation_of_a_lost_key_that_was_cut_short_is_finished_by_refresh(desk: Desk) -> None:
    """Here the new root must come first; until the end the timestamp is not signed as it wants."""
    (desk.keys.path / "timestamp-1.pem").unlink()
    with pytest.raises(PowerCutError), fsops.traced(_AfterRoot()):
        desk.workshop.rotate("timestamp", None)
    assert (desk.repository.path / "metadata" / "2.root.json").exists()
    with pytest.raises(UnsignedMetadataError):
        desk.device().rollouts()
    desk.workshop.refresh([])
    assert desk.device().manifest(TARGET) is not None


class _AfterRoot:
    """Cuts the power once the new root is published."""

    def __init__(self) -> None:
        self._root_written = False

    def before(self, operation: fsops.Operation) -> None:
        if self._root_written and operation.kind is fsops.Kind.CREATE:
            raise PowerCutError
        self._root_written |= operation.kind is fsops.Kind.RENAME and operation.target.endswith("root.json")


def test_a_root_that_two_machines_sign_waits_in_a_file(desk: Desk, tmp_path: Path) -> None:
    """2-of-3 with one key on each of three machines: nobody can do it alone."""
    elsewhere = [tmp_path / "b", tmp_path / "c"]
    for number, machine in enumerate(elsewhere, start=2):
        machine.mkdir()
        shutil.move(desk.keys.path / f"root-{number}.pem", machine / "root.pem")
    _, _, outcome = desk.workshop.rotate("timestamp", None)
    assert not outcome.published
    [(path, missing)] = outcome.missing.items()
    assert (path.name, missing) == ("2.root.json", 1)
    assert not (desk.repository.path / "metadata" / "2.root.json").exists()
    assert desk.device().manifest(TARGET) is not None, "the old repository is served meanwhile"
    with pytest.raises(UsageError, match="waits for signatures"):
        desk.workshop.rotate("snapshot", None)
    assert not desk.workshop.publish_staged().published, "still one signature short"

    carried = tmp_path / "b" / path.name
    shutil.copy(path, carried)
    ceremony = sign_file(carried, tmp_path / "b" / "root.pem")
    assert (ceremony.role, ceremony.version, ceremony.own_missing) == ("root", 2, 0)
    assert any(line.startswith("timestamp: 1 of ") for line in ceremony.details)
    shutil.copy(carried, path)
    assert desk.workshop.publish_staged().published
    assert desk.repository.staged() == []
    assert desk.device().manifest(TARGET) is not None


def test_an_owner_with_a_key_of_his_own_machine_signs_there(desk: Desk, tmp_path: Path) -> None:
    machine = tmp_path / "acme"
    machine.mkdir()
    key = create_key(machine / "acme.pem")
    outcome = desk.workshop.add_owner("acme", key.public)
    short = {path: count for path, count in outcome.missing.items() if count}
    assert [path.name for path in short] == ["1.models-acme.json"]
    for path in short:
        sign_file(path, key.path)
    assert desk.workshop.publish_staged().published
    released = desk.release(bundle(tmp_path, "1", name="theirs"), owner="acme")
    assert released.outcome is not None
    assert not released.outcome.published
    assert desk.device().manifest(released.name.target) is None
    for path, count in released.outcome.missing.items():
        assert count == 1
        sign_file(path, key.path)
    assert desk.workshop.publish_staged().published
    assert desk.device().manifest(released.name.target) is not None


def test_publishing_what_was_staged_can_be_cut_off_anywhere(desk: Desk, tmp_path: Path) -> None:
    (desk.keys.path / "targets-1.pem").rename(tmp_path / "targets.pem")
    outcome = desk.workshop.add_owner("acme")
    [targets] = [path for path, count in outcome.missing.items() if count]
    sign_file(targets, tmp_path / "targets.pem")
    saved = tmp_path / "saved"
    shutil.copytree(desk.repository.path, saved)
    count = PowerCut()
    with fsops.traced(count):
        assert desk.workshop.publish_staged().published
    for at in range(1, count.steps + 1):
        shutil.rmtree(desk.repository.path)
        shutil.copytree(saved, desk.repository.path)
        with pytest.raises(PowerCutError), fsops.traced(PowerCut(at)):
            desk.workshop.publish_staged()
        assert desk.device().manifest(TARGET) is not None
        if desk.repository.staged():
            assert desk.workshop.publish_staged().published
        assert "models-acme" in desk.repository.load().roles
        assert desk.repository.staged() == []


def test_half_of_a_staged_edit_is_made_whole_or_refused(desk: Desk, tmp_path: Path) -> None:
    """Killed between staging two files that belong together: alone, either would break every device."""
    (desk.keys.path / "root-1.pem").rename(tmp_path / "one.pem")
    (desk.keys.path / "root-2.pem").rename(tmp_path / "two.pem")
    _, _, outcome = desk.workshop.rotate("targets", None)
    root, targets = sorted(outcome.missing, key=lambda path: path.name.endswith("targets.json"))
    sign_file(root, tmp_path / "one.pem")
    targets.unlink()
    assert desk.workshop.publish_staged().published, "what was only signed again is signed again"
    assert desk.device().manifest(TARGET) is not None

    (desk.keys.path / "targets-2.pem").rename(tmp_path / "targets.pem")
    outcome = desk.workshop.add_owner("acme")
    [first, targets] = sorted(outcome.missing, key=lambda path: path.name.endswith("targets.json"))
    sign_file(targets, tmp_path / "targets.pem")
    kept = targets.read_bytes()
    targets.unlink()
    with pytest.raises(BadInputError, match="nobody delegates to models-acme"):
        desk.workshop.publish_staged()
    targets.write_bytes(kept)
    first.unlink()
    with pytest.raises(BadInputError, match="delegates to models-acme, of which there is no metadata"):
        desk.workshop.publish_staged()
    assert desk.device().manifest(TARGET) is not None


def test_a_strangers_signature_does_not_count(desk: Desk, tmp_path: Path) -> None:
    (desk.keys.path / "root-1.pem").rename(tmp_path / "one.pem")
    (desk.keys.path / "root-2.pem").rename(tmp_path / "two.pem")
    _, _, outcome = desk.workshop.rotate("snapshot", None)
    [path] = outcome.missing
    sign_file(path, create_key(tmp_path / "stranger.pem").path)
    assert not desk.workshop.publish_staged().published
    sign_file(path, tmp_path / "one.pem")
    assert desk.workshop.publish_staged().published


def test_what_was_staged_for_another_state_is_refused(desk: Desk, tmp_path: Path) -> None:
    (desk.keys.path / "targets-1.pem").rename(tmp_path / "targets.pem")
    outcome = desk.workshop.add_owner("acme")
    assert not outcome.published
    saved = [(path, path.read_bytes()) for path in outcome.missing]
    desk.repository.unstage(desk.repository.staged())
    (tmp_path / "targets.pem").rename(desk.keys.path / "targets-1.pem")
    desk.workshop.refresh(["targets"])
    for path, content in saved:
        path.write_bytes(content)
    with pytest.raises(BadInputError, match="made for another state"):
        desk.workshop.publish_staged()


def test_a_revoked_root_key_leaves_two_and_the_next_is_refused(desk: Desk) -> None:
    first, second, _ = keyids(desk, "root")
    revoked = desk.workshop.revoke(first[:10])
    assert (revoked.keyid, revoked.roles, revoked.outcome.published) == (first, ("root",), True)
    assert revoked.tight == ("root",), "two keys left, two needed"
    assert desk.device().manifest(TARGET) is not None
    with pytest.raises(UsageError, match="needs 2 signatures and has 2 keys") as caught:
        desk.workshop.revoke(second)
    assert "keys rotate root" in (caught.value.cure or "")
    with pytest.raises(UsageError, match="names 0 keys"):
        desk.workshop.revoke("ffffffffffff0")


def test_a_role_with_several_keys_must_be_told_which(desk: Desk) -> None:
    with pytest.raises(UsageError, match="root has 3 keys"):
        desk.workshop.rotate("root", None)
    with pytest.raises(UsageError, match="no role 'cook'"):
        desk.workshop.rotate("cook", None)


def test_an_older_timestamp_is_refused_by_a_device_that_saw_a_newer_one(desk: Desk) -> None:
    old = (desk.repository.path / "metadata" / "timestamp.json").read_bytes()
    device = desk.device()
    desk.workshop.refresh([])
    device.rollouts()
    (desk.repository.path / "metadata" / "timestamp.json").write_bytes(old)
    with pytest.raises(BadVersionNumberError):
        device.rollouts()


def test_keys_of_another_folder_sign_nothing_here(desk: Desk, tmp_path: Path) -> None:
    stranger = Workshop(desk.repository, KeyFolder(tmp_path / "none"), desk.workshop.now)
    with pytest.raises(BadInputError, match="not in the keys folder"):
        stranger.refresh([])
