"""An edit of the repository: new versions of some roles, what each still lacks, and what hangs together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vedette_fleet.roles import ROOT, TARGETS, delegated_roles, delegator_of

if TYPE_CHECKING:
    from pathlib import Path

    from tuf.api.metadata import Metadata, Root, Targets

    from vedette_fleet.tuf_repository import Published


@dataclass
class Edit:
    """New versions of some roles, not signed yet."""

    root: Root | None = None
    roles: dict[str, Targets] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of an edit, by role and version: seen by clients, or staged in files that miss signatures.

    `missing` counts what each staged file lacks; of `waiting`, some roles of the edit or all. `remade` are
    files that had been staged before, were overtaken by this edit and were made anew, with what they lack.
    """

    versions: dict[str, int]
    missing: dict[Path, int] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    remade: dict[Path, int] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """Whether clients see all of it."""
        return not self.missing


@dataclass
class SignedEdit:
    """An edit whose roles carry the signatures that could be had."""

    root: Metadata[Root] | None = None
    roles: dict[str, Metadata[Targets]] = field(default_factory=dict)

    def everything(self) -> dict[str, Metadata[Any]]:
        """All metadata of the edit by role, root first."""
        root: dict[str, Metadata[Any]] = {} if self.root is None else {ROOT: self.root}
        return {**root, **self.roles}

    def part(self, names: set[str]) -> SignedEdit:
        """Only the roles of those names."""
        return SignedEdit(
            self.root if ROOT in names else None,
            {role: metadata for role, metadata in self.roles.items() if role in names},
        )


def root_after(current: Published, signed: SignedEdit) -> Root:
    """The root as it will be."""
    return current.root.signed if signed.root is None else signed.root.signed


def targets_after(current: Published, signed: SignedEdit) -> Targets:
    """Top-level targets as they will be."""
    return signed.roles[TARGETS].signed if TARGETS in signed.roles else current.targets


def expected_roles(current: Published, signed: SignedEdit) -> list[str]:
    """The roles that a snapshot has to list, `targets` first."""
    return [TARGETS, *delegated_roles(targets_after(current, signed))]


def lacking(current: Published, signed: SignedEdit, role: str, metadata: Metadata[Any]) -> int:
    """How many signatures a role's metadata lacks once the edit is published."""
    delegator = delegator_of(role, root_after(current, signed), targets_after(current, signed))
    return delegator.get_verification_result(role, metadata.signed_bytes, metadata.signatures).missing


def independent_parts(current: Published, signed: SignedEdit) -> list[SignedEdit]:
    """What can be published each by itself: a role goes with its delegator where that changes its keys."""
    together = [{name} for name in signed.everything()]
    root, targets = root_after(current, signed), targets_after(current, signed)
    for role in signed.roles:
        above = ROOT if role == TARGETS else TARGETS
        if above in signed.everything() and _keys(role, root, targets) != _keys(
            role, current.root.signed, current.targets
        ):
            joined = set().union(*(names for names in together if role in names or above in names))
            together = [joined, *(names for names in together if not names & joined)]
    return [signed.part(names) for names in together]


def is_renewal(current: Published, role: str, staged: Metadata[Any]) -> bool:
    """Whether staged metadata of a delegated role only signs again what is published."""
    published = current.roles.get(role)
    return published is not None and _content(staged) == _content(published)


def _content(metadata: Metadata[Any]) -> dict[str, Any]:
    said: dict[str, Any] = metadata.signed.to_dict()
    return {key: value for key, value in said.items() if key not in {"version", "expires"}}


def _keys(role: str, root: Root, targets: Targets) -> tuple[list[str], int] | None:
    everyone = {**root.roles, **delegated_roles(targets)}
    return (sorted(everyone[role].keyids), everyone[role].threshold) if role in everyone else None
