"""How an update ended and why: the stable words of records and reports. Pure.

Words are added, never changed: fleets count them, and an older agent may read a newer one's record.
"""

from __future__ import annotations

from enum import Enum


class Result(str, Enum):
    """How an update ended; every update ends in exactly one."""

    SUCCESS = "success"  # confirmed on live frames
    FAILED_NO_CHANGE = "failed_no_change"  # the candidate never answered a frame
    FAILED_ROLLED_BACK = "failed_rolled_back"  # the model of before serves again
    FAILED_UNABLE_TO_ROLLBACK = "failed_unable_to_rollback"  # another model serves, or none
    REJECTED = "rejected"  # not applicable to this box, or not allowed; no failure
    SUPERSEDED = "superseded"  # a newer offer came first
    ABORTED = "aborted"  # an operator stopped it


class Cause(str, Enum):
    """Why an update did not end in success."""

    LOAD_FAIL = "load_fail"
    PREFLIGHT_GOLDEN = "preflight_golden"
    PREFLIGHT_BUDGET = "preflight_budget"
    CRASH_LOOP = "crash_loop"
    WATCHDOG = "watchdog"
    OOM = "oom"
    ERROR_RATE = "error_rate"
    LATENCY_P95 = "latency_p95"
    ESCALATION_RATE = "escalation_rate"
    DISAGREEMENT = "disagreement"
    OUTPUT_DRIFT = "output_drift"  # NaN, or the same answer to everything
    CONNECTIVITY_LOST = "connectivity_lost"
    IO_ERROR = "io_error"
    BASE_MISMATCH = "base_mismatch"
    HASH_MISMATCH = "hash_mismatch"
    NO_SPACE = "no_space"
    EXPIRED = "expired"
    ROLLBACK_ATTACK = "rollback_attack"
    BAD_SIGNATURE = "bad_signature"
    BAD_METADATA = "bad_metadata"
    BLOB_MISSING = "blob_missing"  # signed, and nowhere to be had
    TIME_UNTRUSTED = "time_untrusted"
    WRONG_DEVICE = "wrong_device"
    SUPERSEDED = "superseded"
    OPERATOR_ABORT = "operator_abort"
    TRIAL_TIMEOUT = "trial_timeout"
    STATE_LOST = "state_lost"
    TRANSITION_BUDGET = "transition_budget"
    LABELS_CHANGED = "labels_changed"  # of a notice: the update goes on


# Faults of the road, the disk or a box short of memory, not of the release: the same offer may be tried
# again, within bounds. A candidate that ran out of memory itself is on the blacklist, which counts first.
RETRYABLE = frozenset({Cause.CONNECTIVITY_LOST, Cause.IO_ERROR, Cause.NO_SPACE, Cause.OOM})
