"""An update repository in memory that implements the fetch port, and may be mutated into any attack."""

from __future__ import annotations

import copy
import hashlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from vedette.errors import NotFoundError
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.wire.release import (
    Codec,
    Encoding,
    EncodingKind,
    ReleaseFile,
    ReleaseManifest,
    ReleaseNeeds,
    build_manifest,
)
from vedette.wire.rollout import BUCKETS, Rollout, RolloutDocument, build_rollouts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.trust.offer import MetadataSource

NOW = datetime(2027, 6, 1, 12, tzinfo=timezone.utc)
BUILD_UTC_S = int((NOW - timedelta(days=100)).timestamp())
DEVICE = Device("cam-7", "traffic", {"class": "orin-nano"})
OWNER_ROLE = "models-acme"
LIFETIME_DAYS = {"root": 365, "timestamp": 3, "snapshot": 14, "targets": 90, "rollouts": 7, OWNER_ROLE: 60}


class FixedClock:
    """A wall clock that says what a test wants."""

    def __init__(self, now: datetime = NOW, *, synchronised: bool | None = True) -> None:
        self.now = now
        self.sync = synchronised

    def utc_s(self) -> float:
        return self.now.timestamp()

    def synchronised(self) -> bool | None:
        return self.sync


class RepositorySimulator:
    """Publishes into `files`, by path; roles may be edited before `publish`, files after."""

    def __init__(self, now: datetime = NOW, lifetime_days: dict[str, int] = LIFETIME_DAYS) -> None:
        self.now = now
        self.lifetime_days = lifetime_days
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.rollouts: list[Rollout] = []
        self.counter: int | None = None
        self.signers = {
            role: [CryptoSigner.generate_ed25519() for _ in range(3 if role == "root" else 1)]
            for role in LIFETIME_DAYS
        }
        self.root = Root(consistent_snapshot=True)
        for role in ("root", "timestamp", "snapshot", "targets"):
            for signer in self.signers[role]:
                self.root.add_key(signer.public_key, role)
        self.root.roles["root"].threshold = 2
        self.targets = Targets(delegations=Delegations({}, {}))
        self.delegated = {role: Targets() for role in ("rollouts", OWNER_ROLE)}
        self.delegate("rollouts", ["rollouts.json"])
        self.delegate(OWNER_ROLE, ["models/acme/*/*"])
        for signed in (self.root, self.targets, *self.delegated.values()):
            signed.version = 0  # publishing counts up
        self.snapshot_version = self.timestamp_version = 0
        self.issued: object = "now"
        self.publish_root()
        self.bootstrap = self.files["metadata/1.root.json"]

    def delegate(self, role: str, paths: list[str], *, by: str = "targets") -> None:
        """Name a role, in place of what was delegated to it before."""
        delegator = self.targets if by == "targets" else self.delegated[by]
        delegator.delegations = delegator.delegations or Delegations({}, {})
        assert delegator.delegations.roles is not None
        delegator.delegations.roles[role] = DelegatedRole(role, [], 1, terminating=True, paths=paths)
        delegator.add_key(self.signers[role][0].public_key, role)

    def release(self, version: str, *, counter: int = 1, model: str = "traffic") -> Rollout:
        """Sign a release and roll it out to everybody; takes effect with `publish`."""
        blob = f"weights of {model} {version}".encode() * 1000
        sha256 = hashlib.sha256(blob).hexdigest()
        self.blobs[sha256] = blob
        full = Encoding(EncodingKind.FULL, Codec.RAW, sha256, len(blob))
        needs = ReleaseNeeds("onnx", ">=1.18", (13, 21), (), (), 64, ">=0.1")
        files = (ReleaseFile("model.onnx", sha256, len(blob), (full,)),)
        manifest = ReleaseManifest(1, "acme", model, version, counter, sha256, files, needs)
        return self.roll_out(f"models/acme/{model}/{version}.json", build_manifest(manifest))

    def roll_out(self, path: str, content: bytes, **fields: Any) -> Rollout:  # noqa: ANN401 - any field
        target = self.add_target(OWNER_ROLE, path, content)
        model = path.split("/")[2]
        rollout = Rollout(f"r{len(self.rollouts)}", model, path, target.hashes["sha256"], "salt", BUCKETS)
        self.rollouts.append(msgspec.structs.replace(rollout, **fields))
        return self.rollouts[-1]

    def change(self, index: int, **fields: Any) -> None:  # noqa: ANN401 - any field
        self.rollouts[index] = msgspec.structs.replace(self.rollouts[index], **fields)

    def add_target(self, role: str, path: str, content: bytes) -> TargetFile:
        target = TargetFile.from_data(path, content, ["sha256"])
        self.delegated[role].targets[path] = target
        folder, _, name = path.rpartition("/")
        stored = "/".join(filter(None, ("targets", folder, f"{target.hashes['sha256']}.{name}")))
        self.files[stored] = content
        return target

    def publish_root(self, *, old: int | None = None, new: int | None = None) -> None:
        """The next root, signed by `old` keys of the one before and `new` of its own; all by default."""
        self.root.version += 1
        self.root.expires = self.expiry("root")
        metadata = Metadata(self.root)
        keyids = set(self.root.roles["root"].keyids)
        own = [signer for signer in self.signers["root"] if signer.public_key.keyid in keyids]
        retired = [signer for signer in self.signers["root"] if signer.public_key.keyid not in keyids]
        for signer in own[:new] + retired[:old]:
            metadata.sign(signer, append=True)
        self.files[f"metadata/{self.root.version}.root.json"] = metadata.to_bytes()

    def rotate(self, *roles: str) -> None:
        """New keys for top-level roles, under a new root that the old root keys sign."""
        for role in roles:
            before = list(self.root.roles[role].keyids)
            for keyid in before:
                self.root.revoke_key(keyid, role)
            fresh = [CryptoSigner.generate_ed25519() for _ in before]
            for signer in fresh:
                self.root.add_key(signer.public_key, role)
            self.signers[role] = fresh + (self.signers[role] if role == "root" else [])
        self.publish_root()

    def publish(self) -> None:
        """New versions of everything below the root."""
        rollouts = self.delegated["rollouts"]
        counter = rollouts.version + 1 if self.counter is None else self.counter
        document = RolloutDocument(1, counter, int(self.now.timestamp()), tuple(self.rollouts))
        self.add_target("rollouts", "rollouts.json", build_rollouts(document))
        snapshot = Snapshot(version=self.next_snapshot_version(), expires=self.expiry("snapshot"))
        for role, signed in {"targets": self.targets, **self.delegated}.items():
            signed.version += 1
            signed.expires = self.expiry(role)
            content = self.sign(role, signed)
            self.files[f"metadata/{signed.version}.{role}.json"] = content
            snapshot.meta[f"{role}.json"] = MetaFile.from_data(signed.version, content, ["sha256"])
        self.write_snapshot(snapshot)

    def next_snapshot_version(self) -> int:
        self.snapshot_version += 1
        return self.snapshot_version

    def write_snapshot(self, snapshot: Snapshot) -> None:
        content = self.sign("snapshot", snapshot)
        self.files[f"metadata/{snapshot.version}.snapshot.json"] = content
        self.write_timestamp(MetaFile.from_data(snapshot.version, content, ["sha256"]))

    def write_timestamp(self, snapshot: MetaFile) -> None:
        self.timestamp_version += 1
        issued = f"{self.now:%Y-%m-%dT%H:%M:%SZ}" if self.issued == "now" else self.issued
        timestamp = Timestamp(
            version=self.timestamp_version,
            expires=self.expiry("timestamp"),
            snapshot_meta=snapshot,
            unrecognized_fields={} if issued is None else {"issued": issued},
        )
        self.files["metadata/timestamp.json"] = self.sign("timestamp", timestamp)

    def current_snapshot(self) -> Snapshot:
        """The published snapshot, to edit and write again."""
        content = self.files[f"metadata/{self.snapshot_version}.snapshot.json"]
        snapshot = Metadata.from_bytes(content).signed
        assert isinstance(snapshot, Snapshot)
        snapshot.version = self.next_snapshot_version()
        return snapshot

    def sign(self, role: str, signed: Any) -> bytes:  # noqa: ANN401 - any role's payload
        metadata = Metadata(signed)
        for signer in self.signers[role]:
            metadata.sign(signer, append=True)
        return metadata.to_bytes()

    def expiry(self, role: str) -> datetime:
        return self.now + timedelta(days=self.lifetime_days.get(role, 60))

    def copy(self) -> RepositorySimulator:
        """What somebody who recorded the repository can serve later."""
        return copy.deepcopy(self)

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        self.requests.append(path)
        if path not in self.files:
            raise NotFoundError(f"{path}: not there")
        content = self.files[path]
        for start in range(0, min(len(content), max_bytes + 1), 4096):
            yield content[start : start + 4096]

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        if sha256 not in self.blobs:
            raise NotFoundError(f"blobs/{sha256}: not there")
        for offset in range(start, end, 4096):
            yield self.blobs[sha256][offset : min(offset + 4096, end)]


def trust_in(
    state: Path,
    source: MetadataSource,
    bootstrap: bytes,
    *,
    clock: FixedClock | None = None,
    device: Device = DEVICE,
    accept_older: bool = False,
) -> TufTrust:
    """A device's trust, as after a restart."""
    return TufTrust(
        source,
        state,
        bootstrap=bootstrap,
        build_utc_s=BUILD_UTC_S,
        device=device,
        clock=clock or FixedClock(),
        accept_older=accept_older,
    )
