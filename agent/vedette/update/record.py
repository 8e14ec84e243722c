"""The update record: pointer and phase of one model in one place, so that the two cannot disagree. Pure.

It is what `vedette.journal` keeps in two copies (which also holds its sequence number). `active` is always a
proven model: a candidate answers frames in SWITCH and TRIAL without being named there, and becomes `active`
only when it was confirmed. So a record, whenever power failed, says what may be served (invariants I1, I4).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from vedette.update.causes import Cause, Result
from vedette.update.phases import PHASES, Phase

SCHEMA = 1
REUSE = -1
MAX_BLACKLIST = 32
MAX_DETAIL_CHARS = 512


class Mark(NamedTuple):
    """A place in the order of rollout documents; counters compare within an epoch, epochs first."""

    epoch: int = 0
    counter: int = 0


_UNSEEN = Mark()


class Stage(IntEnum):
    """How far one file of the candidate is."""

    WANTED = 0
    FETCHED = 1
    CHECKED = 2  # its blob has the right hash, or none is needed
    MADE = 3
    PROVEN = 4


class FileProgress(msgspec.Struct, frozen=True, array_like=True):
    """One file, in the manifest's order; `encoding` and `full` index its encodings, REUSE is a copy.

    `attempts` counts encodings that failed it.
    """

    encoding: int
    full: int
    stage: Stage = Stage.WANTED
    attempts: int = 0


class ModelRef(msgspec.Struct, frozen=True):
    """A bundle in the store, or the factory's; `counter` is its release counter, 0 of the factory's."""

    sha256: str
    counter: int = 0


class Candidate(msgspec.Struct, frozen=True):
    """The release that an update is about; `name` is for people: name and version."""

    sha256: str
    counter: int
    manifest_sha256: str
    rollout: str
    offered: Mark
    shadow: bool = False
    rollback_of: int | None = None
    name: str = ""


class Blacklisted(msgspec.Struct, frozen=True):
    """A bundle that failed; another rollout with a higher counter must name it before it is tried again."""

    sha256: str
    offered: Mark
    rollout: str
    cause: Cause
    name: str = ""


class Baseline(msgspec.Struct, frozen=True):
    """The old model on this box in the window before the switch.

    `reached`: the update server could be reached then, so a trial is to show that it still can.
    """

    frames: int
    failed: int
    p95_ms: float | None
    constant_answers: bool = False
    reached: bool = False


class Report(msgspec.Struct, frozen=True):
    """One result; `(update_id, seq)` tells repetitions apart. `serving` is empty when no model is good.

    `undelivered`: what came was not what was signed, or did not come. Nobody signs for the road, so that says
    nothing of the release, and it is tried again.
    """

    update_id: str
    seq: int
    result: Result
    cause: Cause | None
    detail: str
    sha256: str
    counter: int
    rollout: str
    offered: Mark
    serving: str
    bytes_fetched: int
    undelivered: bool = False
    name: str = ""


class Rung(IntEnum):
    """The ladder of models to fall back to."""

    ACTIVE = 0
    CONFIRMED = 1  # any other confirmed bundle of the store, newest first
    FACTORY = 2
    NONE = 3


class UpdateRecord(msgspec.Struct, frozen=True):
    """Everything an update knows across a power cut.

    `seen` is the newest rollout document that was acted on, `release_floor` the highest confirmed release:
    neither ever goes back. `report` is the result that waits for the outbox, `last` the one before. Retries
    of one offer are counted in `cycles`; after `no_space` it waits for `space_wanted_bytes` to be free.
    `trial_used_s` is monotonic time in trials of this update, over reboots.
    """

    schema: int = SCHEMA
    phase: Phase = Phase.IDLE
    phase_seq: int = 0
    update_id: str = ""
    seen: Mark = Mark()
    release_floor: int = 0
    active: ModelRef | None = None
    previous: ModelRef | None = None
    candidate: Candidate | None = None
    rung: Rung = Rung.ACTIVE
    files: tuple[FileProgress, ...] = ()
    bytes_fetched: int = 0
    bytes_limit: int = 0
    fetch_rounds: int = 0
    preflight_tries: int = 0
    tries_left: int = 0
    trial_boot_id: str = ""
    trial_used_s: float = 0.0
    baseline: Baseline | None = None
    transitions_used: int = 0
    cause: Cause | None = None
    detail: str = ""
    report: Report | None = None
    last: Report | None = None
    cycles: int = 0
    space_wanted_bytes: int = 0
    queued: Mark | None = None
    noticed: tuple[str, ...] = ()
    blacklist: tuple[Blacklisted, ...] = ()


class _Remains(msgspec.Struct):
    """The fields of a newer record that are worth trying for."""

    seen: Mark = Mark()
    release_floor: int = 0
    active: ModelRef | None = None
    previous: ModelRef | None = None
    candidate: Candidate | None = None
    update_id: str = ""
    phase_seq: int = 0
    blacklist: msgspec.Raw = msgspec.Raw(b"[]")


def first_record(factory: ModelRef) -> UpdateRecord:
    """The record of a box that was never updated."""
    return UpdateRecord(active=factory)


def lost_record(*, seen: Mark = _UNSEEN, release_floor: int = 0) -> UpdateRecord:
    """The record after both copies were lost: the store is searched for a confirmed bundle (casebook 35).

    The counters come from the trust record, which is kept apart for this.
    """
    return UpdateRecord(
        seen=seen,
        release_floor=release_floor,
        rung=Rung.CONFIRMED,
        cause=Cause.STATE_LOST,
        phase=Phase.UNKNOWN,
    )


def salvage_record(payload: bytes) -> UpdateRecord | None:
    """What can be understood of the JSON of a newer agent's record; None when that is nothing."""
    try:
        remains = msgspec.json.decode(payload, type=_Remains)
    except msgspec.DecodeError:
        return None
    try:
        blacklist = msgspec.json.decode(remains.blacklist, type=tuple[Blacklisted, ...])
    except msgspec.DecodeError:  # a cause that this agent has no word for
        blacklist = ()
    known = {**msgspec.structs.asdict(remains), "blacklist": blacklist}
    return UpdateRecord(phase=Phase.UNKNOWN, cause=Cause.STATE_LOST, **known)


def on_disk(record: UpdateRecord) -> UpdateRecord:
    """What the disk is to say: a phase that is not durable leaves no trace of its update."""
    if PHASES[record.phase].durable:
        return record
    home = Phase.IDLE if record.active is not None else Phase.SAFE
    return forget_update(replace(record, phase=home))


def forget_update(record: UpdateRecord) -> UpdateRecord:
    """The record without its update; what was learned stays."""
    return replace(
        record,
        update_id="",
        candidate=None,
        files=(),
        bytes_fetched=0,
        bytes_limit=0,
        fetch_rounds=0,
        preflight_tries=0,
        tries_left=0,
        trial_boot_id="",
        trial_used_s=0.0,
        baseline=None,
        transitions_used=0,
        cause=None,
        detail="",
        report=None,
    )
