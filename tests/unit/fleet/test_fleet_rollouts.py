"""Rollouts from start to revert, judged by what devices read through python-tuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import NOW, Desk, bundle, weights

from vedette.errors import BadInputError, UsageError
from vedette.wire.rollout import Guards, Rollout, RolloutDocument, Window, concerns
from vedette_fleet import rollout as edits
from vedette_fleet.rollout import Release, State, Terms
from vedette_fleet.rollout_files import Rollouts, edit_rollouts, load_rollouts
from vedette_fleet.rollout_plan import Plan, issue, restore_plan
from vedette_fleet.waves import parse_waves

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = [f"cam-{number}" for number in range(400)]


def terms(waves: str = "1%,10%,100%", **select: str) -> Terms:
    return Terms(select, parse_waves(waves), 0, 900.0, None, Window(600.0, 200, 86400.0), Guards())


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Three releases of one model; the tests bring their own rollouts."""
    folder = tmp_path_factory.mktemp("desk")
    desk = Desk(folder).initialised()
    for number in (1, 2, 3):
        desk.release(bundle(folder, str(number), weights(tuned=number / 100)))
    return desk


@pytest.fixture
def desk(released: Desk) -> Desk:
    edit_rollouts(released.workshop, lambda before: _emptied(before.plan))
    return released


def _emptied(plan: Plan) -> Plan:
    return Plan(RolloutDocument(1, plan.document.counter, 0, ()), {}, ())


def begin(desk: Desk, name: str, release: str, how: Terms, leave: str | None = None) -> Plan:
    def change(known: Rollouts) -> Plan:
        rollback_of = None if leave is None else known.release(leave).counter
        return edits.start(
            known.plan, name, known.release(release), how, counters=known.counters(), rollback_of=rollback_of
        )

    return edit_rollouts(desk.workshop, change)[0]


def edit(desk: Desk, change: Callable[[Plan], Plan]) -> Plan:
    return edit_rollouts(desk.workshop, lambda known: change(known.plan))[0]


def offered(desk: Desk, **labels: str) -> dict[str, str]:
    """What each device of a fleet is offered: later entries win, withdrawn ones do not count."""
    document = desk.device().rollouts()
    found: dict[str, str] = {}
    for device in FLEET:
        for rollout in document.rollouts:
            if not rollout.withdrawn and concerns(rollout, device_id=device, model="tiny", labels=labels):
                found[device] = rollout.target.rpartition("/")[2].removesuffix(".json")
    return found


def test_a_rollout_goes_through_its_waves_and_devices_see_each(desk: Desk) -> None:
    begin(desk, "summer", "tiny@2", terms())
    sizes = [len(offered(desk))]
    edit(desk, lambda plan: edits.advance(plan, "summer", None))
    sizes.append(len(offered(desk)))
    plan = edit(desk, lambda plan: edits.advance(plan, "summer", None))
    assert offered(desk) == dict.fromkeys(FLEET, "2")
    assert sizes[0] < sizes[1] < 0.2 * len(FLEET)
    assert edits.wave_text(plan, plan.find("summer")) == "3/3"
    with pytest.raises(UsageError, match="in its last wave"):
        edit(desk, lambda plan: edits.advance(plan, "summer", None))


def test_the_rollout_names_the_digest_that_the_owner_signed(desk: Desk) -> None:
    begin(desk, "summer", "demo/tiny@2", terms("100%"))
    device = desk.device()
    [rollout] = device.rollouts().rollouts
    manifest = device.fetch(rollout.target)
    assert manifest is not None
    owner = desk.repository.load().roles["models-demo"].signed
    assert owner.targets[rollout.target].hashes["sha256"] == rollout.sha256


def test_the_counter_only_grows_and_is_the_roles_version(desk: Desk) -> None:
    before = desk.device().rollouts().counter
    begin(desk, "summer", "tiny@2", terms())
    first = desk.device().rollouts().counter
    version = desk.repository.load().roles["rollouts"].signed.version
    assert first == version
    desk.workshop.refresh(["rollouts"])
    assert desk.device().rollouts().counter == first, "a renewed signature is no new decision"
    edit(desk, lambda plan: edits.set_paused(plan, "summer", paused=True))
    assert before < first < desk.device().rollouts().counter


def test_a_selection_names_only_devices_with_the_label(desk: Desk) -> None:
    begin(desk, "orin", "tiny@2", terms("100%", **{"class": "orin-nano"}))
    assert offered(desk) == {}
    assert len(offered(desk, **{"class": "orin-nano"})) == len(FLEET)


def test_pause_resume_and_abort(desk: Desk) -> None:
    begin(desk, "summer", "tiny@2", terms("50%,100%"))
    edit(desk, lambda plan: edits.set_paused(plan, "summer", paused=True))
    assert desk.device().rollouts().rollouts[0].paused
    with pytest.raises(UsageError, match="paused"):
        edit(desk, lambda plan: edits.advance(plan, "summer", None))
    with pytest.raises(UsageError, match="paused already"):
        edit(desk, lambda plan: edits.set_paused(plan, "summer", paused=True))
    edit(desk, lambda plan: edits.set_paused(plan, "summer", paused=False))
    edit(desk, lambda plan: edits.abort(plan, "summer"))
    assert offered(desk) == {}
    for change in (
        lambda plan: edits.set_paused(plan, "summer", paused=False),
        lambda plan: edits.advance(plan, "summer", None),
        lambda plan: edits.abort(plan, "summer"),
    ):
        with pytest.raises(UsageError, match="withdrawn"):
            edit(desk, change)


def test_a_withdrawn_release_is_never_offered_again(desk: Desk) -> None:
    begin(desk, "old", "tiny@1", terms("100%"))
    begin(desk, "a", "tiny@2", terms("1%"))
    begin(desk, "b", "tiny@2", terms("100%", site="x"))
    edit_rollouts(desk.workshop, lambda known: edits.withdraw(known.plan, known.release("tiny@2").target))
    assert offered(desk, site="x") == dict.fromkeys(FLEET, "1")
    with pytest.raises(UsageError, match="was withdrawn"):
        begin(desk, "again", "tiny@2", terms("100%"))
    begin(desk, "fixed", "tiny@3", terms("100%"))
    assert set(offered(desk).values()) == {"3"}


def test_a_revert_names_exactly_the_devices_that_had_the_bad_release(desk: Desk) -> None:
    begin(desk, "one", "tiny@1", terms("100%"))
    begin(desk, "two", "tiny@2", terms("5%,100%", **{"class": "x"}))
    had = {device for device, version in offered(desk, **{"class": "x"}).items() if version == "2"}
    assert 0 < len(had) < len(FLEET)

    def change(known: Rollouts) -> Plan:
        back = known.before(known.plan.find("two").target)
        assert back is not None
        leave = known.counters()[known.plan.find("two").target]
        return edits.revert(known.plan, "two", back, leave, "two-revert")

    edit_rollouts(desk.workshop, change)
    back = desk.device().rollouts().rollouts[-1]
    assert (back.id, back.rollback_of, back.target) == ("two-revert", 2, "models/demo/tiny/1.json")
    named = {
        device for device in FLEET if concerns(back, device_id=device, model="tiny", labels={"class": "x"})
    }
    assert named == had


def test_going_back_must_be_meant(desk: Desk) -> None:
    begin(desk, "new", "tiny@3", terms("100%"))
    with pytest.raises(UsageError, match="offers a newer release") as caught:
        begin(desk, "old", "tiny@1", terms("100%"))
    assert "rollout revert new" in (caught.value.cure or "")
    begin(desk, "old", "tiny@1", terms("100%"), leave="tiny@3")
    assert desk.device().rollouts().rollouts[-1].rollback_of == 3
    with pytest.raises(UsageError, match="not older"):
        begin(desk, "odd", "tiny@3", terms("100%"), leave="tiny@1")


def test_names_are_unique_and_unknown_ones_listed(desk: Desk) -> None:
    begin(desk, "summer", "tiny@2", terms())
    with pytest.raises(UsageError, match="already"):
        begin(desk, "summer", "tiny@2", terms())
    with pytest.raises(UsageError, match="no rollout 'winter'") as caught:
        edit(desk, lambda plan: edits.abort(plan, "winter"))
    assert "summer" in (caught.value.cure or "")
    with pytest.raises(UsageError, match="no release tiny@9"):
        begin(desk, "nine", "tiny@9", terms())


def test_waves_only_grow_also_by_hand(desk: Desk) -> None:
    begin(desk, "summer", "tiny@2", terms("10%,100%"))
    with pytest.raises(UsageError, match="waves only grow"):
        edit(desk, lambda plan: edits.advance(plan, "summer", 100))
    plan = edit(desk, lambda plan: edits.advance(plan, "summer", 2500))
    assert plan.find("summer").share == 2500
    assert edit(desk, lambda plan: edits.advance(plan, "summer", None)).find("summer").share == 10_000


def test_a_document_too_large_for_devices_is_refused_and_can_be_cleaned(desk: Desk) -> None:
    before = load_rollouts(desk.repository).plan
    rollout = Rollout("x", "tiny", "t" * 60, "a" * 64, "s", 1, withdrawn=True)
    many = tuple(Rollout(f"x{n}", "tiny", "t" * 60, "a" * 64, "s", 1, withdrawn=True) for n in range(200))
    big = Plan(RolloutDocument(1, before.document.counter, 0, (rollout, *many)), {}, ())
    with pytest.raises(UsageError, match="devices read 65536") as caught:
        issue(big, version=1, issued_utc=0)
    assert "rollout remove" in (caught.value.cure or "")
    assert edits.remove(big, "x").document.rollouts == many
    begin(desk, "live", "tiny@2", terms())
    with pytest.raises(UsageError, match="not withdrawn"):
        edit(desk, lambda plan: edits.remove(plan, "live"))


def test_states_are_told_apart() -> None:
    now = int(NOW.timestamp())

    def state(**changes: object) -> State:
        fields = {"id": "r", "model": "m", "target": "t", "sha256": "a", "salt": "s", "share": 100, **changes}
        return edits.state_of(Rollout(**fields), now)  # type: ignore[arg-type]

    assert state() is State.RUNNING
    assert state(share=0) is State.CLOSED
    assert state(share=10_000) is State.COMPLETE
    assert state(paused=True) is State.PAUSED
    assert state(paused=True, withdrawn=True) is State.WITHDRAWN
    assert state(not_before_utc=now + 60) is State.SCHEDULED


def test_custom_data_that_is_not_ours_is_refused() -> None:
    document = RolloutDocument(1, 1, 0, ())
    assert restore_plan(document, None).waves == {}
    with pytest.raises(BadInputError, match="custom data"):
        restore_plan(document, {"waves": "all"})


def test_a_release_of_another_model_is_no_way_back() -> None:
    plan = Plan(RolloutDocument(1, 1, 0, (Rollout("r", "m", "t2", "b" * 64, "s", 100),)), {"r": (100,)})
    with pytest.raises(UsageError, match="no earlier release of m"):
        edits.revert(plan, "r", Release("t1", "other", "a" * 64, 1), 2, "r-revert")
    with pytest.raises(UsageError, match="no earlier release of m"):
        edits.revert(plan, "r", Release("t3", "m", "a" * 64, 3), 2, "r-revert")
