"""The options that name a repository and its keys."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vedette_fleet.key_files import KeyFolder
from vedette_fleet.tuf_ceremonies import Workshop, check_apart
from vedette_fleet.tuf_repository import TufRepository

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., Any]")

keys_option = click.option(
    "--keys",
    "keys_folder",
    envvar="VEDETTE_KEYS",
    type=click.Path(path_type=Path),
    help="Folder of the private keys; REPO-keys, beside the repository, by default.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


def repository_options(command: Command) -> Command:
    """Add `--repo` and `--keys`."""
    repo = click.option(
        "--repo",
        envvar="VEDETTE_REPO",
        type=click.Path(path_type=Path),
        default=Path("repo"),
        show_default=True,
        help="Folder of the update repository.",
    )
    return repo(keys_option(command))


def open_workshop(repo: Path, keys_folder: Path | None) -> Workshop:
    """The repository and the keys that the options name.

    Raises:
        UsageError: The keys lie where files are served.
    """
    folder = keys_folder if keys_folder is not None else _beside(repo)
    workshop = Workshop(TufRepository(repo), KeyFolder(folder), _utc_now())
    check_apart(workshop.repository, workshop.folder)
    return workshop


def _utc_now() -> datetime:
    """Wall time in whole seconds, as metadata carries it."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def _beside(repo: Path) -> Path:
    resolved = repo.resolve()
    return resolved.with_name(f"{resolved.name}-keys")
