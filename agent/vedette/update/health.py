"""Is the candidate as good as the model it replaces? Verdicts from counts of live frames. Pure.

A running window is looked at again and again, so a test of fixed confidence would cry wolf sooner or later.
Shares (failed frames, disagreement) *fail* by a mixture of Wald's sequential probability ratio tests (Wald
1945; Robbins 1970): under any share within the limit the mixed likelihood ratio is a supermartingale, so by
Ville's inequality it ever exceeds 1/ERROR with a chance of at most ERROR, however often one looks. They
*pass*, once the window may close, when Wilson's one-sided 95 % interval (Wilson 1927) lies within the limit;
it holds for few frames and shares near 0.

Latency is a ratio of two 95th percentiles. For log-normal times of spread s the logarithm of a sample's has
the standard error 2.11 s / sqrt(n); s is taken as 0.5, a coefficient of variation of 53 %. It fails beyond
the boundary of the iterated logarithm of Howard et al. (2021, eq. 2, one-sided), it passes within the bare
limit. Neighbouring frames resemble each other, so more than MAX_INDEPENDENT of them add nothing.

Everything is judged against the same box's own baseline, since cameras differ more than models do. Times are
monotonic.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import msgspec

from vedette.update.causes import Cause
from vedette.update.record import Baseline

if TYPE_CHECKING:
    from vedette.update.ports import WindowStats
    from vedette.wire.rollout import Guards, Window

ERROR = 0.01  # chance of ever failing a candidate that is within its limits, for each guard
MAX_DEATHS = 3
MIN_BASELINE_FRAMES = 30
MIN_LATENCY_FRAMES = 30
MIN_CONSTANT_FRAMES = 100
MAX_INDEPENDENT = 2000
# What a worker may take more once it has settled. A sound one takes next to nothing over hours; one that
# leaks kills nobody within the window, and the box within days.
MAX_GROWTH_BYTES = 32 << 20
# Contact is lost for good after the time that balena gives an update for it.
LOST_S = 900.0
LOST_TRIES = 5
_PASS_Z = 1.645
# Alternatives of the sequential test, as steps from the limit to 1: doubling, so that none is far from one.
_STEPS = (1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.9)
_QUANTILE_ERROR = 2.11 * 0.5


class Outcome(str, Enum):
    """What a window says so far."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Policy(str, Enum):
    """What becomes of a candidate that too few frames judged, when its time is up."""

    CONFIRM = "confirm"
    ROLLBACK = "rollback"
    HOLD = "hold"


class Verdict(msgspec.Struct, frozen=True):
    """An outcome; `cause` only of a failure. `unjudged` names guards that could not be looked at.

    `lacking` says in words what an inconclusive one waits for.
    """

    outcome: Outcome
    cause: Cause | None = None
    detail: str = ""
    unjudged: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


class Contact(msgspec.Struct, frozen=True):
    """Whether the update server could be reached in a trial, where it could before.

    `lost_s` is monotonic time since it last could, or since the trial began; `failures` are tries in a row.
    """

    reached: bool = False
    failures: int = 0
    lost_s: float = 0.0

    @property
    def asked(self) -> bool:
        """There was a try since the trial began."""
        return self.reached or self.failures > 0


class _Finding(msgspec.Struct, frozen=True):
    """One guard's word. `estimate_within`: what the bare figure says, for when time is up.

    `frames_more` would make it pass if they fared as those until now; 0 where that cannot be said.
    """

    outcome: Outcome
    cause: Cause
    detail: str
    estimate_within: bool
    frames_more: int = 0


class _Bounds(NamedTuple):
    """When a window may close and when it must."""

    window: Window
    policy: Policy
    frames: int
    elapsed_s: float

    @property
    def enough(self) -> bool:
        return self.frames >= self.window.min_frames


def baseline_of(stats: WindowStats, *, reached: bool = False) -> Baseline:
    """What to keep of the old model's window; `reached`: the update server could be reached in it."""
    return Baseline(stats.frames, stats.failed, stats.p95_ms, stats.constant_answers, reached)


def judged_frames(shadow: WindowStats, guards: Guards) -> int:
    """The frames that count in a shadow: where disagreement is limited, those that were compared."""
    return shadow.frames if guards.disagreement is None else shadow.shadowed


def error_limit(baseline: Baseline | None, guards: Guards) -> float:
    """The share of frames that may fail: what the rollout allows beyond what failed before."""
    before = baseline.failed / baseline.frames if _usable(baseline) else 0.0
    return min(guards.error_rate + before, 1.0)


def death_cause(last_death: str) -> Cause:
    """The cause behind the data plane's words on a death: `kind: detail`.

    Whom the data plane kills it says to hang; another SIGKILL is the kernel's, when memory ran out.
    """
    kind, _, detail = last_death.partition(":")
    if kind == "load_fail":
        return Cause.LOAD_FAIL
    if kind == "worker_hung":
        return Cause.WATCHDOG
    words = detail.lower()
    if any(word in words for word in ("out of memory", "oom", "memoryerror", "sigkill")):
        return Cause.OOM
    return Cause.CRASH_LOOP


def judge_shadow(
    candidate: WindowStats,
    baseline: Baseline | None,
    *,
    guards: Guards,
    window: Window,
    policy: Policy = Policy.ROLLBACK,
) -> Verdict:
    """Judge a candidate that answers nobody: the trial's guards, and disagreement with the model that serves.

    Inconclusive means: go on.
    """
    findings = _findings(candidate, baseline, guards)
    if guards.disagreement is not None:
        findings.append(
            _share(candidate.disagreed, candidate.shadowed, guards.disagreement, Cause.DISAGREEMENT)
        )
    bounds = _Bounds(window, policy, judged_frames(candidate, guards), candidate.elapsed_s)
    return _decide(candidate, findings, _unjudged(baseline), bounds)


def judge_trial(
    candidate: WindowStats,
    baseline: Baseline | None,
    *,
    guards: Guards,
    window: Window,
    policy: Policy = Policy.ROLLBACK,
    used_before_s: float = 0.0,
    contact: Contact | None = None,
) -> Verdict:
    """Judge a candidate that serves. Inconclusive means: go on.

    `used_before_s` is trial time before the last restart: it counts towards the end, not towards `min_s`.
    Without `contact` nobody asks whether the update server can be reached, since it could not before.
    """
    elapsed_s = candidate.elapsed_s + max(used_before_s, 0.0)
    findings = _findings(candidate, baseline, guards)
    if contact is not None:
        findings.append(_contact(contact))
    bounds = _Bounds(window, policy, candidate.frames, elapsed_s)
    return _decide(candidate, findings, _unjudged(baseline), bounds)


def wilson(hits: int, trials: int, z: float) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) without trials."""
    if trials <= 0:
        return 0.0, 1.0
    share = hits / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    radius = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - radius), min(1.0, centre + radius)


def frames_to_pass(hits: int, trials: int, limit: float) -> int:
    """How many more frames of the same share would bring Wilson's upper end to the limit; 0: none ever.

    Wilson's interval inverts the score test, so it ends at the limit where (limit - share)^2 n = z^2 limit
    (1 - limit).
    """
    if trials <= 0 or hits >= limit * trials:
        return 0
    wanted = _PASS_Z**2 * limit * (1 - limit) / (limit - hits / trials) ** 2
    return max(0, math.ceil(wanted) - trials)


def evidence(hits: int, trials: int, limit: float) -> float:
    """Logarithm of the mixed likelihood ratio of shares above `limit` to `limit` itself.

    Above log(1/ERROR) the limit is broken, at that chance of being wrong, over all looks together.
    """
    if limit <= 0:
        return math.inf if hits else -math.inf
    if limit >= 1:
        return -math.inf
    shares = [limit + (1 - limit) * step for step in _STEPS]
    terms = [
        hits * math.log(share / limit) + (trials - hits) * math.log((1 - share) / (1 - limit))
        for share in shares
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms) / len(terms))


def anytime_z(trials: int, error: float = ERROR) -> float:
    """How many standard errors a mean may be off at any time, with chance `error` of ever being further."""
    n = max(trials, 2)
    return 1.7 * math.sqrt(math.log(math.log(2 * n)) + 0.72 * math.log(5.2 / error))


def _findings(candidate: WindowStats, baseline: Baseline | None, guards: Guards) -> list[_Finding]:
    findings = [_share(candidate.failed, candidate.frames, error_limit(baseline, guards), Cause.ERROR_RATE)]
    if _usable(baseline) and baseline.p95_ms:
        findings.append(_latency(candidate, baseline.frames, baseline.p95_ms, guards.latency_ratio))
    drifted = candidate.constant_answers and not (baseline is not None and baseline.constant_answers)
    if drifted and candidate.frames >= MIN_CONSTANT_FRAMES:
        said = f"the same answer to all of {candidate.frames} frames"
        findings.append(_Finding(Outcome.FAIL, Cause.OUTPUT_DRIFT, said, estimate_within=False))
    if candidate.grown_bytes > MAX_GROWTH_BYTES:
        said = f"its memory grew by {candidate.grown_bytes >> 20} MiB in {candidate.elapsed_s:.0f} s"
        findings.append(_Finding(Outcome.FAIL, Cause.OOM, said, estimate_within=False))
    return findings


def _share(hits: int, trials: int, limit: float, cause: Cause) -> _Finding:
    _, high = wilson(hits, trials, _PASS_Z)
    fails = evidence(hits, trials, limit) > math.log(1 / ERROR)
    outcome = Outcome.FAIL if fails else Outcome.PASS if high <= limit else Outcome.INCONCLUSIVE
    detail = f"{hits} of {trials} frames, limit {limit:.2%}"
    within = trials > 0 and hits <= limit * trials
    more = frames_to_pass(hits, trials, limit) if outcome is Outcome.INCONCLUSIVE else 0
    return _Finding(outcome, cause, detail, estimate_within=within, frames_more=more)


def _latency(candidate: WindowStats, old_frames: int, old_ms: float, limit: float) -> _Finding:
    frames = candidate.frames - candidate.failed
    if candidate.p95_ms is None or frames < MIN_LATENCY_FRAMES:
        return _Finding(
            Outcome.INCONCLUSIVE, Cause.LATENCY_P95, f"only {frames} frames were timed", estimate_within=False
        )
    ratio = candidate.p95_ms / old_ms
    error = _QUANTILE_ERROR * math.sqrt(
        1 / min(frames, MAX_INDEPENDENT) + 1 / min(old_frames, MAX_INDEPENDENT)
    )
    beyond = math.log(max(ratio, 1e-9) / limit)
    fails = beyond > anytime_z(frames) * error
    outcome = Outcome.FAIL if fails else Outcome.PASS if beyond <= 0 else Outcome.INCONCLUSIVE
    detail = f"p95 {candidate.p95_ms:.1f} ms is {ratio:.2f} times that of before, limit {limit:.2f}"
    return _Finding(outcome, Cause.LATENCY_P95, detail, estimate_within=beyond <= 0)


def _contact(contact: Contact) -> _Finding:
    """A box that can no longer be updated cannot be repaired; but an outage may be anybody's fault."""
    said = f"the update server was not reached for {contact.lost_s:.0f} s, in {contact.failures} tries"
    lost = contact.lost_s >= LOST_S and contact.failures >= LOST_TRIES
    outcome = Outcome.PASS if contact.reached else Outcome.FAIL if lost else Outcome.INCONCLUSIVE
    return _Finding(outcome, Cause.CONNECTIVITY_LOST, said, estimate_within=contact.reached)


def _decide(
    candidate: WindowStats, findings: list[_Finding], unjudged: tuple[str, ...], bounds: _Bounds
) -> Verdict:
    if candidate.given_up or candidate.worker_deaths >= MAX_DEATHS:
        died = f"{candidate.worker_deaths} deaths, the last: {candidate.last_death}"
        return Verdict(Outcome.FAIL, death_cause(candidate.last_death), died, unjudged)
    failed = next((finding for finding in findings if finding.outcome is Outcome.FAIL), None)
    if failed is not None:
        return Verdict(Outcome.FAIL, failed.cause, failed.detail, unjudged)
    ripe = candidate.elapsed_s >= bounds.window.min_s and bounds.enough
    if ripe and all(finding.outcome is Outcome.PASS for finding in findings):
        return Verdict(Outcome.PASS, unjudged=unjudged)
    if bounds.elapsed_s < bounds.window.max_s:
        lacking = _lacking(candidate, findings, bounds)
        return Verdict(Outcome.INCONCLUSIVE, unjudged=unjudged, lacking=lacking)
    return _time_is_up(findings, unjudged, bounds)


def _lacking(candidate: WindowStats, findings: list[_Finding], bounds: _Bounds) -> tuple[str, ...]:
    """What the window waits for, the guards that have not passed last."""
    frames, seconds = bounds.window.min_frames - bounds.frames, bounds.window.min_s - candidate.elapsed_s
    lacking = [f"another {frames} frames"] if frames > 0 else []
    lacking += [f"another {math.ceil(seconds)} s"] if seconds > 0 else []
    for finding in findings:
        if finding.outcome is not Outcome.PASS:
            more = f"; another {finding.frames_more} like them would do" if finding.frames_more else ""
            lacking.append(f"{finding.cause.value}: {finding.detail}{more}")
    return tuple(lacking)


def _time_is_up(findings: list[_Finding], unjudged: tuple[str, ...], bounds: _Bounds) -> Verdict:
    """With frames enough the bare figures decide; without, the policy does. Lost contact always counts."""
    lost = next((f for f in findings if f.cause is Cause.CONNECTIVITY_LOST and not f.estimate_within), None)
    if lost is not None:
        return Verdict(Outcome.FAIL, lost.cause, lost.detail, unjudged)
    if bounds.enough:
        beyond = next((finding for finding in findings if not finding.estimate_within), None)
        if beyond is None:
            return Verdict(Outcome.PASS, unjudged=unjudged)
        return Verdict(Outcome.FAIL, beyond.cause, beyond.detail, unjudged)
    said = f"only {bounds.frames} of {bounds.window.min_frames} frames in {bounds.window.max_s:.0f} s"
    if bounds.policy is Policy.CONFIRM:
        return Verdict(Outcome.PASS, detail=said, unjudged=unjudged)
    if bounds.policy is Policy.HOLD:
        return Verdict(Outcome.INCONCLUSIVE, detail=said, unjudged=unjudged)
    return Verdict(Outcome.FAIL, Cause.TRIAL_TIMEOUT, said, unjudged)


def _usable(baseline: Baseline | None) -> TypeGuard[Baseline]:
    return baseline is not None and baseline.frames >= MIN_BASELINE_FRAMES


def _unjudged(baseline: Baseline | None) -> tuple[str, ...]:
    return () if _usable(baseline) and baseline.p95_ms else (Cause.LATENCY_P95.value,)
