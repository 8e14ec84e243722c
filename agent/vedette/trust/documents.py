"""What the verified documents say to this device. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from vedette.trust.refusal import Refusal, refuse
from vedette.wire.release import ManifestError, ReleaseManifest, parse_manifest
from vedette.wire.rollout import Rollout, RolloutDocument, RolloutError, concerns, parse_rollouts

if TYPE_CHECKING:
    from tuf.api.metadata import TargetFile

ROLLOUTS_ROLE = "rollouts"
ROLLOUTS_PATH = "rollouts.json"
# No slash in a role's name, so that every web server can serve `N.<role>.json`.
_OWNER_PREFIX = "models-"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
_MANIFEST_PATH = re.compile(rf"models/(?P<owner>{_NAME})/(?P<name>{_NAME})/(?P<version>{_NAME})\.json")


class Device(msgspec.Struct, frozen=True):
    """Whom rollouts are held against: this device's id, the model it serves, its labels."""

    device_id: str
    model: str
    labels: dict[str, str] = {}


def pick_rollout(document: RolloutDocument, device: Device) -> Rollout | None:
    """The last rollout that concerns the device.

    A withdrawn one is as if it were not there; a paused one holds the device back, also from older ones.
    """
    for rollout in reversed(document.rollouts):
        if rollout.withdrawn or not concerns(
            rollout, device_id=device.device_id, model=device.model, labels=device.labels
        ):
            continue
        return None if rollout.paused else rollout
    return None


def owner_role(rollout: Rollout) -> str:
    """The role that must have signed the rollout's release.

    Raises:
        TrustError: bad_metadata: the target is no path of a release.
    """
    match = _MANIFEST_PATH.fullmatch(rollout.target)
    if match is None:
        raise refuse(
            Refusal.BAD_METADATA, f"rollout {rollout.id}: {rollout.target[:200]!r} is no path of a release"
        )
    return _OWNER_PREFIX + match["owner"]


def remote_path(target: TargetFile) -> str:
    """Where a target lies in the repository: under its hash, so that no cache serves an old one for it."""
    folder, slash, name = target.path.rpartition("/")
    return f"targets/{folder}{slash}{sha256_of(target)}.{name}"


def sha256_of(target: TargetFile) -> str:
    """The digest that its role signed.

    Raises:
        TrustError: bad_metadata: the role signed another kind of digest only.
    """
    digest = target.hashes.get("sha256")
    if digest is None or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise refuse(Refusal.BAD_METADATA, f"target {target.path} has no SHA-256")
    return digest


def read_document(content: bytes) -> RolloutDocument:
    """Parse the verified rollout document.

    Raises:
        TrustError: bad_metadata.
    """
    try:
        return parse_rollouts(content)
    except RolloutError as error:
        raise refuse(Refusal.BAD_METADATA, str(error)) from error


def read_manifest(content: bytes, rollout: Rollout) -> ReleaseManifest:
    """Parse the verified manifest of a rollout; it must be what its path says, and of the device's model.

    Raises:
        TrustError: bad_metadata.
    """
    try:
        manifest = parse_manifest(content)
    except ManifestError as error:
        raise refuse(Refusal.BAD_METADATA, str(error)) from error
    if rollout.target != f"models/{manifest.owner}/{manifest.name}/{manifest.version}.json":
        raise refuse(
            Refusal.BAD_METADATA,
            f"{rollout.target} holds {manifest.owner}/{manifest.name} {manifest.version}",
        )
    if manifest.name != rollout.model:
        raise refuse(
            Refusal.BAD_METADATA,
            f"rollout {rollout.id} for {rollout.model} names a release of {manifest.name}",
        )
    return manifest


def agreed_target(rollout: Rollout, role: str, target: TargetFile | None) -> TargetFile:
    """The release, when the owner's role signed the path and digest that the rollout names.

    Raises:
        TrustError: bad_metadata: the owner did not sign that path. hash_mismatch: he signed another.
    """
    if target is None:
        raise refuse(
            Refusal.BAD_METADATA,
            f"rollout {rollout.id} names {rollout.target}, which role {role} did not sign",
        )
    if sha256_of(target) != rollout.sha256:
        raise refuse(
            Refusal.HASH_MISMATCH,
            f"rollout {rollout.id} names {rollout.target} with SHA-256 {rollout.sha256[:12]}, "
            f"but role {role} signed {sha256_of(target)[:12]}",
        )
    return target
