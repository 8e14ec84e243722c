"""Sign an edit and publish it so that clients see the old repository or the new one, nothing between.

Order: blobs and targets (by whoever edits), delegated roles, targets, snapshot, timestamp; all but the last
have names that nobody asks for yet. A new root comes last when the rest also satisfies the root before it,
which holds as long as a rotated key's predecessor is at hand; else it is first.

Roles whose keys lie elsewhere are staged in files: `keys sign` adds signatures, `keys publish` goes on. What
waits there stops only edits of the same roles; the rest of the repository goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import UnsignedMetadataError
from tuf.api.metadata import Metadata, MetaFile, Root, Targets

from vedette.errors import BadInputError, InternalError, UsageError
from vedette_fleet.roles import (
    ROOT,
    SNAPSHOT,
    TARGETS,
    TIMESTAMP,
    next_snapshot,
    next_timestamp,
    successor,
)
from vedette_fleet.tuf_edit import (
    Outcome,
    SignedEdit,
    expected_roles,
    independent_parts,
    lacking,
    root_after,
    targets_after,
)
from vedette_fleet.tuf_staging import Staging

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from vedette_fleet.key_files import KeyFile
    from vedette_fleet.tuf_edit import Edit
    from vedette_fleet.tuf_repository import Published, TufRepository

# What python-tuf's client reads at most, by default.
_MAX_BYTES = {ROOT: 512_000, TIMESTAMP: 16_384, SNAPSHOT: 2_000_000}
_MAX_TARGETS_BYTES = 5_000_000


class Publication:
    """Publishes edits of one repository with the keys at hand; `now` is wall time."""

    def __init__(self, repository: TufRepository, keys: Mapping[str, KeyFile], now: datetime) -> None:
        self._repository = repository
        self._keys = keys
        self._now = now
        self.staging = Staging(repository, keys)

    def publish(self, current: Published, edit: Edit) -> Outcome:
        """Sign and publish; what lacks keys is staged instead, with all that hangs on it.

        Raises:
            UsageError: An earlier edit of the same roles still waits for signatures.
            UnavailableError: A file cannot be written; what was served before is still whole.
        """
        signed = self._sign(current, edit)
        self._sign_again(current, signed)
        overtaken = self.staging.check_room(current, signed.everything())
        self._repository.unstage(overtaken)
        outcome = self._publish_parts(current, signed)
        if not overtaken or not outcome.published:
            return outcome
        return Outcome(outcome.versions, remade=self._remake(self._repository.load()))

    def publish_staged(self, current: Published) -> Outcome:
        """Publish what waited for signatures, each part as soon as it has enough.

        Raises:
            BadInputError: What is staged no longer follows what is published.
            UsageError: Nothing waits.
        """
        paths = self._repository.staged()
        if not paths:
            raise UsageError("nothing waits for signatures", cure="see: vedette-fleet keys list")
        signed = self.staging.load(current)
        self._sign_again(current, signed)
        outcome = self._publish_parts(current, signed)
        self._repository.unstage([path for path in paths if path not in outcome.missing])
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

    def _remake(self, current: Published) -> dict[Path, int]:
        """Stage anew the renewals that what is staged needs, with the signatures that each lacks."""
        signed = self.staging.load(current)
        before = set(signed.roles)
        self._sign_again(current, signed)
        made = {role: metadata for role, metadata in signed.roles.items() if role not in before}
        return {
            self._stage(role, metadata): lacking(current, signed, role, metadata)
            for role, metadata in made.items()
        }

    def _sign(self, current: Published, edit: Edit) -> SignedEdit:
        signed = SignedEdit(None, {role: Metadata(content) for role, content in edit.roles.items()})
        if edit.root is not None:
            signed.root = self.sign_root(edit.root, current.root.signed)
        for role, metadata in signed.roles.items():
            self._sign_old_and_new(current, signed, role, metadata)
        return signed

    def _sign_again(self, current: Published, signed: SignedEdit) -> None:
        """Renew roles whose keys the edit changes and which it does not sign anew itself."""
        for role in expected_roles(current, signed):
            metadata = current.roles.get(role)
            if role in signed.roles or metadata is None or not lacking(current, signed, role, metadata):
                continue
            signed.roles[role] = Metadata(successor(metadata.signed, role, self._now))
            self._sign_old_and_new(current, signed, role, signed.roles[role])

    def _sign_old_and_new(
        self, current: Published, signed: SignedEdit, role: str, metadata: Metadata[Any]
    ) -> None:
        """Both the old and the new keys of a role sign, so that it is good under either delegator."""
        if role == TARGETS:
            self._sign_for([root_after(current, signed), current.root.signed], role, metadata)
        else:
            self._sign_for([targets_after(current, signed), current.targets], role, metadata)

    def _publish_parts(self, current: Published, signed: SignedEdit) -> Outcome:
        versions = {role: metadata.signed.version for role, metadata in signed.everything().items()}
        if not versions:
            self._check_online(current.root.signed)
        _check_whole(current, signed)
        parts = [signed] if not self._missing(current, signed) else independent_parts(current, signed)
        ready: set[str] = set()
        missing: dict[Path, int] = {}
        for part in parts:
            short = self._missing(current, part)
            if not short:
                ready |= part.everything().keys()
            else:
                for role, metadata in part.everything().items():
                    missing[self._stage(role, metadata)] = short.get(role, 0)
        if ready or not versions:
            self._commit(current, signed.part(ready))
        return Outcome(versions, missing, frozenset(versions.keys() - ready))

    def _check_online(self, root: Root) -> None:
        short = [role for role in (SNAPSHOT, TIMESTAMP) if self._online_missing(root, role)]
        if short:
            raise BadInputError(
                f"the key of {' and '.join(short)} is not in the keys folder",
                cure="name the folder that has it with --keys",
            )

    def _missing(self, current: Published, signed: SignedEdit) -> dict[str, int]:
        """Signatures that each role still lacks; only roles that lack some. Empty means: can be published."""
        short = {role: lacking(current, signed, role, metadata) for role, metadata in signed.roles.items()}
        if signed.root is not None:
            result = signed.root.signed.get_root_verification_result(
                current.root.signed, signed.root.signed_bytes, signed.root.signatures
            )
            short[ROOT] = max(result.first.missing, result.second.missing)
        for role in (SNAPSHOT, TIMESTAMP):
            short[role] = self._online_missing(root_after(current, signed), role)
        return {role: count for role, count in short.items() if count}

    def _online_missing(self, root: Root, role: str) -> int:
        here = sum(keyid in self._keys for keyid in root.roles[role].keyids)
        return max(0, root.roles[role].threshold - here)

    def _stage(self, role: str, metadata: Metadata[Any]) -> Path:
        return self._repository.stage(f"{metadata.signed.version}.{role}", _serialised(role, metadata))

    def _commit(self, current: Published, signed: SignedEdit) -> None:
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
            if name.removesuffix(".json") in expected_roles(current, signed)
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

    def _satisfies(self, current: Published, signed: SignedEdit) -> bool:
        """Whether everything beside the new root will also be good under the root that is still published."""
        root = current.root.signed
        online = not any(self._online_missing(root, role) for role in (SNAPSHOT, TIMESTAMP))
        targets = signed.roles.get(TARGETS, current.roles[TARGETS])
        result = root.get_verification_result(TARGETS, targets.signed_bytes, targets.signatures)
        return online and result.verified

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


def _check_whole(current: Published, signed: SignedEdit) -> None:
    expected = expected_roles(current, signed)
    orphans = [role for role in signed.roles if role not in expected]
    if orphans:
        raise BadInputError(
            f"the edit is not whole: nobody delegates to {orphans[0]}",
            cure=f"drop it (vedette-fleet keys drop {orphans[0]}) and edit again",
        )
    for role in expected:
        if role not in signed.roles and role not in current.roles:
            raise BadInputError(
                f"the edit is not whole: it delegates to {role}, of which there is no metadata",
                cure="drop it (vedette-fleet keys drop) and edit again",
            )


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
