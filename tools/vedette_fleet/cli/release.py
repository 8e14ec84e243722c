"""`vedette-fleet release`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.errors import UsageError
from vedette_fleet.cli.output import (
    answer,
    end_with,
    outcome_json,
    print_json,
    print_table,
    progress,
    say,
    tell_outcome,
)
from vedette_fleet.cli.workshop import json_option, open_workshop, repository_options
from vedette_fleet.encoders import SmallestEncoder
from vedette_fleet.names import check_name
from vedette_fleet.release import LOWEST_AGENT, journeys_of, rows_of
from vedette_fleet.release_files import Publisher, Request

if TYPE_CHECKING:
    from vedette_fleet.release_files import Released

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--owner", help="Who signs; needed when the repository has several owners.")
@click.option("--base", "bases", multiple=True, metavar="VERSION", help="Make deltas from this release only.")
@click.option("--full-only", is_flag=True, help="Make no deltas.")
@click.option("--arch", multiple=True, help="Machines it runs on (`uname -m`); any by default.")
@click.option(
    "--min-agent",
    default=LOWEST_AGENT,
    show_default=True,
    help="The lowest agent version that may install it.",
)
@click.option(
    "--allow-other-task",
    is_flag=True,
    help="Publish although the version before answers otherwise.",
)
@repository_options
@json_option
def release(
    *,
    bundle: Path,
    owner: str | None,
    bases: tuple[str, ...],
    arch: tuple[str, ...],
    min_agent: str,
    repo: Path,
    keys_folder: Path | None,
    full_only: bool,
    allow_other_task: bool,
    as_json: bool,
) -> None:
    """Publish BUNDLE: every file in full, and as deltas from the last three releases of the model.

    The bundle is checked without an engine. A version is published once: the same bundle again changes
    nothing but puts back blobs that are gone or damaged; other content under the same version is refused.
    """
    if full_only and bases:
        raise UsageError("--full-only and --base exclude each other")
    if not _VERSION.fullmatch(min_agent):
        raise UsageError(
            f"--min-agent {min_agent!r} is no version", cure="write numbers and points, such as 0.1.0"
        )
    if owner is not None:
        check_name("owner", owner)
    request = Request(
        bundle,
        owner,
        () if full_only else (bases or None),
        arch=tuple(arch),
        agent=min_agent,
        allow_other_task=allow_other_task,
    )
    with progress() as report:
        released = Publisher(open_workshop(repo, keys_folder), SmallestEncoder(say), report).release(request)
    for change in released.changes:
        say(f"warning: {change}")
    for blob in released.repaired:
        say(f"repaired {blob}")
    if released.outcome is None:
        also = "; its blobs are whole again" if released.repaired else "; nothing was changed"
        say(f"{released.name} is published already{also}")
    else:
        tell_outcome(released.outcome)
    if as_json:
        print_json(_as_json(released))
    else:
        _print(released)
    if released.outcome is not None:
        end_with(released.outcome)


def _print(released: Released) -> None:
    rows = [
        (
            row.path,
            f"{row.kind} {row.codec}" if row.kind != "same" else "same",
            row.base or "-",
            f"{row.blob_bytes:,}",
            f"{row.share:.1%}",
        )
        for row in rows_of(released.manifest, released.bases)
    ]
    print_table(("file", "encoding", "from", "bytes", "share"), rows, right=("bytes", "share"))
    answer()
    journeys = [
        (
            f"{released.name} from {journey.base or 'nothing'}",
            f"{journey.fetched_bytes:,}",
            f"{journey.share:.1%}",
        )
        for journey in journeys_of(released.manifest, released.bases)
    ]
    print_table(("a device fetches", "bytes", "share"), journeys, right=("bytes", "share"))


def _as_json(released: Released) -> dict[str, Any]:
    manifest = released.manifest
    return {
        "release": str(released.name),
        "target": released.name.target,
        "counter": manifest.counter,
        "bundle_sha256": manifest.bundle_sha256,
        "outcome": None if released.outcome is None else outcome_json(released.outcome),
        "changes": released.changes,
        "repaired": released.repaired,
        "encodings": [
            {
                "file": row.path,
                "kind": row.kind,
                "codec": row.codec,
                "from": row.base,
                "bytes": row.blob_bytes,
                "share": row.share,
            }
            for row in rows_of(manifest, released.bases)
        ],
        "fetched": [
            {"from": journey.base, "bytes": journey.fetched_bytes, "share": journey.share}
            for journey in journeys_of(manifest, released.bases)
        ],
    }
