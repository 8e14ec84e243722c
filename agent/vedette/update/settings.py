"""What an operator may choose about updates on a box. Pure."""

from __future__ import annotations

import msgspec

from vedette.update.health import Policy
from vedette.update.plan import ClockWindow

HOUR_S = 3600.0


class UpdateSettings(msgspec.Struct, frozen=True):
    """Times are monotonic seconds.

    `poll_s` is how often the repository is looked at although nobody announced anything, `first_look_s` the
    interval in which the first look after a start falls at random. `window` is local time. The policies say
    what becomes of a candidate that too few frames judged.
    """

    poll_s: float = 6 * HOUR_S
    first_look_s: float = 60.0
    window: ClockWindow | None = None
    shadow_policy: Policy = Policy.ROLLBACK
    trial_policy: Policy = Policy.ROLLBACK
    load_timeout_s: float = 900.0
    preflight_timeout_s: float = 900.0
    apply_timeout_s: float = 4 * HOUR_S
