"""When a row of the machine's table applies: predicates of a record and an event, by their names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import InternalError
from vedette.update.causes import RETRYABLE, Cause, Result
from vedette.update.record import FileProgress, Mark, Report, Rung, UpdateRecord

if TYPE_CHECKING:
    from vedette.update import events as ev

TRIES = 3
MAX_CYCLES = 3
MAX_FETCH_ROUNDS = 30
# After MAX_CYCLES tries at the looks that come anyway, one in so long: about seven on the first day.
FIRST_REST_S = 3600.0
MAX_REST_S = 6 * 3600.0


def always(_record: UpdateRecord, _event: ev.Event) -> bool:
    """No condition; in the diagram nothing is written."""
    return True


def old_news(record: UpdateRecord, event: ev.Announced) -> bool:
    """The announced document was acted on already."""
    return event.mark is not None and event.mark <= record.seen


def lower_and_new_to_us(record: UpdateRecord, event: ev.Announced | ev.Offered) -> bool:
    """A document older than one that was acted on, and nobody was told yet."""
    return event.mark is not None and event.mark < record.seen and lower_word(event) not in record.noticed


def lower(record: UpdateRecord, event: ev.Offered) -> bool:
    """A document older than one that was acted on."""
    return event.mark < record.seen


def blacklisted(record: UpdateRecord, event: ev.Offered) -> bool:
    """It failed here, and no other rollout named it anew since (casebook 37).

    The rollout must differ: the document's counter also grows when somebody edits another rollout, or signs
    the same again before it expires.
    """
    return any(
        entry.sha256 == event.sha256 and (event.mark <= entry.offered or event.rollout == entry.rollout)
        for entry in record.blacklist
    )


def active_already(record: UpdateRecord, event: ev.Offered) -> bool:
    """It is the model that serves."""
    return record.active is not None and record.active.sha256 == event.sha256


def finished_already(record: UpdateRecord, event: ev.Offered) -> bool:
    """This rollout of it ended here, and nothing changed that makes another try sensible."""
    last = record.last
    if last is None or (last.sha256, last.rollout) != (event.sha256, event.rollout):
        return False
    return last.result not in {Result.SUCCESS, Result.SUPERSEDED} and _must_rest(record, last, event)


def _must_rest(record: UpdateRecord, last: Report, event: ev.Offered) -> bool:
    """Whether what did not succeed is not to be tried again, or not yet."""
    if last.result is Result.REJECTED:  # whether it fits is cheap to ask again, for another document
        return last.offered == event.mark and not event.asked
    if not may_come_again(last):
        return True
    if last.cause is Cause.NO_SPACE and event.free_bytes < record.space_wanted_bytes:
        return True
    if event.asked or event.mark > last.offered:
        return False
    return event.rested_s < rest_s(record.cycles)


def may_come_again(last: Report) -> bool:
    """A fault of the road, the disk or a box short of memory: the same offer may be tried again."""
    return last.undelivered or last.cause in RETRYABLE


def rest_s(cycles: int) -> float:
    """How long an offer rests that failed so often for a fault that is not its own, monotonic."""
    if cycles < MAX_CYCLES:
        return 0.0
    return float(min(FIRST_REST_S * 2.0 ** min(cycles - MAX_CYCLES, 16), MAX_REST_S))


def downgrade(record: UpdateRecord, event: ev.Offered) -> bool:
    """Lower than the highest confirmed release, and no return to it is meant."""
    return event.counter < record.release_floor and event.rollback_of is None


def return_of_others(record: UpdateRecord, event: ev.Offered) -> bool:
    """A return from a release that this box does not run."""
    below = event.counter < record.release_floor
    return below and (record.active is None or record.active.counter != event.rollback_of)


def said_already(record: UpdateRecord, event: ev.PlanRefused) -> bool:
    """The last report said just this of this candidate."""
    last = record.last
    candidate = record.candidate
    return (
        last is not None
        and candidate is not None
        and (last.sha256, last.rollout, last.cause) == (candidate.sha256, candidate.rollout, event.cause)
    )


def same_release(record: UpdateRecord, event: ev.Offered) -> bool:
    """The document changed, what it offers this box did not."""
    candidate = record.candidate
    return (
        candidate is not None
        and candidate.sha256 == event.sha256
        and candidate.manifest_sha256 == event.manifest_sha256
    )


def no_space(_record: UpdateRecord, event: ev.PlanRefused) -> bool:
    """The disk is too full; anything else means that it does not fit this box."""
    return event.cause is Cause.NO_SPACE


def unnoticed(record: UpdateRecord, event: ev.TrustRefused) -> bool:
    """Nobody was told of this refusal since trust was last good."""
    return refusal_word(event) not in record.noticed


def rounds_left(record: UpdateRecord, event: ev.FetchStalled) -> bool:
    """It may be tried again, by count and by bytes."""
    moved = record.bytes_fetched + event.fetched_bytes
    return record.fetch_rounds < MAX_FETCH_ROUNDS and moved < record.bytes_limit


def may_fetch_again(record: UpdateRecord, event: ev.PatchesBad) -> bool:
    """No file failed twice; a damaged full blob is fetched once more."""
    return all(progress.attempts == 0 for progress in named_files(record, event.files)) and _bytes_left(
        record
    )


def full_is_left(record: UpdateRecord, event: ev.FetchLost | ev.ApplyFailed | ev.OutputsBad) -> bool:
    """Every failed file was a delta or a copy, so its full encoding is still to try."""
    untried = all(progress.encoding != progress.full for progress in named_files(record, event.files))
    return untried and _bytes_left(record)


def preflights_left(record: UpdateRecord, _event: ev.Event) -> bool:
    """The agent did not die too often with the candidate loaded before the switch."""
    return record.preflight_tries < TRIES


def with_shadow(record: UpdateRecord, _event: ev.Event) -> bool:
    """The rollout asks for a shadow run."""
    return record.candidate is not None and record.candidate.shadow


def wanted(_record: UpdateRecord, event: ev.Go) -> bool:
    """The operator did not withdraw it at the last moment."""
    return event.wanted


def tries_left(record: UpdateRecord, _event: ev.Event) -> bool:
    """The candidate may be loaded once more."""
    return record.tries_left > 0


def rungs_left(record: UpdateRecord, _event: ev.Event) -> bool:
    """There are other models to fall back to."""
    return record.rung < Rung.FACTORY


def untouched(record: UpdateRecord, _event: ev.Event) -> bool:
    """It is the model of before that serves, not one further down."""
    return record.rung is Rung.ACTIVE


def with_candidate(record: UpdateRecord, _event: ev.Event) -> bool:
    """An update was under way."""
    return record.candidate is not None


def with_queue(record: UpdateRecord, _event: ev.Event) -> bool:
    """A newer offer came meanwhile."""
    return record.queued is not None


def succeeded(record: UpdateRecord, _event: ev.Event) -> bool:
    """The last update was confirmed."""
    report = record.report or record.last
    return report is not None and report.result is Result.SUCCESS


def lower_word(event: ev.Announced | ev.Offered) -> str:
    """The word under which a notice of an old document is remembered."""
    mark = event.mark or Mark()
    return f"lower {mark.epoch}.{mark.counter}"


def refusal_word(event: ev.TrustRefused) -> str:
    """The word under which a notice of a refusal is remembered."""
    return f"trust {event.cause.value}"


def named_files(record: UpdateRecord, files: tuple[int, ...]) -> tuple[FileProgress, ...]:
    """The files of an event.

    Raises:
        InternalError: None, or one that the update does not have.
    """
    if not files or not all(0 <= index < len(record.files) for index in files):
        raise InternalError(f"files {files} of an update of {len(record.files)} files")
    return tuple(record.files[index] for index in files)


def _bytes_left(record: UpdateRecord) -> bool:
    return record.bytes_fetched < record.bytes_limit
