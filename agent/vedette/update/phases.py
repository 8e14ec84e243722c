"""The phases of an update and what is true of each, as a table. Pure.

`durable`: the record on disk names the phase before its work begins; of the others the disk knows nothing, so
that a power cut there leaves an idle box. `budgeted`: entering it counts against the transition budget.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Phase(str, Enum):
    """Where an update stands."""

    IDLE = "idle"
    TRUST = "trust"
    PLAN = "plan"
    DEFERRED = "deferred"
    FETCH = "fetch"
    VERIFY_PATCH = "verify_patch"
    APPLY = "apply"
    VERIFY_OUT = "verify_out"
    PREFLIGHT = "preflight"
    SHADOW = "shadow"
    READY = "ready"
    SWITCH = "switch"
    TRIAL = "trial"
    CONFIRM = "confirm"
    ROLLBACK = "rollback"
    SAFE = "safe"
    REPORT = "report"
    UNKNOWN = "unknown"  # the record is of a newer agent


class PhaseFacts(NamedTuple):
    """One row of the table of phases."""

    does: str
    durable: bool
    budgeted: bool


PHASES: dict[Phase, PhaseFacts] = {
    Phase.IDLE: PhaseFacts("waits for an announcement or the next poll", durable=False, budgeted=False),
    Phase.TRUST: PhaseFacts("refreshes signed metadata", durable=False, budgeted=False),
    Phase.PLAN: PhaseFacts(
        "chooses encodings, checks needs, space and window", durable=False, budgeted=False
    ),
    Phase.DEFERRED: PhaseFacts("waits for the window, for cooling, for load", durable=False, budgeted=False),
    Phase.FETCH: PhaseFacts("fetches blobs, resumably", durable=True, budgeted=True),
    Phase.VERIFY_PATCH: PhaseFacts("hashes blobs before they are decoded", durable=True, budgeted=True),
    Phase.APPLY: PhaseFacts("makes the files, in a limited child", durable=True, budgeted=True),
    Phase.VERIFY_OUT: PhaseFacts(
        "hashes the files, adopts the bundle into the store", durable=True, budgeted=True
    ),
    Phase.PREFLIGHT: PhaseFacts(
        "loads it in a limited child: golden inputs, budgets", durable=True, budgeted=True
    ),
    Phase.SHADOW: PhaseFacts("runs it on live frames, answering nobody", durable=True, budgeted=True),
    Phase.READY: PhaseFacts(
        "waits for the window and a last word of the operator", durable=True, budgeted=True
    ),
    Phase.SWITCH: PhaseFacts(
        "one record is the commit; loads it beside the old", durable=True, budgeted=True
    ),
    Phase.TRIAL: PhaseFacts("serves with it, against its own baseline", durable=True, budgeted=True),
    Phase.CONFIRM: PhaseFacts("writes the marker CONFIRMED", durable=True, budgeted=False),
    Phase.ROLLBACK: PhaseFacts(
        "serves the model of before, else an older proven one, else the factory's",
        durable=True,
        budgeted=False,
    ),
    Phase.SAFE: PhaseFacts(
        "no model is good: answers `unavailable`, updates go on", durable=False, budgeted=False
    ),
    Phase.REPORT: PhaseFacts("stores the result in the outbox", durable=True, budgeted=False),
    Phase.UNKNOWN: PhaseFacts("the record is of a newer agent", durable=True, budgeted=False),
}

HOME = (Phase.IDLE, Phase.SAFE)
WORKING = (Phase.FETCH, Phase.VERIFY_PATCH, Phase.APPLY, Phase.VERIFY_OUT)
# Durable, and the candidate never answered a frame.
STAGED = (*WORKING, Phase.PREFLIGHT, Phase.SHADOW, Phase.READY)
LIVE = (Phase.SWITCH, Phase.TRIAL)
# With HOME, the phases in which a proven model serves; its failure is answered without leaving them.
AWAY = (Phase.TRUST, Phase.PLAN, Phase.DEFERRED, *STAGED, Phase.REPORT)
