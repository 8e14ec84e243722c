"""A rollout document that devices cannot read is never signed; one that is there anyhow has a way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.fleet.stand import Desk, bundle, weights

from vedette.errors import BadInputError, UsageError
from vedette.wire.rollout import (
    Guards,
    Rollout,
    RolloutDocument,
    RolloutError,
    Window,
    build_rollouts,
    parse_rollouts,
)
from vedette_fleet import roles
from vedette_fleet import rollout as edits
from vedette_fleet.rollout import Terms
from vedette_fleet.rollout_files import edit_rollouts, load_rollouts, repair_rollouts
from vedette_fleet.rollout_plan import Plan, issue
from vedette_fleet.tuf_edit import Edit

if TYPE_CHECKING:
    from pathlib import Path

    from vedette_fleet.rollout_files import Rollouts

NAN, INF = float("nan"), float("inf")
GOOD = Rollout("r", "tiny", "models/demo/tiny/1.json", "a" * 64, "salt", 100)


def of(**changes: object) -> RolloutDocument:
    return RolloutDocument(1, 1, 0, (msgspec.structs.replace(GOOD, **changes),))


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter_s": NAN},
        {"jitter_s": INF},
        {"jitter_s": -1.0},
        {"jitter_s": 1e308},  # finite, and nanoseconds of it are not
        {"share": 10_001},
        {"not_before_utc": -1},
        {"not_before_utc": 1 << 64},
        {"trial": Window(NAN, 200, 600.0)},
        {"trial": Window(60.0, 200, INF)},
        {"trial": Window(60.0, 200, 30.0)},
        {"trial": Window(60.0, 1 << 70, 600.0)},
        {"shadow": Window(NAN, 200, 600.0)},
        {"guards": Guards(latency_ratio=NAN)},
        {"guards": Guards(latency_ratio=INF)},
        {"guards": Guards(error_rate=NAN)},
        {"guards": Guards(disagreement=NAN)},  # which JSON makes null: not looked at
        {"select": {"class": "\udcff"}},  # an argument that was no UTF-8
    ],
    ids=str,
)
def test_what_devices_could_not_read_is_not_written(changes: dict[str, object]) -> None:
    with pytest.raises(RolloutError):
        build_rollouts(of(**changes))
    with pytest.raises(UsageError, match="devices could not read it"):
        issue(Plan(of(**changes), {}), version=2, issued_utc=0)


@pytest.mark.parametrize("field", ["jitter_s", "trial", "guards", "share"])
def test_a_device_refuses_null_and_absurd_numbers(field: str) -> None:
    raw = build_rollouts(of())
    assert parse_rollouts(raw) == of()
    for value in (None, 1e300, -1):
        document = msgspec.json.decode(raw)
        document["rollouts"][0][field] = value
        with pytest.raises(RolloutError):
            parse_rollouts(msgspec.json.encode(document))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path).initialised()
    for number in (1, 2):
        made.release(bundle(tmp_path, str(number), weights(tuned=number / 100)))
    begin(made, "first", "tiny@1")
    return made


def begin(desk: Desk, name: str, release: str) -> None:
    terms = Terms({}, (10_000,), 0, 900.0, None, Window(600.0, 200, 86400.0), Guards())

    def change(known: Rollouts) -> Plan:
        found = known.release(release)
        return edits.start(known.plan, name, found, terms, counters=known.counters(), rollback_of=None)

    edit_rollouts(desk.workshop, change)


def sign_unreadable(desk: Desk, **custom: object) -> None:
    """As a tool that let NaN through did: null where devices want a number."""
    current = desk.repository.load()
    role = roles.successor(current.roles["rollouts"].signed, "rollouts", desk.workshop.now)
    published = desk.repository.read_target(role.targets["rollouts.json"])
    described = desk.repository.write_target("rollouts.json", published.replace(b"900.0", b"null"))
    described.unrecognized_fields["custom"] = {**(role.targets["rollouts.json"].custom or {}), **custom}
    role.targets["rollouts.json"] = described
    desk.workshop.publication().publish(current, Edit(roles={"rollouts": role}))


def test_an_unreadable_document_is_replaced_by_the_last_that_can_be_read(desk: Desk) -> None:
    before = desk.device().rollouts()
    sign_unreadable(
        desk, waves={"first": [10_000], "broken": [10_000]}, withdrawn=["models/demo/tiny/2.json"]
    )
    desk.workshop.refresh(["rollouts"])  # what runs daily signs it once more
    with pytest.raises(RolloutError):
        desk.device().rollouts()
    with pytest.raises(BadInputError, match="devices cannot read it") as caught:
        load_rollouts(desk.repository)
    assert "vedette-fleet rollout repair" in (caught.value.cure or "")
    repaired = repair_rollouts(desk.workshop, empty=False)
    version = desk.repository.load().roles["rollouts"].signed.version
    assert (repaired.version, repaired.unreadable, repaired.gone) == (2, 4, ("broken",))
    after = desk.device().rollouts()
    assert after.rollouts == before.rollouts
    assert after.counter == version == 5, "no device has seen as high a counter"
    with pytest.raises(UsageError, match="was withdrawn"):
        begin(desk, "second", "tiny@2")
    with pytest.raises(UsageError, match="can be read"):
        repair_rollouts(desk.workshop, empty=False)


def test_a_damaged_file_may_have_stopped_a_rollout_so_all_of_them_wait(desk: Desk) -> None:
    edit_rollouts(desk.workshop, lambda known: edits.abort(known.plan, "first"))
    described = desk.repository.load().roles["rollouts"].signed.targets["rollouts.json"]
    path = desk.repository.path / "targets" / described.get_prefixed_paths()[0]
    path.write_bytes(b"\0" * path.stat().st_size)
    repaired = repair_rollouts(desk.workshop, empty=False)
    assert repaired.paused
    [rollout] = desk.device().rollouts().rollouts
    assert (rollout.id, rollout.paused, rollout.withdrawn) == ("first", True, False)


def test_without_an_earlier_one_of_todays_keys_only_an_empty_one_is_left(desk: Desk) -> None:
    desk.workshop.rotate("rollouts", None)
    sign_unreadable(desk, withdrawn=["models/demo/tiny/2.json"])
    for version in range(1, desk.repository.load().roles["rollouts"].signed.version):
        (desk.repository.path / "metadata" / f"{version}.rollouts.json").unlink()
    with pytest.raises(BadInputError, match="no earlier rollout document") as caught:
        repair_rollouts(desk.workshop, empty=False)
    assert "--empty" in (caught.value.cure or "")
    repaired = repair_rollouts(desk.workshop, empty=True)
    assert (repaired.version, repaired.gone) == (0, ("first",))
    assert desk.device().rollouts().rollouts == ()
    with pytest.raises(UsageError, match="was withdrawn"):
        begin(desk, "second", "tiny@2")
