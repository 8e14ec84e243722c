"""Sign an edit and publish it so that clients see the old repository or the new one, nothing between.

Order: blobs and targets (by whoever edits), delegated roles, targets, snapshot, timestamp; all but the last
have names that nobody asks for yet. A new root comes last when the rest also satisfies the root before it,
which holds as long as a rotated key's predecessor is at hand; else it is first.

Roles whose keys lie elsewhere are staged in files: `keys sign` adds signatures, `keys publish` goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import UnsignedMetadataError
from tuf.api.metadata import Metadata, MetaFile, Root, Targets

from vedette.errors import BadInputError, InternalError, UsageError
from vedette_fleet.roles import (
    ROOT,
    SNAPSHOT,
    TARGETS,
    TIMESTAMP,
    delegated_roles,
    next_snapshot,
    next_timestamp,
)
from vedette_fleet.tuf_repository import Published, read_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from vedette_fleet.key_files import KeyFile
    from vedette_fleet.tuf_repository import TufRepository

# What python-tuf's client reads at most, by default.
_MAX_BYTES = {ROOT: 512_000, TIMESTAMP: 16_384, SNAPSHOT: 2_000_000}
_MAX_TARGETS_BYTES = 5_000_000


@dataclass
class Edit:
    """New versions of some roles, not signed yet."""

    root: Root | None = None
    roles: dict[str, Targets] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of an edit: published, or staged in files that miss signatures (by file)."""

    versions: dict[str, int]
    missing: dict[Path, int] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """Whether clients see it."""
        return not self.missing


@dataclass
class _Signed:
    """An edit whose roles carry the signatures that could be had."""

    root: Metadata[Root] | None
    roles: dict[str, Metadata[Targets]]


class Publication:
    """Publishes edits of one repository with the keys at hand; `now` is wall time."""

    def __init__(self, repository: TufRepository, keys: Mapping[str, KeyFile], now: datetime) -> None:
        self._repository = repository
        self._keys = keys
        self._now = now

    def publish(self, current: Published, edit: Edit) -> Outcome:
        """Sign and publish; with keys missing, stage instead.

        Raises:
            UsageError: An earlier edit still waits for signatures.
            UnavailableError: A file cannot be written; what was served before is still whole.
        """
        waiting = self._repository.staged()
        if waiting:
            raise UsageError(
                f"an edit waits for signatures: {', '.join(path.name for path in waiting)}",
                cure="sign and publish it (keys sign, keys publish), or drop it: vedette-fleet keys drop",
            )
        signed = self._sign(current, edit)
        return self._commit_or_stage(current, signed)

    def publish_staged(self, current: Published) -> Outcome:
        """Publish what waited for signatures, if it has enough by now.

        Raises:
            BadInputError: What is staged no longer follows what is published.
            UsageError: Nothing waits.
        """
        paths = self._repository.staged()
        if not paths:
            raise UsageError("nothing waits for signatures", cure="see: vedette-fleet keys list")
        signed = _Signed(None, {})
        for path in paths:
            metadata = read_metadata(path)
            if self._repository.is_published(path) and _is_current(current, path, metadata):
                continue  # cut off between publishing and cleaning up
            _, _, role = path.stem.partition(".")
            if role == ROOT and isinstance(metadata.signed, Root):
                signed.root = metadata
            elif isinstance(metadata.signed, Targets):
                signed.roles[role] = metadata
            else:
                raise BadInputError(f"{path}: not what its name says", cure="vedette-fleet keys drop")
            _check_follows(current, role, metadata, path)
        outcome = self._commit_or_stage(current, signed)
        if outcome.published:
            self._repository.unstage()
        return outcome

    def first(self, root: Metadata[Root], roles: Mapping[str, Targets]) -> None:
        """Publish version 1 of everything under a root that is published already.

        Raises:
            BadInputError: A key is not at hand.
            UnavailableError: A file cannot be written; calling it again goes on.
        """
        signed = {role: Metadata(content) for role, content in roles.items()}
        for role, metadata in signed.items():
            delegator = root.signed if role == TARGETS else roles[TARGETS]
            self._sign_for([delegator], role, metadata)
            _require(delegator, role, metadata)
        self._write_roles(signed)
        self._write_snapshot([root.signed], signed, {}, 1, 1)

    def sign_root(self, root: Root, before: Root | None) -> Metadata[Root]:
        """A root with the signatures of its own keys and of its predecessor's, as far as they are at hand."""
        metadata = Metadata(root)
        self._sign_for([root] if before is None else [root, before], ROOT, metadata)
        return metadata

    def write_root(self, root: Metadata[Root]) -> None:
        """Publish a root.

        Raises:
            UnavailableError: It cannot be written.
        """
        self._repository.write_metadata(f"{root.signed.version}.{ROOT}", _serialised(ROOT, root))

    def _sign(self, current: Published, edit: Edit) -> _Signed:
        root = edit.root or current.root.signed
        targets = edit.roles.get(TARGETS, current.targets)
        signed = _Signed(None, {})
        if edit.root is not None:
            signed.root = self.sign_root(edit.root, current.root.signed)
        for role, content in edit.roles.items():
            signed.roles[role] = Metadata(content)
            # Both the old and the new keys of a role sign, so that it is good under either delegator.
            delegators = [root, current.root.signed] if role == TARGETS else [targets, current.targets]
            self._sign_for(delegators, role, signed.roles[role])
        return signed

    def _commit_or_stage(self, current: Published, signed: _Signed) -> Outcome:
        versions = {role: metadata.signed.version for role, metadata in signed.roles.items()}
        if signed.root is not None:
            versions[ROOT] = signed.root.signed.version
        short = self._missing(current, signed)
        if short:
            return Outcome(versions, self._stage(signed, short))
        self._commit(current, signed)
        return Outcome(versions)

    def _missing(self, current: Published, signed: _Signed) -> dict[str, int]:
        """Signatures that each role still lacks; only roles that lack some. Empty means: can be published."""
        short: dict[str, int] = {}
        root = current.root.signed
        if signed.root is not None:
            root = signed.root.signed
            result = root.get_root_verification_result(
                current.root.signed, signed.root.signed_bytes, signed.root.signatures
            )
            short[ROOT] = max(result.first.missing, result.second.missing)
        targets = signed.roles[TARGETS].signed if TARGETS in signed.roles else current.targets
        for role in _expected(current, signed):
            metadata = signed.roles.get(role) or current.roles.get(role)
            lacking = (
                1 if metadata is None else _lacking(root if role == TARGETS else targets, role, metadata)
            )
            if lacking and role not in signed.roles:
                raise BadInputError(
                    f"the edit is not whole: it changes the keys of {role} without signing {role} anew",
                    cure="drop it (vedette-fleet keys drop) and edit again",
                )
            short[role] = lacking
        for role in (SNAPSHOT, TIMESTAMP):
            here = sum(keyid in self._keys for keyid in root.roles[role].keyids)
            short[role] = max(0, root.roles[role].threshold - here)
        return {role: count for role, count in short.items() if count}

    def _stage(self, signed: _Signed, short: Mapping[str, int]) -> dict[Path, int]:
        everything: dict[str, Metadata[Any]] = dict(signed.roles)
        if signed.root is not None:
            everything[ROOT] = signed.root
        if not everything:
            names = " and ".join(sorted(short))
            raise BadInputError(
                f"the key of {names} is not in the keys folder",
                cure="name the folder that has it with --keys",
            )
        return {
            self._repository.stage(
                f"{metadata.signed.version}.{role}", _serialised(role, metadata)
            ): short.get(role, 0)
            for role, metadata in everything.items()
        }

    def _commit(self, current: Published, signed: _Signed) -> None:
        roots = [current.root.signed]
        if signed.root is not None:
            roots.insert(0, signed.root.signed)
        root_last = signed.root is not None and self._satisfies(current, signed)
        if signed.root is not None and not root_last:
            self.write_root(signed.root)
        self._write_roles(signed.roles)
        unchanged = {
            name: meta
            for name, meta in current.snapshot.signed.meta.items()
            if name.removesuffix(".json") in _expected(current, signed)
        }
        self._write_snapshot(
            roots,
            signed.roles,
            unchanged,
            current.snapshot.signed.version + 1,
            current.timestamp.signed.version + 1,
        )
        if signed.root is not None and root_last:
            self.write_root(signed.root)

    def _satisfies(self, current: Published, signed: _Signed) -> bool:
        """Whether everything beside the new root will also be good under the root that is still published."""
        root = current.root.signed
        online = all(
            sum(keyid in self._keys for keyid in root.roles[role].keyids) >= root.roles[role].threshold
            for role in (SNAPSHOT, TIMESTAMP)
        )
        targets = signed.roles.get(TARGETS, current.roles[TARGETS])
        return online and not _lacking(root, TARGETS, targets)

    def _write_roles(self, roles: Mapping[str, Metadata[Targets]]) -> None:
        for role in sorted(roles, key=lambda name: name == TARGETS):
            metadata = roles[role]
            self._repository.write_metadata(f"{metadata.signed.version}.{role}", _serialised(role, metadata))

    def _write_snapshot(
        self,
        roots: list[Root],
        roles: Mapping[str, Metadata[Targets]],
        unchanged: Mapping[str, MetaFile],
        snapshot_version: int,
        timestamp_version: int,
    ) -> None:
        snapshot = Metadata(next_snapshot(snapshot_version, self._now))
        snapshot.signed.meta.update(unchanged)
        for role, metadata in roles.items():
            content = _serialised(role, metadata)
            snapshot.signed.meta[f"{role}.json"] = MetaFile.from_data(
                metadata.signed.version, content, ["sha256"]
            )
        self._sign_online(roots, SNAPSHOT, snapshot)
        content = _serialised(SNAPSHOT, snapshot)
        timestamp = Metadata(next_timestamp(timestamp_version, self._now))
        timestamp.signed.snapshot_meta = MetaFile.from_data(snapshot_version, content, ["sha256"])
        self._sign_online(roots, TIMESTAMP, timestamp)
        self._repository.write_metadata(f"{snapshot_version}.{SNAPSHOT}", content)
        self._repository.write_metadata(TIMESTAMP, _serialised(TIMESTAMP, timestamp))

    def _sign_online(self, roots: list[Root], role: str, metadata: Metadata[Any]) -> None:
        self._sign_for(roots, role, metadata)
        _require(roots[0], role, metadata)

    def _sign_for(self, delegators: Iterable[Root | Targets], role: str, metadata: Metadata[Any]) -> None:
        for delegator in delegators:
            try:
                keyids = delegator.get_delegated_role(role).keyids
            except ValueError:
                continue  # not delegated before this edit
            for keyid in keyids:
                if keyid in self._keys and keyid not in metadata.signatures:
                    metadata.sign(self._keys[keyid].signer, append=True)


def _expected(current: Published, signed: _Signed) -> set[str]:
    """The roles that a snapshot has to list."""
    targets = signed.roles[TARGETS].signed if TARGETS in signed.roles else current.targets
    return {TARGETS, *delegated_roles(targets)}


def _version_of(current: Published, role: str) -> int:
    if role == ROOT:
        return current.root.signed.version
    return current.roles[role].signed.version if role in current.roles else 0


def _is_current(current: Published, path: Path, metadata: Metadata[Any]) -> bool:
    _, _, role = path.stem.partition(".")
    return bool(metadata.signed.version == _version_of(current, role))


def _check_follows(current: Published, role: str, metadata: Metadata[Any], path: Path) -> None:
    published = _version_of(current, role)
    if metadata.signed.version != published + 1:
        raise BadInputError(
            f"{path.name} was made for another state: {role} version {published} is published",
            cure="drop it (vedette-fleet keys drop) and edit again",
        )


def _lacking(delegator: Root | Targets, role: str, metadata: Metadata[Any]) -> int:
    return delegator.get_verification_result(role, metadata.signed_bytes, metadata.signatures).missing


def _require(delegator: Root | Targets, role: str, metadata: Metadata[Any]) -> None:
    try:
        delegator.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
    except UnsignedMetadataError as error:
        raise BadInputError(
            f"the keys of {role} are not all in the keys folder: {error}",
            cure="name the folder that has them with --keys",
        ) from error


def _serialised(role: str, metadata: Metadata[Any]) -> bytes:
    content = metadata.to_bytes()
    limit = _MAX_BYTES.get(role, _MAX_TARGETS_BYTES)
    if len(content) > limit:
        raise InternalError(f"{role} metadata of {len(content)} bytes; clients read {limit} at most")
    return content
