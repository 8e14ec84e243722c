"""What can happen to an update: facts from its driver, which did the work. Pure data."""

from __future__ import annotations

import msgspec

from vedette.update.causes import Cause
from vedette.update.record import Baseline, FileProgress, Mark, ModelRef


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""


class Started(Event, frozen=True):
    """The agent started with this record; nothing serves yet."""


class Announced(Event, frozen=True):
    """A document is said to be there, or without a mark: it is time to look."""

    mark: Mark | None = None


class Offered(Event, frozen=True):
    """Trust has an offer for this box. `free_bytes` may be used beside the reserve.

    `asked`: somebody at the box wants it now. `rested_s` is monotonic time since the last result, or since
    the agent started. `name` is what people call the release.
    """

    mark: Mark
    rollout: str
    sha256: str
    counter: int
    manifest_sha256: str
    free_bytes: int
    shadow: bool = False
    rollback_of: int | None = None
    asked: bool = False
    rested_s: float = 0.0
    name: str = ""


class NothingOffered(Event, frozen=True):
    """No rollout concerns this box."""


class TrustRefused(Event, frozen=True):
    """Signed metadata was refused."""

    cause: Cause
    detail: str = ""


class TrustAway(Event, frozen=True):
    """The repository cannot be reached."""


class Planned(Event, frozen=True):
    """There is a plan. No more than `bytes_limit` may be fetched for it, all attempts together."""

    files: tuple[FileProgress, ...]
    bytes_limit: int


class PlanDeferred(Event, frozen=True):
    """Not now; look again after `wait_s`, monotonic."""

    reason: str
    wait_s: float


class PlanRefused(Event, frozen=True):
    """It does not fit this box. `space_wanted_bytes`: how much must be free, when that is the cause."""

    cause: Cause
    detail: str = ""
    space_wanted_bytes: int = 0


class Fetched(Event, frozen=True):
    """Every blob that was asked for is there; `fetched_bytes` moved since the last event."""

    fetched_bytes: int = 0


class FetchStalled(Event, frozen=True):
    """The road broke; what came is kept."""

    fetched_bytes: int = 0
    retry_after_s: float | None = None
    detail: str = ""


class FetchLost(Event, frozen=True):
    """Blobs of these files will not come: they are gone, or grew past their signed size."""

    files: tuple[int, ...]
    cause: Cause
    fetched_bytes: int = 0
    detail: str = ""


class PatchesGood(Event, frozen=True):
    """Every blob has the hash that the manifest names."""


class PatchesBad(Event, frozen=True):
    """Blobs of these files have another hash; the others are good."""

    files: tuple[int, ...]
    detail: str = ""


class Applied(Event, frozen=True):
    """Every file was made."""


class ApplyFailed(Event, frozen=True):
    """These files could not be made; the others were."""

    files: tuple[int, ...]
    cause: Cause


class OutputsGood(Event, frozen=True):
    """Every file has its signed hash and the bundle is in the store."""


class OutputsBad(Event, frozen=True):
    """These files came out wrong, or are missing; the others are good."""

    files: tuple[int, ...]


class WorkFailed(Event, frozen=True):
    """The work cannot go on whatever the encoding, as on a full disk."""

    cause: Cause
    detail: str = ""
    space_wanted_bytes: int = 0


class PreflightPassed(Event, frozen=True):
    """The candidate loads here, and answers its golden inputs in budget."""


class PreflightFailed(Event, frozen=True):
    """It does not."""

    cause: Cause
    detail: str = ""


class ShadowPassed(Event, frozen=True):
    """The shadow's window closed well."""


class ShadowFailed(Event, frozen=True):
    """The shadow broke a limit."""

    cause: Cause
    detail: str = ""


class Go(Event, frozen=True):
    """Window and veto allow the switch. `wanted`: the newest verified document still offers it."""

    wanted: bool
    baseline: Baseline | None = None


class Switched(Event, frozen=True):
    """The candidate answers frames."""

    boot_id: str


class TrialProgressed(Event, frozen=True):
    """Another `used_s` of the trial went by; sent once in minutes, since each is a durable write."""

    used_s: float


class TrialPassed(Event, frozen=True):
    """The health window closed well."""


class TrialFailed(Event, frozen=True):
    """The candidate broke a limit on live frames."""

    cause: Cause
    detail: str = ""


class CandidateDied(Event, frozen=True):
    """The candidate's worker crashed, hung or did not load; the model of before answers meanwhile."""

    cause: Cause
    detail: str = ""


class MarkedConfirmed(Event, frozen=True):
    """The marker CONFIRMED is durable."""


class ProvenServes(Event, frozen=True):
    """A proven model answers: the one that was asked for last.

    `next_best` is the confirmed one to fall back to after it, where it was found by searching the store.
    """

    sha256: str
    counter: int
    next_best: ModelRef | None = None


class ProvenBad(Event, frozen=True):
    """The proven model that serves, or was to, is damaged, missing or does not load."""

    cause: Cause
    detail: str = ""


class ReportStored(Event, frozen=True):
    """The result is durable in the outbox."""


class ReportUnstored(Event, frozen=True):
    """The outbox could not take it."""


class Aborted(Event, frozen=True):
    """Somebody at the box or in the fleet wants the update stopped."""


class Withdrawn(Event, frozen=True):
    """A verified document withdrew the rollout."""


class Exhausted(Event, frozen=True):
    """The update used up its transitions. The machine tells itself; drivers do not send it."""


EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
