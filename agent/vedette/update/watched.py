"""How the window of a shadow or a trial stands, for people who wait for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.update.health import error_limit, judged_frames

if TYPE_CHECKING:
    from vedette.update.health import Contact, Verdict
    from vedette.update.ports import WindowStats
    from vedette.update.record import Baseline
    from vedette.wire.rollout import Guards, Window


class Watched(msgspec.Struct, frozen=True):
    """Figures of a candidate, each beside what is needed or allowed; shares are of 1, times monotonic.

    The window may close after `min_frames` and `min_s`, and must after `max_s`; `used_before_s` of that went
    by before a restart. `p95_ms` is of the candidate, `p95_before_ms` of the model before it. `answers_vary`
    is null while nobody can tell; so is `reached` (the update server), and where that is not judged, as with
    `disagreed_share`. `lacking` says what the verdict still waits for.
    """

    frames: int
    min_frames: int
    elapsed_s: float
    min_s: float
    max_s: float
    used_before_s: float
    failed_share: float | None
    failed_limit: float
    p95_ms: float | None
    p95_before_ms: float | None
    latency_ratio_limit: float
    answers_vary: bool | None
    disagreed_share: float | None
    disagreed_limit: float | None
    reached: bool | None
    lacking: tuple[str, ...]


def watched(
    candidate: WindowStats,
    baseline: Baseline | None,
    verdict: Verdict,
    *,
    guards: Guards,
    window: Window,
    shadow: bool = False,
    used_before_s: float = 0.0,
    contact: Contact | None = None,
) -> Watched:
    """What to show of a verdict and of what it was made from."""
    compared = shadow and guards.disagreement is not None and candidate.shadowed > 0
    return Watched(
        frames=judged_frames(candidate, guards) if shadow else candidate.frames,
        min_frames=window.min_frames,
        elapsed_s=candidate.elapsed_s,
        min_s=window.min_s,
        max_s=window.max_s,
        used_before_s=used_before_s,
        failed_share=candidate.failed / candidate.frames if candidate.frames else None,
        failed_limit=error_limit(baseline, guards),
        p95_ms=candidate.p95_ms,
        p95_before_ms=None if baseline is None else baseline.p95_ms,
        latency_ratio_limit=guards.latency_ratio,
        answers_vary=True if candidate.varied else False if candidate.constant_answers else None,
        disagreed_share=candidate.disagreed / candidate.shadowed if compared else None,
        disagreed_limit=guards.disagreement if shadow else None,
        reached=contact.reached if contact is not None and contact.asked else None,
        lacking=verdict.lacking,
    )
