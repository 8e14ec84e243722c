"""What waits for signatures stops nothing else, and loses none of them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import Desk, PowerCut, PowerCutError, bundle, weights
from tests.unit.fleet.test_fleet_unreadable import begin

from vedette import fsops
from vedette.errors import UsageError
from vedette_fleet import rollout as edits
from vedette_fleet.key_files import create_key
from vedette_fleet.rollout_files import edit_rollouts
from vedette_fleet.tuf_signing import sign_file

if TYPE_CHECKING:
    from pathlib import Path

    from vedette_fleet.tuf_edit import Outcome


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path).initialised()
    made.release(bundle(tmp_path, "1"))
    begin(made, "summer", "tiny@1")
    return made


def take_away(desk: Desk, *names: str) -> dict[str, Path]:
    """Private keys that lie on other machines."""
    away = desk.folder / "away"
    away.mkdir(exist_ok=True)
    return {name: (desk.keys.path / f"{name}.pem").rename(away / f"{name}.pem") for name in names}


def abort(desk: Desk) -> Outcome:
    return edit_rollouts(desk.workshop, lambda known: edits.abort(known.plan, "summer"))[1]


def test_a_root_ceremony_under_way_stops_no_emergency(desk: Desk) -> None:
    away = take_away(desk, "root-2", "root-3")
    [staged] = desk.workshop.rotate("timestamp", None)[2].missing
    sign_file(staged, create_key(desk.folder / "unrelated.pem").path)
    collected = staged.read_bytes()
    assert abort(desk).published
    assert desk.workshop.refresh([])[1].published
    assert desk.workshop.add_owner("acme").published
    released = desk.release(bundle(desk.folder, "2", weights(tuned=0.02)), owner="demo")
    assert released.outcome is not None
    assert released.outcome.published
    assert desk.device().rollouts().rollouts[0].withdrawn
    assert staged.read_bytes() == collected, "every signature is still there"
    sign_file(staged, away["root-3"])
    assert desk.workshop.publish_staged().published
    assert desk.device().manifest("models/demo/tiny/2.json") == released.manifest
    assert desk.repository.load().root.signed.version == 2


def test_a_second_root_edit_is_refused_before_it_makes_a_key(desk: Desk) -> None:
    take_away(desk, "root-2", "root-3")
    desk.workshop.rotate("timestamp", None)
    keys = sorted(desk.keys.path.iterdir())
    for edit in (
        lambda: desk.workshop.rotate("snapshot", None),
        lambda: desk.workshop.add_key("root"),
        lambda: desk.workshop.refresh(["root"]),
    ):
        with pytest.raises(UsageError, match=r"waits for signatures: 2\.root\.json") as caught:
            edit()
        assert "no signature is lost" in (caught.value.cure or "")
    assert sorted(desk.keys.path.iterdir()) == keys


def test_an_abort_overtakes_a_rotation_of_the_rollouts_key_and_leaves_its_signatures(desk: Desk) -> None:
    """Both need the next version of `rollouts`; the costly signature is the one of targets."""
    away = take_away(desk, "targets-1")
    outcome = desk.workshop.rotate("rollouts", None)[2]
    targets = next(path for path in outcome.missing if path.name == "2.targets.json")
    sign_file(targets, away["targets-1"])
    signed = targets.read_bytes()
    stopped = abort(desk)
    assert stopped.published
    assert desk.device().rollouts().rollouts[0].withdrawn
    assert {path.name: count for path, count in stopped.remade.items()} == {"4.rollouts.json": 0}
    assert targets.read_bytes() == signed
    assert desk.workshop.publish_staged().published
    (desk.keys.path / "rollouts-1.pem").unlink()
    desk.workshop.refresh(["rollouts"])
    assert desk.device().rollouts().rollouts[0].withdrawn, "good with the new key alone"


def test_an_abort_that_overtakes_can_be_cut_off_anywhere(desk: Desk) -> None:
    """The old repository or the new one is served, and the rotation can be finished all the same."""
    away = take_away(desk, "targets-1")
    outcome = desk.workshop.rotate("rollouts", None)[2]
    sign_file(next(path for path in outcome.missing if "targets" in path.name), away["targets-1"])
    saved = desk.folder / "saved"
    shutil.copytree(desk.repository.path, saved)
    count = PowerCut()
    with fsops.traced(count):
        abort(desk)
    assert count.steps > 10
    for at in range(1, count.steps + 1):
        shutil.rmtree(desk.repository.path)
        shutil.copytree(saved, desk.repository.path)
        with pytest.raises(PowerCutError), fsops.traced(PowerCut(at)):
            abort(desk)
        stopped = desk.device().rollouts().rollouts[0].withdrawn
        if not stopped:
            assert abort(desk).published
        assert desk.workshop.publish_staged().published
        assert desk.repository.staged() == []
        assert desk.device().rollouts().rollouts[0].withdrawn


def test_a_release_that_waits_is_not_overtaken(desk: Desk) -> None:
    away = take_away(desk, "models-demo-1")
    desk.release(bundle(desk.folder, "2", weights(tuned=0.02)))
    sign_file(desk.repository.staged()[0], away["models-demo-1"])
    with pytest.raises(UsageError, match=r"waits for signatures: 3\.models-demo\.json"):
        desk.release(bundle(desk.folder, "3", weights(tuned=0.03)))
    assert abort(desk).published
    assert desk.workshop.publish_staged().published
    assert desk.device().manifest("models/demo/tiny/2.json") is not None


def test_each_part_is_published_as_soon_as_it_is_signed(desk: Desk) -> None:
    away = take_away(desk, "root-2", "root-3", "models-demo-1")
    desk.workshop.rotate("timestamp", None)
    desk.release(bundle(desk.folder, "2", weights(tuned=0.02)))
    root, models = sorted(desk.repository.staged(), key=lambda path: "models" in path.name)
    sign_file(models, away["models-demo-1"])
    outcome = desk.workshop.publish_staged()
    assert not outcome.published
    assert outcome.waiting == {"root"}
    assert desk.device().manifest("models/demo/tiny/2.json") is not None
    assert desk.repository.staged() == [root]
    sign_file(root, away["root-2"])
    assert desk.workshop.publish_staged().published


def test_a_part_can_be_given_up_alone(desk: Desk) -> None:
    take_away(desk, "root-2", "root-3", "targets-1")
    desk.workshop.rotate("timestamp", None)
    desk.workshop.add_owner("acme")
    with pytest.raises(UsageError, match="nothing of snapshot waits"):
        desk.workshop.drop(["snapshot"])
    dropped = {path.name for path in desk.workshop.drop(["targets"])}
    assert dropped == {"2.targets.json", "1.models-acme.json"}
    assert [path.name for path in desk.repository.staged()] == ["2.root.json"]


def test_renewing_the_root_without_its_keys_still_renews_the_rest(desk: Desk) -> None:
    take_away(desk, "root-2", "root-3")
    later = desk.later(days=4)
    renewed, outcome, expiries = later.workshop.refresh(["root"])
    assert renewed == ["root", "rollouts"]
    assert outcome.waiting == {"root"}
    versions = {entry.role: entry.version for entry in expiries}
    assert (versions["root"], versions["rollouts"]) == (1, 3)
    before = versions["timestamp"]
    later.workshop.drop([])
    _, outcome, expiries = later.workshop.refresh(["root"])
    assert outcome.waiting == {"root"}
    assert {entry.role: entry.version for entry in expiries}["timestamp"] == before + 1


def test_after_a_revoked_root_key_a_new_one_brings_back_the_third(desk: Desk) -> None:
    first = desk.repository.load().root.signed.roles["root"].keyids[0]
    desk.workshop.revoke(first)
    public = create_key(desk.folder / "new.pem").public
    came, outcome = desk.workshop.add_key("root", public)
    assert outcome.published
    root = desk.repository.load().root.signed.roles["root"]
    assert (len(root.keyids), root.threshold) == (3, 2)
    assert came.keyid in root.keyids
    assert first not in root.keyids
    assert desk.device().rollouts().rollouts[0].id == "summer"
    with pytest.raises(UsageError, match="has that key already"):
        desk.workshop.add_key("root", public)
    desk.workshop.revoke(root.keyids[0])
    desk.workshop.add_key("models-demo")
    assert len(desk.repository.load().targets.get_delegated_role("models-demo").keyids) == 2
