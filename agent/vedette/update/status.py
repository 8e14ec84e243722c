"""What `vedette-agent status` shows of updates. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.update.causes import Cause
from vedette.update.phases import Phase
from vedette.update.record import REUSE, Blacklisted, Candidate, ModelRef, Report, Stage, UpdateRecord
from vedette.update.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vedette.wire.release import ReleaseManifest


class UpdateStatus(msgspec.Struct, frozen=True):
    """How updates stand; times are monotonic, from when this was made.

    `next_look_s` is null when no look is due, `next_try_s` while nothing waits for its time: a fetch that
    failed, for what stands in `cause` and `detail`, or an update that was put off. `looking_s` is how long a
    look has been going on, null while nobody looks. `bytes_needed` is what the present plan fetches,
    `bytes_fetched` how much of that is on the disk, also from before a restart. `trouble` is what keeps the
    update from going on; `watched` is how a shadow or a trial stands, null in all other phases;
    `changes` is what the candidate changes of the answers, for people.
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
    changes: str = ""
    last_result: Report | None = None
    blacklist: tuple[Blacklisted, ...] = ()
    next_look_s: float | None = None
    next_try_s: float | None = None
    looking_s: float | None = None
    trouble: str = ""
    notes: tuple[str, ...] = ()


class FetchState(NamedTuple):
    """A fetch under way: bytes that the record does not know of yet, what is here of each blob, the fault."""

    moved_bytes: int = 0
    held_bytes: Mapping[str, int] = MappingProxyType({})
    fault: str = ""


def describe(
    record: UpdateRecord,
    manifest: ReleaseManifest | None,
    *,
    fetching: FetchState,
    next_look_s: float | None,
    next_try_s: float | None,
    looking_s: float | None,
    trouble: str,
    notes: tuple[str, ...],
    watched: Watched | None = None,
    changes: str = "",
) -> UpdateStatus:
    """The status from the record and what is under way."""
    held_bytes, needed_bytes = _progress(record, manifest, fetching.held_bytes)
    failing = record.phase is Phase.FETCH and fetching.fault
    return UpdateStatus(
        phase=record.phase,
        active=record.active,
        previous=record.previous,
        candidate=record.candidate,
        cause=Cause.CONNECTIVITY_LOST if failing else record.cause,
        detail=fetching.fault if failing else record.detail,
        update_id=record.update_id,
        bytes_fetched=held_bytes if needed_bytes else record.bytes_fetched + fetching.moved_bytes,
        bytes_needed=needed_bytes,
        tries_left=record.tries_left,
        trial_used_s=record.trial_used_s,
        watched=watched,
        changes=changes,
        last_result=record.report or record.last,
        blacklist=record.blacklist,
        next_look_s=next_look_s,
        next_try_s=next_try_s,
        looking_s=looking_s,
        trouble=trouble,
        notes=notes,
    )


def _progress(
    record: UpdateRecord, manifest: ReleaseManifest | None, held_bytes: Mapping[str, int]
) -> tuple[int, int]:
    """Bytes here, and bytes in all, of the blobs of the plan; each once, by content."""
    if manifest is None:
        return 0, 0
    here: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for file, progress in zip(manifest.files, record.files, strict=False):
        if progress.encoding == REUSE:
            continue
        encoding = file.encodings[progress.encoding]
        held = encoding.size_bytes if progress.stage > Stage.WANTED else held_bytes.get(encoding.sha256, 0)
        sizes[encoding.sha256], here[encoding.sha256] = encoding.size_bytes, held
    return sum(here.values()), sum(sizes.values())
