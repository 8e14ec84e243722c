"""`vedette-fleet rollout`: who runs what."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from vedette.errors import UsageError
from vedette.wire.rollout import Guards, Window
from vedette_fleet import rollout as edits
from vedette_fleet.cli.numbers import FRAMES, RATIO, SECONDS, SHARE
from vedette_fleet.cli.output import end_with, outcome_json, print_json, print_table, say, tell_outcome
from vedette_fleet.cli.workshop import json_option, open_workshop, repository_options
from vedette_fleet.names import check_name
from vedette_fleet.rollout import Terms
from vedette_fleet.rollout_files import edit_rollouts, load_rollouts, repair_rollouts
from vedette_fleet.waves import parse_share, parse_waves, percent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.wire.rollout import Rollout
    from vedette_fleet.rollout_files import Rollouts
    from vedette_fleet.rollout_plan import Plan
    from vedette_fleet.tuf_ceremonies import Workshop
    from vedette_fleet.tuf_edit import Outcome


_LABEL_CURE = "write KEY=VALUE, such as class=orin-nano"


@click.group()
def rollout() -> None:
    """Say which devices run which release; devices read one signed document."""


@rollout.command("start")
@click.argument("name")
@click.option("--release", "release", required=True, help="[owner/]model@version.")
@click.option("--select", "select", multiple=True, metavar="KEY=VALUE", help="Only devices with this label.")
@click.option("--waves", default="100%", show_default=True, help="Shares of the devices, opened one by one.")
@click.option("--not-before", metavar="TIME", help="No device begins earlier: 2026-01-31T12:00Z.")
@click.option("--jitter-s", type=SECONDS, default=900.0, show_default=True, help="Spread.")
@click.option("--shadow-min-s", type=SECONDS, help="Run beside the old model first, this long.")
@click.option("--shadow-min-frames", type=FRAMES, default=200, show_default=True)
@click.option("--shadow-max-s", type=SECONDS, default=86400.0, show_default=True)
@click.option("--trial-min-s", type=SECONDS, default=600.0, show_default=True)
@click.option("--trial-min-frames", type=FRAMES, default=200, show_default=True)
@click.option("--trial-max-s", type=SECONDS, default=86400.0, show_default=True)
@click.option("--latency-ratio", type=RATIO, default=1.5, show_default=True, help="p95 limit.")
@click.option("--error-rate", type=SHARE, default=0.02, show_default=True)
@click.option("--disagreement", type=SHARE, help="Limit in the shadow; not looked at by default.")
@click.option("--rollback-of", help="The newer release that devices may leave for this one.")
@repository_options
@json_option
def start(
    name: str,
    release: str,
    repo: Path,
    keys_folder: Path | None,
    rollback_of: str | None,
    *,
    as_json: bool,
    **terms: Any,  # noqa: ANN401 - click's options, read in one place
) -> None:
    """Open the first wave of a rollout. Later entries win where two rollouts name a device."""
    check_name("rollout", name)
    wanted = _terms(terms)

    def change(rollouts: Rollouts) -> Plan:
        chosen = rollouts.release(release)
        leave = None if rollback_of is None else rollouts.release(rollback_of).counter
        return edits.start(
            rollouts.plan, name, chosen, wanted, counters=rollouts.counters(), rollback_of=leave
        )

    _edit(repo, keys_folder, change, as_json=as_json)


@rollout.command("advance")
@click.argument("name")
@click.option("--to", "to", metavar="PERCENT", help="A larger share than the next wave.")
@repository_options
@json_option
def advance(name: str, to: str | None, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Open the next wave; waves only grow."""
    share = None if to is None else parse_share(to)
    _edit(repo, keys_folder, lambda rollouts: edits.advance(rollouts.plan, name, share), as_json=as_json)


@rollout.command("pause")
@click.argument("name")
@repository_options
@json_option
def pause(name: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """No further device begins; devices in their trial finish it."""
    _edit(
        repo,
        keys_folder,
        lambda rollouts: edits.set_paused(rollouts.plan, name, paused=True),
        as_json=as_json,
    )


@rollout.command("resume")
@click.argument("name")
@repository_options
@json_option
def resume(name: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Go on where it was paused."""
    _edit(
        repo,
        keys_folder,
        lambda rollouts: edits.set_paused(rollouts.plan, name, paused=False),
        as_json=as_json,
    )


@rollout.command("abort")
@click.argument("name")
@repository_options
@json_option
def abort(name: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """End it for good: nobody begins, devices in trial go back, devices that confirmed hold."""
    _edit(repo, keys_folder, lambda rollouts: edits.abort(rollouts.plan, name), as_json=as_json)


@rollout.command("withdraw")
@click.argument("release")
@repository_options
@json_option
def withdraw(release: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Abort every rollout of RELEASE ([owner/]model@version) and never offer it again."""
    _edit(
        repo,
        keys_folder,
        lambda rollouts: edits.withdraw(rollouts.plan, rollouts.release(release).target),
        as_json=as_json,
    )


@rollout.command("revert")
@click.argument("name")
@click.option("--to", "to", help="The older release; the one before by default.")
@click.option("--name", "new_name", help="Name of the new rollout; NAME-revert by default.")
@repository_options
@json_option
def revert(
    name: str, to: str | None, new_name: str | None, repo: Path, keys_folder: Path | None, *, as_json: bool
) -> None:
    """Abort NAME and bring exactly its devices back to an older release."""
    wanted = check_name("rollout", new_name or f"{name}-revert")

    def change(rollouts: Rollouts) -> Plan:
        target = rollouts.plan.find(name).target
        back_to = rollouts.before(target) if to is None else rollouts.release(to)
        if back_to is None:
            raise UsageError(f"there is no release before {target}", cure="publish one, or abort the rollout")
        return edits.revert(rollouts.plan, name, back_to, rollouts.counters()[target], wanted)

    _edit(repo, keys_folder, change, as_json=as_json)


@rollout.command("remove")
@click.argument("name")
@repository_options
@json_option
def remove(name: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Forget a withdrawn rollout."""
    _edit(repo, keys_folder, lambda rollouts: edits.remove(rollouts.plan, name), as_json=as_json)


@rollout.command("repair")
@click.option("--empty", is_flag=True, help="Forget all rollouts; withdrawn releases stay withdrawn.")
@repository_options
@json_option
def repair(repo: Path, keys_folder: Path | None, *, empty: bool, as_json: bool) -> None:
    """Publish the last rollout document that can be read, when the newest cannot."""
    workshop = open_workshop(repo, keys_folder)
    repaired = repair_rollouts(workshop, empty=empty)
    said = f"went back to version {repaired.version}" if repaired.version else "began with no rollout"
    say(f"{said}; what came after it, up to version {repaired.unreadable}, is lost")
    if repaired.gone:
        say(f"rollouts that only it had, to be started again: {', '.join(repaired.gone)}")
    if repaired.paused and any(entry.paused for entry in repaired.plan.document.rollouts):
        say("the file was damaged and may have stopped any of them: all are paused; see rollout resume")
    _answer(workshop, repaired.plan, repaired.outcome, as_json=as_json)


@rollout.command("status")
@repository_options
@json_option
def status(repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Every rollout: release, share, wave, state."""
    workshop = open_workshop(repo, keys_folder)
    rollouts = load_rollouts(workshop.repository)
    expires = rollouts.current.roles["rollouts"].signed.expires
    now_utc = int(workshop.now.timestamp())
    if as_json:
        print_json({**_plan_json(rollouts.plan, now_utc), "expires": expires.isoformat()})
    else:
        _print_plan(rollouts.plan, now_utc)
    say(f"document {rollouts.plan.document.counter}, signed until {expires:%Y-%m-%d %H:%M} UTC")


def _edit(repo: Path, keys_folder: Path | None, change: Callable[[Rollouts], Plan], *, as_json: bool) -> None:
    workshop = open_workshop(repo, keys_folder)
    plan, outcome = edit_rollouts(workshop, change)
    _answer(workshop, plan, outcome, as_json=as_json)


def _answer(workshop: Workshop, plan: Plan, outcome: Outcome, *, as_json: bool) -> None:
    tell_outcome(outcome)
    now_utc = int(workshop.now.timestamp())
    if as_json:
        print_json({**_plan_json(plan, now_utc), "outcome": outcome_json(outcome)})
    else:
        _print_plan(plan, now_utc)
    end_with(outcome)


def _terms(given: dict[str, Any]) -> Terms:
    shadow = None
    if given["shadow_min_s"] is not None:
        shadow = _window("shadow", given)
    return Terms(
        select=_labels(given["select"]),
        waves=parse_waves(given["waves"]),
        not_before_utc=_seconds(given["not_before"]),
        jitter_s=given["jitter_s"],
        shadow=shadow,
        trial=_window("trial", given),
        guards=Guards(given["latency_ratio"], given["error_rate"], given["disagreement"]),
    )


def _window(kind: str, given: dict[str, Any]) -> Window:
    window = Window(given[f"{kind}_min_s"], given[f"{kind}_min_frames"], given[f"{kind}_max_s"])
    if window.max_s < window.min_s:
        raise UsageError(
            f"--{kind}-max-s {window.max_s:g} is shorter than --{kind}-min-s {window.min_s:g}",
            cure="let the longest window be at least the shortest",
        )
    return window


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals or not value:
            raise UsageError(f"--select {text!r} is no label", cure=_LABEL_CURE)
        if labels.setdefault(key, value) != value:
            raise UsageError(f"--select names {key} twice; no device has both", cure="start two rollouts")
    return labels


def _seconds(text: str | None) -> int:
    if text is None:
        return 0
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(f"--not-before {text!r} is no time", cure="write 2026-01-31T12:00Z") from error
    return int((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())


def _print_plan(plan: Plan, now_utc: int) -> None:
    rows = [_row(plan, entry, now_utc) for entry in plan.document.rollouts]
    print_table(("rollout", "release", "devices", "share", "wave", "state"), rows, right=("share",))


def _row(plan: Plan, entry: Rollout, now_utc: int) -> tuple[str, ...]:
    select = ", ".join(f"{key}={value}" for key, value in entry.select.items()) or "all"
    release = entry.target.removeprefix("models/").removesuffix(".json")
    state = edits.state_of(entry, now_utc).value
    return (entry.id, release, select, percent(entry.share), edits.wave_text(plan, entry), state)


def _plan_json(plan: Plan, now_utc: int) -> dict[str, Any]:
    return {
        "counter": plan.document.counter,
        "withdrawn_releases": list(plan.withdrawn),
        "rollouts": [
            {
                "name": entry.id,
                "target": entry.target,
                "select": entry.select,
                "share": entry.share,
                "waves": list(plan.waves.get(entry.id, ())),
                "state": edits.state_of(entry, now_utc).value,
                "rollback_of": entry.rollback_of,
            }
            for entry in plan.document.rollouts
        ],
    }
