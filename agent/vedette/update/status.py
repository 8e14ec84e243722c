"""What `vedette-agent status` shows of updates. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.update.causes import Cause
from vedette.update.phases import Phase
from vedette.update.record import REUSE, Blacklisted, Candidate, ModelRef, Report, Stage, UpdateRecord
from vedette.update.watched import Watched

if TYPE_CHECKING:
    from vedette.wire.release import ReleaseManifest


class UpdateStatus(msgspec.Struct, frozen=True):
    """How updates stand; `next_look_s` is monotonic time from when this was made, None when none is due.

    `bytes_needed` is what the present plan fetches; `trouble` is what keeps the update from going on;
    `watched` is how a shadow or a trial stands, null in all other phases.
    """

    phase: Phase
    active: ModelRef | None = None
    previous: ModelRef | None = None
    candidate: Candidate | None = None
    cause: Cause | None = None
    detail: str = ""
    update_id: str = ""
    bytes_fetched: int = 0
    bytes_needed: int = 0
    tries_left: int = 0
    trial_used_s: float = 0.0
    watched: Watched | None = None
    last_result: Report | None = None
    blacklist: tuple[Blacklisted, ...] = ()
    next_look_s: float | None = None
    trouble: str = ""
    notes: tuple[str, ...] = ()


def describe(
    record: UpdateRecord,
    manifest: ReleaseManifest | None,
    *,
    moved_bytes: int,
    next_look_s: float | None,
    trouble: str,
    notes: tuple[str, ...],
    watched: Watched | None = None,
) -> UpdateStatus:
    """The status from the record and what is under way; `moved_bytes` is not in the record yet."""
    return UpdateStatus(
        phase=record.phase,
        active=record.active,
        previous=record.previous,
        candidate=record.candidate,
        cause=record.cause,
        detail=record.detail,
        update_id=record.update_id,
        bytes_fetched=record.bytes_fetched + moved_bytes,
        bytes_needed=_needed_bytes(record, manifest, moved_bytes),
        tries_left=record.tries_left,
        trial_used_s=record.trial_used_s,
        watched=watched,
        last_result=record.report or record.last,
        blacklist=record.blacklist,
        next_look_s=next_look_s,
        trouble=trouble,
        notes=notes,
    )


def _needed_bytes(record: UpdateRecord, manifest: ReleaseManifest | None, moved_bytes: int) -> int:
    """Each blob once, by content; never below what was fetched, since a damaged one is fetched again."""
    if manifest is None or not record.files:
        return 0
    sizes: dict[str, int] = {}
    for file, progress in zip(manifest.files, record.files, strict=False):
        if progress.encoding != REUSE:
            encoding = file.encodings[progress.encoding]
            sizes[encoding.sha256] = encoding.size_bytes
    fetched = record.bytes_fetched + moved_bytes
    if all(progress.stage > Stage.WANTED for progress in record.files):
        return max(fetched, 0)
    return max(sum(sizes.values()), fetched)
