"""What the machine wants done, in the order given. Pure data.

Persist comes first wherever it comes: what follows must not happen before it is durable.
"""

from __future__ import annotations

import msgspec

from vedette.update.causes import Cause
from vedette.update.record import Mark, Report, UpdateRecord


class Effect(msgspec.Struct, frozen=True):
    """Something to do."""


class Persist(Effect, frozen=True):
    """Write the record durably; unless that worked, do nothing of what follows."""

    record: UpdateRecord


class RefreshTrust(Effect, frozen=True):
    """→ Offered, NothingOffered, TrustRefused or TrustAway."""


class MakePlan(Effect, frozen=True):
    """→ Planned, PlanDeferred or PlanRefused."""


class DiscardBlobs(Effect, frozen=True):
    """Delete what was staged for these files: blobs and half-made outputs."""

    files: tuple[int, ...]


class Fetch(Effect, frozen=True):
    """Fetch (file, encoding) each, resuming; at most `max_bytes` over the wire.

    → Fetched, FetchStalled, FetchLost or WorkFailed.
    """

    blobs: tuple[tuple[int, int], ...]
    max_bytes: int


class VerifyPatches(Effect, frozen=True):
    """Hash the blobs of (file, encoding) each → PatchesGood, PatchesBad or WorkFailed."""

    blobs: tuple[tuple[int, int], ...]


class Apply(Effect, frozen=True):
    """Make the files, (file, encoding) each; REUSE copies from the store.

    → Applied, ApplyFailed or WorkFailed.
    """

    blobs: tuple[tuple[int, int], ...]


class VerifyOutputs(Effect, frozen=True):
    """Hash these files, then adopt the whole bundle; one that is in the store already counts.

    → OutputsGood, OutputsBad or WorkFailed.
    """

    files: tuple[int, ...]


class Preflight(Effect, frozen=True):
    """Try a bundle in a limited child → PreflightPassed or PreflightFailed."""

    sha256: str


class StartShadow(Effect, frozen=True):
    """Run a bundle beside the serving one → ShadowPassed or ShadowFailed, in time."""

    sha256: str


class StopShadow(Effect, frozen=True):
    """End the shadow, if one runs."""


class AwaitGo(Effect, frozen=True):
    """→ Go, once window and veto allow it and the rollout is not paused."""


class Switch(Effect, frozen=True):
    """Serve with the candidate, the old one kept ready → Switched or CandidateDied."""

    sha256: str


class WatchTrial(Effect, frozen=True):
    """→ TrialPassed, TrialFailed or CandidateDied, and TrialProgressed now and then."""


class ServeActive(Effect, frozen=True):
    """Serve this proven bundle; if it serves already, a trial of it ends well → ProvenServes or ProvenBad."""

    sha256: str


class ServeConfirmed(Effect, frozen=True):
    """Serve the newest confirmed bundle of the store that loads, but none of these.

    → ProvenServes, or ProvenBad when there is none.
    """

    excluding: tuple[str, ...]


class ServeFactory(Effect, frozen=True):
    """Serve the factory's bundle → ProvenServes or ProvenBad."""


class AnswerUnavailable(Effect, frozen=True):
    """No model is good: say so to whoever asks for answers, until one serves."""


class MarkConfirmed(Effect, frozen=True):
    """Write the marker durably → MarkedConfirmed, or WorkFailed if it rotted. Done before is done."""

    sha256: str


class CollectGarbage(Effect, frozen=True):
    """Remove what is neither named here nor by a copy of the record; staging goes whole.

    Without `bundles` the store stays as it is.
    """

    keep: tuple[str, ...]
    bundles: bool = True


class StoreReport(Effect, frozen=True):
    """Put a result into the outbox, once for each (update_id, seq) → ReportStored or ReportUnstored."""

    report: Report


class StoreNotice(Effect, frozen=True):
    """Put something worth knowing into the outbox; nothing waits for it."""

    cause: Cause
    detail: str
    mark: Mark


class Schedule(Effect, frozen=True):
    """Look again after about this long, with jitter: Announced, or in FETCH and REPORT the effect again."""

    delay_s: float
    again: Effect | None = None


class AnswerAbort(Effect, frozen=True):
    """What to tell whoever wanted to abort."""

    answer: str
