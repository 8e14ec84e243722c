"""Samples for the next model, kept on the disk within bounds: what the large model said of which picture.

Audits, which speak for all frames, and what was unsure, which teaches most, go into shards of their own:
where room is short the oldest unsure ones go first, and audits last. A shard that is being written is
`*.tar.part`; whole ones are `*.tar` and may be copied away, or deleted, by anybody at any time.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.escalate.training_shard import END, pack_sample, whole_bytes
from vedette.fsops import DurableFile, Point

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.config.escalation import TrainingConfig

SHARDS_EACH = 8
SHARD_MIN_BYTES, SHARD_MAX_BYTES = 64 << 10, 128 << 20
KINDS = ("unsure", "audit")
_NAME = re.compile(r"(unsure|audit)-(\d{6,})\.tar(\.part)?")


class LocalAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model on the box said; `logits` by class index, boxes in pixels of the frame."""

    model: str
    version: str
    model_sha256: str
    label: str | None = None
    logits: tuple[float, ...] = ()
    boxes: tuple[tuple[str, float, tuple[float, float, float, float]], ...] = ()


class CloudSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the large model said: `label` in the bundle's words or None, `soft` in its own.

    Boxes are in pixels of this sample's picture; their score is None where none was given.
    """

    provider: str
    model: str
    label: str | None = None
    said: str | None = None
    soft: dict[str, float] = {}
    boxes: tuple[tuple[str, float | None, tuple[float, float, float, float]], ...] = ()
    took_ms: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """`ID.json`.

    `inclusion` is the probability with which an audit was drawn; null where the frame was chosen for its
    doubt: nobody knows how likely that was, so no estimate may weigh it. `split` depends on the scene alone,
    so that near-duplicates are never on both sides. `transforms` say what was done to the frame before it was
    sent: frame = sent / scale + corner.
    """

    v: int = 1
    id: str
    utc_s: float
    device: str
    site: str
    camera: str
    seq: int
    reason: str
    inclusion: float | None
    uncertainty: float
    setting: int
    task: str
    scene: str
    split: str
    sha256: str
    width: int
    height: int
    transforms: dict[str, float | bool]
    consent: tuple[str, ...]
    local: LocalAnswer
    cloud: CloudSaid


class TrainingSet:
    """The shards of one folder; one thread owns it. A disk that refuses costs samples and nothing else."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        self._folder = folder
        self._max_bytes = config.disk
        self._shard_bytes = min(SHARD_MAX_BYTES, max(SHARD_MIN_BYTES, config.disk // SHARDS_EACH))
        self._open: dict[str, tuple[Path, DurableFile]] = {}
        self._sizes: dict[Path, int] = {}
        self._unsynced: set[str] = set()
        self._next_number = 1
        self.samples = 0
        self.refused = 0
        self.fault = ""
        self._adopt()

    @property
    def size_bytes(self) -> int:
        """Of all shards."""
        return sum(self._sizes.values())

    def add(self, sample: Sample, jpeg: bytes) -> bool:
        """Keep a sample; False where it has no room or the disk refuses, which is counted."""
        kind = "audit" if sample.reason == "audit" else "unsure"
        content = pack_sample(
            sample.id, {"jpg": jpeg, "json": msgspec.json.encode(sample)}, int(max(0, sample.utc_s))
        )
        try:
            if not self._make_room(kind, len(content) + len(END)):
                self.refused += 1
                return False
            path, file = self._open.get(kind) or self._begin(kind)
            file.write_at(content, self._sizes[path])
            self._sizes[path] += len(content)
            self._unsynced.add(kind)
            if self._sizes[path] >= self._shard_bytes:
                self._finish(kind)
        except OSError as error:
            self.refused += 1
            self.fault = f"no training samples can be kept: {error.strerror}"
            self._abandon(kind)
            return False
        self.samples += 1
        self.fault = ""
        return True

    def sync(self) -> None:
        """Make what was added durable."""
        for kind in tuple(self._unsynced):
            self._unsynced.discard(kind)
            if kind not in self._open:
                continue
            try:
                self._open[kind][1].sync(data_only=True)
            except OSError as error:
                self.fault = f"training samples may be lost: {error.strerror}"
                self._abandon(kind)

    def close(self) -> None:
        """End the shards that are open: they are whole then."""
        for kind in tuple(self._open):
            self._finish_quietly(kind)

    def _finish_quietly(self, kind: str) -> None:
        try:
            self._finish(kind)
        except OSError as error:
            self.fault = f"a shard cannot be ended: {error.strerror}"
            self._abandon(kind)

    def _begin(self, kind: str) -> tuple[Path, DurableFile]:
        path = self._folder / f"{kind}-{self._next_number:06d}.tar.part"
        self._next_number += 1
        file = DurableFile.create(path, Point.SAMPLES)
        self._sizes[path] = 0
        self._open[kind] = (path, file)
        fsops.sync_folder(self._folder, Point.SAMPLES)
        return path, file

    def _finish(self, kind: str) -> None:
        path, file = self._open[kind]
        self._close_shard(path, file, self._sizes[path])
        del self._open[kind]
        self._unsynced.discard(kind)

    def _close_shard(self, path: Path, file: DurableFile, size_bytes: int) -> None:
        """Two empty blocks end a tar; the name without `.part` comes last."""
        file.truncate(size_bytes)
        file.write_at(END, size_bytes)
        file.sync()
        file.close()
        whole = path.with_suffix("")
        fsops.rename(path, whole, Point.SAMPLES)
        fsops.sync_folder(self._folder, Point.SAMPLES)
        self._sizes.pop(path, None)
        self._sizes[whole] = size_bytes + len(END)

    def _abandon(self, kind: str) -> None:
        """Its file is not written to any more; the next start ends it where it is whole."""
        found = self._open.pop(kind, None)
        if found is not None:
            found[1].close()

    def _make_room(self, kind: str, size_bytes: int) -> bool:
        """Delete the oldest shards that may make room for a sample of this kind."""
        while self.size_bytes + size_bytes > self._max_bytes:
            victim = self._oldest("unsure") or (self._oldest("audit") if kind == "audit" else None)
            if victim is None:
                return False
            open_kind = next((one for one, (path, _) in self._open.items() if path == victim), None)
            if open_kind is not None:
                self._abandon(open_kind)
            fsops.unlink(victim, Point.SAMPLES)
            self._sizes.pop(victim, None)
        return True

    def _oldest(self, kind: str) -> Path | None:
        return min(
            (path for path in self._sizes if path.name.startswith(f"{kind}-")),
            key=lambda path: path.name.split(".", maxsplit=1)[0],
            default=None,
        )

    def _adopt(self) -> None:
        """Count what is there; end shards whose writer was killed."""
        for path in sorted(self._folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            self._next_number = max(self._next_number, int(match[2]) + 1)
            if match[3] is None:
                self._sizes[path] = path.stat().st_size
            else:
                self._repair(path)

    def _repair(self, path: Path) -> None:
        whole, samples = whole_bytes(path.read_bytes())
        if not samples:
            fsops.unlink(path, Point.SAMPLES)
            return
        self._close_shard(path, DurableFile.open(path, Point.SAMPLES), whole)


def new_sample_id() -> str:
    """A name that no other sample has, on any box."""
    return secrets.token_hex(16)
