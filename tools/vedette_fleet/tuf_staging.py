"""What waits for signatures: edits of any roles side by side, each role once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuf.api.metadata import Metadata, Root, Targets

from vedette.errors import BadInputError, UsageError
from vedette_fleet.roles import ROLLOUTS, ROOT, TARGETS
from vedette_fleet.tuf_edit import SignedEdit, independent_parts, is_renewal
from vedette_fleet.tuf_repository import read_metadata

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from vedette_fleet.tuf_repository import Published, TufRepository


class Staging:
    """The staged files of a repository, seen with the keys at hand."""

    def __init__(self, repository: TufRepository, keyids: Collection[str]) -> None:
        self._repository = repository
        self._keyids = frozenset(keyids)

    def check_room(self, current: Published, roles: Collection[str]) -> list[Path]:
        """Refuse an edit of roles of which another edit waits for signatures.

        Returns:
            Staged files that the edit may overtake, because they can be made anew: renewals whose signatures
            are all by keys at hand; those of the rollouts in any case, for stopping one must never wait.

        Raises:
            UsageError: One waits that would lose its signatures.
        """
        overtaken: list[Path] = []
        blocking: dict[str, Path] = {}
        for path, (role, metadata) in self.find(current).items():
            if metadata is None:
                overtaken.append(path)  # published already, and not cleaned up
            elif role in roles:
                replaceable = role == ROLLOUTS or self._keyids >= metadata.signatures.keys()
                if role not in {ROOT, TARGETS} and replaceable and is_renewal(current, role, metadata):
                    overtaken.append(path)
                else:
                    blocking[role] = path
        if blocking:
            names = ", ".join(path.name for path in blocking.values())
            raise UsageError(
                f"an edit of the same role waits for signatures: {names}; whichever of the two is published "
                "first makes the other's signatures worthless",
                cure="publish it first (keys sign, keys publish): no signature is lost; or give up that part "
                f"alone: vedette-fleet keys drop {' '.join(blocking)}",
            )
        return overtaken

    def find(self, current: Published) -> dict[Path, tuple[str, Metadata[Any] | None]]:
        """Role and metadata by file; None is what was published before the work was cut off.

        Raises:
            BadInputError: A file is damaged, or not what its name says.
        """
        found: dict[Path, tuple[str, Metadata[Any] | None]] = {}
        for path in self._repository.staged():
            metadata = read_metadata(path)
            _, _, role = path.stem.partition(".")
            if (role == ROOT) != isinstance(metadata.signed, Root) or not isinstance(
                metadata.signed, Root | Targets
            ):
                raise BadInputError(f"{path}: not what its name says", cure="vedette-fleet keys drop")
            same = metadata.signed.version == _version_of(current, role)
            done = same and self._repository.is_published(path)
            found[path] = (role, None if done else metadata)
        return found

    def load(self, current: Published) -> SignedEdit:
        """All that waits, as one edit.

        Raises:
            BadInputError: It no longer follows what is published.
        """
        signed = SignedEdit()
        for path, (role, metadata) in self.find(current).items():
            if metadata is None:
                continue
            _check_follows(current, role, metadata, path)
            if role == ROOT:
                signed.root = metadata
            else:
                signed.roles[role] = metadata
        return signed

    def drop(self, current: Published, roles: Collection[str]) -> list[Path]:
        """Give up the staged parts that have these roles.

        Raises:
            UsageError: Nothing of one of them waits.
        """
        staged = self.find(current)
        files = {role: path for path, (role, _) in staged.items()}
        unknown = [role for role in roles if role not in files]
        if unknown:
            waiting = ", ".join(files) or "none"
            raise UsageError(f"nothing of {unknown[0]} waits for signatures", cure=f"roles: {waiting}")
        parts = [part.everything() for part in independent_parts(current, self.load(current))]
        names = {name for part in parts if set(roles) & part.keys() for name in part} | set(roles)
        dropped = [files[name] for name in sorted(names) if name in files]
        self._repository.unstage(dropped)
        return dropped


def _version_of(current: Published, role: str) -> int:
    if role == ROOT:
        return current.root.signed.version
    return current.roles[role].signed.version if role in current.roles else 0


def _check_follows(current: Published, role: str, metadata: Metadata[Any], path: Path) -> None:
    published = _version_of(current, role)
    if metadata.signed.version != published + 1:
        raise BadInputError(
            f"{path.name} was made for another state: {role} version {published} is published",
            cure=f"drop it (vedette-fleet keys drop {role}) and edit again",
        )
