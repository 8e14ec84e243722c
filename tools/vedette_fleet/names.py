"""Names of owners, models, versions and releases, and where their manifests stand in the repository. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from vedette.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_PREFIX = "models"


class ReleaseName(NamedTuple):
    """A release as people write it: `owner/model@version`."""

    owner: str
    model: str
    version: str

    @property
    def target(self) -> str:
        """Path of the manifest among the TUF targets."""
        return f"{_PREFIX}/{self.owner}/{self.model}/{self.version}.json"

    def __str__(self) -> str:
        return f"{self.owner}/{self.model}@{self.version}"


def check_name(what: str, name: str) -> str:
    """Give back a name that may stand in paths and URLs everywhere.

    Raises:
        UsageError: It may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{what} {name!r} cannot be used in paths and URLs",
            cure="1 to 64 letters, digits and . _ + -, the first a letter or digit",
        )
    return name


def release_name(owner: str, model: str, version: str) -> ReleaseName:
    """A release whose three names are good.

    Raises:
        UsageError: One of them is not.
    """
    return ReleaseName(
        check_name("owner", owner), check_name("model name", model), check_name("version", version)
    )


def release_of_target(target: str) -> ReleaseName | None:
    """The release whose manifest a target path names; None for other targets."""
    parts = target.split("/")
    if len(parts) != 4 or parts[0] != _PREFIX or not parts[3].endswith(".json"):
        return None
    names = (parts[1], parts[2], parts[3].removesuffix(".json"))
    return ReleaseName(*names) if all(_NAME.fullmatch(name) for name in names) else None


def find_release(text: str, known: list[ReleaseName]) -> ReleaseName:
    """The release that `[owner/]model@version` means.

    Raises:
        UsageError: Malformed, unknown, or of more than one owner.
    """
    owner_model, at, version = text.rpartition("@")
    owner, _, model = owner_model.rpartition("/")
    if not at or not model or not version:
        raise UsageError(
            f"{text!r} names no release", cure="write [owner/]model@version, such as demo/cifar@2"
        )
    same_model = [name for name in known if name.model == model and owner in {"", name.owner}]
    found = [name for name in same_model if name.version == version]
    if len(found) > 1:
        raise UsageError(
            f"{text!r} is a release of {' and of '.join(name.owner for name in found)}",
            cure="put the owner before it: owner/model@version",
        )
    if not found:
        versions = ", ".join(str(name) for name in same_model) or "none"
        raise UsageError(f"there is no release {text}", cure=f"releases of that model: {versions}")
    return found[0]


def find_owner(owner: str | None, owners: list[str]) -> str:
    """The owner that is meant; one who is alone need not be named.

    Raises:
        UsageError: Not known, or not clear.
    """
    known = ", ".join(owners) or "none"
    if owner is None:
        if len(owners) == 1:
            return owners[0]
        raise UsageError("which owner signs is not clear", cure=f"name one with --owner; known: {known}")
    if owner not in owners:
        raise UsageError(
            f"owner {owner!r} has no role in this repository; known: {known}",
            cure=f"correct --owner, or let the targets key admit it: vedette-fleet keys add-owner {owner}",
        )
    return owner
