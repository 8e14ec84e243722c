"""Why signed metadata is refused, in stable words. Pure."""

from __future__ import annotations

from enum import Enum

from tuf.api import exceptions

from vedette.errors import TrustError


class Refusal(str, Enum):
    """The words that a refusal is reported under; new ones may come, none changes its meaning."""

    ROLLBACK_ATTACK = "rollback_attack"
    EXPIRED = "expired"
    HASH_MISMATCH = "hash_mismatch"
    BAD_SIGNATURE = "bad_signature"
    BAD_METADATA = "bad_metadata"


_CURES = {
    Refusal.ROLLBACK_ATTACK: "nothing was changed here; ask the operator whether a proxy, mirror or stick "
    "serves an old copy, or the repository was restored from a backup",
    Refusal.EXPIRED: "run `vedette-fleet refresh` where the repository is made; if it is fresh there, a "
    "mirror is old or this clock is ahead",
    Refusal.HASH_MISMATCH: "a mirror or cache may be half updated; it is fetched anew at the next try",
    Refusal.BAD_SIGNATURE: "check that this device was installed for this repository, and that enough keys "
    "signed",
    Refusal.BAD_METADATA: "publish again with `vedette-fleet`; this agent cannot read what is there",
}
# python-tuf has no class of its own for a role that vanished from the snapshot; the text is pinned by a test.
_ROLE_VANISHED = "New snapshot is missing info"


def refuse(refusal: Refusal, cause: str) -> TrustError:
    """The error for a refusal, with its cure."""
    return TrustError(cause, kind=refusal.value, cure=_CURES[refusal])


def refusal_of(error: exceptions.RepositoryError | exceptions.DownloadLengthMismatchError) -> Refusal:
    """The word for an error of python-tuf."""
    if isinstance(error, exceptions.ExpiredMetadataError):
        return Refusal.EXPIRED
    if isinstance(error, exceptions.BadVersionNumberError) or str(error).startswith(_ROLE_VANISHED):
        return Refusal.ROLLBACK_ATTACK
    if isinstance(error, (exceptions.LengthOrHashMismatchError, exceptions.DownloadLengthMismatchError)):
        return Refusal.HASH_MISMATCH
    if isinstance(error, exceptions.UnsignedMetadataError):
        return Refusal.BAD_SIGNATURE
    return Refusal.BAD_METADATA
