"""Which time expiry is judged by, on a box whose clock may be anything. Pure.

The floor is the newest signing time that was verified, at least the time of the build. It never rises from
the raw clock: one boot with a clock in the future would make every later update look expired.

While the clock is in doubt, freshness rests on numbers: versions and the rollout counter only rise, and an
update starts on a higher counter alone.
"""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from vedette.trust.refusal import Refusal, refuse

DAY_S = 86_400
YEAR_S = 365 * DAY_S
MAX_AHEAD_S = 10 * YEAR_S
# Clocks of signers and devices differ a little; a day is no sign of a clock that was never set.
TOLERANCE_S = DAY_S
ISSUED_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class Judgement(msgspec.Struct, frozen=True):
    """Expiry is judged at `reference_utc_s`; `doubt` says why the clock is not trusted, empty when it is."""

    reference_utc_s: float
    doubt: str = ""


def judge_clock(now_utc_s: float, floor_utc_s: float, *, synchronised: bool | None) -> Judgement:
    """Take the clock, or where it cannot be right the floor; `synchronised` None is not known.

    What expired before the floor is known to be expired under any clock.
    """
    if now_utc_s < floor_utc_s - TOLERANCE_S:
        return Judgement(
            floor_utc_s, f"it says {_day(now_utc_s)}, before {_day(floor_utc_s)}, the newest signature"
        )
    if now_utc_s > floor_utc_s + MAX_AHEAD_S:
        return Judgement(floor_utc_s, f"it says {_day(now_utc_s)}, ten years after the newest signature")
    if synchronised is False:
        return Judgement(floor_utc_s, "it was not synchronised since the start")
    return Judgement(max(now_utc_s, floor_utc_s))


def parse_issued(issued: object, *, expires: datetime) -> int | None:
    """Signing time of a verified timestamp, seconds since 1970; None when it names none.

    Raises:
        TrustError: bad_metadata: no time of the form 2026-01-31T12:00:00Z, or one after its own expiry.
    """
    if issued is None:
        return None
    try:
        time = datetime.strptime(str(issued), ISSUED_FORMAT).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise refuse(Refusal.BAD_METADATA, f"timestamp: `issued` is {str(issued)[:40]!r}") from error
    if time > expires:
        raise refuse(
            Refusal.BAD_METADATA, f"timestamp: issued {issued}, after its expiry {expires:{ISSUED_FORMAT}}"
        )
    return int(time.timestamp())


def raised_floor(floor_utc_s: int, issued_utc_s: int | None, *, trusted_utc_s: float | None) -> int:
    """The floor after a verified signing time; `trusted_utc_s` is a clock beyond doubt, if there is one.

    A signature in that clock's future is the signer's mistake, and would poison the floor.
    """
    if issued_utc_s is None:
        return floor_utc_s
    if trusted_utc_s is not None and issued_utc_s > trusted_utc_s + TOLERANCE_S:
        return floor_utc_s
    return max(floor_utc_s, issued_utc_s)


def _day(utc_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(utc_s, timezone.utc):%Y-%m-%d}"
    except (OverflowError, ValueError, OSError):
        return f"{utc_s:.0f} s"
