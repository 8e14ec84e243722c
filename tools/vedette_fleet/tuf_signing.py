"""Add one signature to a metadata file, on whichever machine the key is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuf.api.metadata import Root, Targets

from vedette import fsops
from vedette.errors import UnavailableError, UsageError
from vedette_fleet.key_files import load_key
from vedette_fleet.roles import ROOT
from vedette_fleet.tuf_repository import SERVED, read_metadata

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True)
class Ceremony:
    """One signature added to a file: `own_missing` is what the file's own root keys lack, for roots."""

    role: str
    version: int
    expires: datetime
    keyid: str
    own_missing: int | None
    details: tuple[str, ...]


def sign_file(path: Path, key_path: Path) -> Ceremony:
    """Add a key's signature to a metadata file, wherever it lies.

    Raises:
        BadInputError: No metadata, or no key.
        UsageError: It is served already.
        UnavailableError: It cannot be written.
    """
    if path.resolve().parent.name in SERVED:
        raise UsageError(f"{path} is served already", cure="sign the file in the folder `staged`")
    metadata = read_metadata(path)
    key = load_key(key_path)
    metadata.sign(key.signer, append=True)
    try:
        fsops.write_durable(path, metadata.to_bytes(), fsops.Point.PUBLISH, mode=0o644)
    except OSError as error:
        raise UnavailableError(
            f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
        ) from error
    signed = metadata.signed
    own_missing = None
    if isinstance(signed, Root):
        result = signed.get_verification_result(ROOT, metadata.signed_bytes, metadata.signatures)
        own_missing = result.missing
    _, _, role = path.stem.partition(".")
    return Ceremony(role, signed.version, signed.expires, key.keyid, own_missing, _details(signed))


def _details(signed: object) -> tuple[str, ...]:
    """What a signer should look at before carrying the file on."""
    if isinstance(signed, Root):
        return tuple(
            f"{role}: {entry.threshold} of {', '.join(keyid[:12] for keyid in entry.keyids)}"
            for role, entry in signed.roles.items()
        )
    if isinstance(signed, Targets):
        delegated = signed.delegations.roles if signed.delegations is not None else None
        keys = [
            f"{role}: {entry.threshold} of {', '.join(keyid[:12] for keyid in entry.keyids)}"
            for role, entry in (delegated or {}).items()
        ]
        return (*keys, *(f"{path} {target.hashes['sha256']}" for path, target in signed.targets.items()))
    return ()
