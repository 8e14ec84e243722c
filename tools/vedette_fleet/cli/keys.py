"""`vedette-fleet keys`: who may sign what."""

from __future__ import annotations

from pathlib import Path

import click

from vedette_fleet import key_files
from vedette_fleet.cli.output import end_with, outcome_json, print_json, print_table, say, tell_outcome
from vedette_fleet.cli.workshop import json_option, open_workshop, repository_options
from vedette_fleet.names import check_name
from vedette_fleet.roles import role_keys
from vedette_fleet.tuf_signing import sign_file

_PUBLIC = click.option(
    "--public",
    type=click.Path(path_type=Path),
    help="A key that was made on another machine (`keys new`): its .pub file.",
)


@click.group()
def keys() -> None:
    """List, rotate and revoke keys, admit owners, sign in ceremonies of several machines."""


@keys.command("list")
@repository_options
@json_option
def list_keys(repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Every role's keys and threshold, and which private keys are here."""
    workshop = open_workshop(repo, keys_folder)
    current = workshop.repository.load()
    here = workshop.folder.load()
    known = role_keys(current.root.signed, current.targets)
    entries = [
        {
            "role": role,
            "threshold": threshold,
            "keyid": keyid,
            "file": here[keyid].path.name if keyid in here else None,
        }
        for role, (keyids, threshold) in known.items()
        for keyid in keyids
    ]
    used = {entry["keyid"] for entry in entries}
    unused = sorted(key.path.name for keyid, key in here.items() if keyid not in used)
    waiting = [str(path) for path in workshop.repository.staged()]
    if as_json:
        print_json({"keys": entries, "unused": unused, "waiting": waiting})
    else:
        rows = [
            (
                str(entry["role"]),
                f"{entry['threshold']} of {len(known[str(entry['role'])][0])}",
                str(entry["keyid"])[:12],
                str(entry["file"] or "elsewhere"),
            )
            for entry in entries
        ]
        print_table(("role", "threshold", "key", "file"), rows)
    if unused:
        say(f"not used by any role: {', '.join(unused)}")
    if waiting:
        say(f"waiting for signatures: {', '.join(waiting)}")


@keys.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def new(file: Path, *, as_json: bool) -> None:
    """Make a private key in FILE and its public half in FILE.pub, for use with --public elsewhere."""
    key = key_files.create_key(file)
    public = file.with_name(f"{file.name}.pub")
    key_files.write_public_key(public, key)
    say(f"made {file} (keep it) and {public} (carry it to the repository)")
    if as_json:
        print_json({"keyid": key.keyid, "private": str(file), "public": str(public)})


@keys.command("rotate")
@click.argument("role")
@click.option("--key", "old", help="Which key to replace (the beginning of its id), if the role has several.")
@_PUBLIC
@repository_options
@json_option
def rotate(
    role: str, old: str | None, public: Path | None, repo: Path, keys_folder: Path | None, *, as_json: bool
) -> None:
    """Replace a key of ROLE. A new root needs signatures of both its own and the old keys."""
    workshop = open_workshop(repo, keys_folder)
    given = None if public is None else key_files.load_public_key(public)
    with workshop.repository.locked():
        left, came, outcome = workshop.rotate(role, old, given)
    say(f"{role}: key {left[:12]} is replaced by {came.keyid[:12]}")
    tell_outcome(outcome)
    if as_json:
        print_json({**outcome_json(outcome), "role": role, "old": left, "new": came.keyid})
    end_with(outcome)


@keys.command("add")
@click.argument("role")
@_PUBLIC
@repository_options
@json_option
def add(role: str, public: Path | None, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Give ROLE one key more; it goes on needing as many signatures. The way back after `revoke`."""
    workshop = open_workshop(repo, keys_folder)
    given = None if public is None else key_files.load_public_key(public)
    with workshop.repository.locked():
        came, outcome = workshop.add_key(role, given)
    say(f"{role}: key {came.keyid[:12]} comes in addition")
    tell_outcome(outcome)
    if as_json:
        print_json({**outcome_json(outcome), "role": role, "new": came.keyid})
    end_with(outcome)


@keys.command("revoke")
@click.argument("keyid")
@repository_options
@json_option
def revoke(keyid: str, repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Take a key (the beginning of its id) from every role that has it."""
    workshop = open_workshop(repo, keys_folder)
    with workshop.repository.locked():
        revoked = workshop.revoke(keyid)
    say(f"key {revoked.keyid[:12]} leaves {', '.join(revoked.roles)}")
    for role in revoked.tight:
        say(f"{role} needs all the keys it has left: losing one more ends it; vedette-fleet keys add {role}")
    tell_outcome(revoked.outcome)
    if as_json:
        print_json(
            {
                **outcome_json(revoked.outcome),
                "keyid": revoked.keyid,
                "roles": revoked.roles,
                "without_spare": revoked.tight,
            }
        )
    end_with(revoked.outcome)


@keys.command("add-owner")
@click.argument("owner")
@_PUBLIC
@repository_options
@json_option
def add_owner(
    owner: str, public: Path | None, repo: Path, keys_folder: Path | None, *, as_json: bool
) -> None:
    """Let OWNER publish releases below models/OWNER, with a key of its own."""
    check_name("owner", owner)
    workshop = open_workshop(repo, keys_folder)
    given = None if public is None else key_files.load_public_key(public)
    with workshop.repository.locked():
        outcome = workshop.add_owner(owner, given)
    tell_outcome(outcome)
    if as_json:
        print_json({**outcome_json(outcome), "owner": owner})
    end_with(outcome)


@keys.command("sign")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", "key", required=True, type=click.Path(path_type=Path), help="A private key's file.")
@json_option
def sign(file: Path, key: Path, *, as_json: bool) -> None:
    """Add a signature to a waiting metadata FILE, on whichever machine the key is; shows what is signed."""
    ceremony = sign_file(file, key)
    say(f"signed {ceremony.role} version {ceremony.version}, until {ceremony.expires:%Y-%m-%d}; it says:")
    for line in ceremony.details:
        say(f"  {line}")
    if ceremony.own_missing is not None:
        say(f"of its own root keys {ceremony.own_missing} more must sign; the old root's keys count as well")
    if as_json:
        print_json(
            {
                "role": ceremony.role,
                "version": ceremony.version,
                "keyid": ceremony.keyid,
                "says": ceremony.details,
            }
        )


@keys.command("publish")
@repository_options
@json_option
def publish(repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Publish what waited for signatures, each part as soon as it has enough."""
    workshop = open_workshop(repo, keys_folder)
    with workshop.repository.locked():
        outcome = workshop.publish_staged()
    tell_outcome(outcome)
    if as_json:
        print_json(outcome_json(outcome))
    end_with(outcome)


@keys.command("drop")
@click.argument("roles", nargs=-1, metavar="[ROLE]...")
@repository_options
@json_option
def drop(roles: tuple[str, ...], repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Give up what waits for signatures: each ROLE with all that hangs on it, or everything."""
    workshop = open_workshop(repo, keys_folder)
    with workshop.repository.locked():
        dropped = [str(path) for path in workshop.drop(list(roles))]
    say(f"dropped {', '.join(dropped)}" if dropped else "nothing waits for signatures")
    if as_json:
        print_json({"dropped": dropped})
