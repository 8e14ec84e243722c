"""What the worker's gate is told, made of promise, budget and configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.escalate.calibrating import BURST
from vedette.gate.setting import GateMode, GateSetting, Score
from vedette.wire.bundle import Task

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.calibrating import ModelPromise
    from vedette.escalate.purse import Grant

NS_PER_MS = 1_000_000


class SettingNumbers:
    """Rise, also beyond the end of this process: a worker ignores a setting older than the one it has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Milliseconds since the box started, or one more than the last."""
        self._last = max(self._last + 1, self._clock.monotonic_ns() // NS_PER_MS)
        return self._last


def why_off(promise: ModelPromise, config: EscalationConfig) -> str:
    """Why nobody is ever asked about this model's answers; empty where somebody is."""
    if promise.model.task is Task.RAW:
        return "raw tensors are no question for a large model"
    if config.privacy.send == "never":
        return "nothing may leave this box (`privacy.send: never`)"
    return promise.fault


def setting_for(promise: ModelPromise, config: EscalationConfig, grant: Grant, number: int) -> GateSetting:
    """The setting for one model's worker."""
    if why_off(promise, config):
        return GateSetting(number=number, model_sha256=promise.model.sha256, mode=GateMode.OFF)
    found = promise.calibration
    share = config.audit.share * (BURST if promise.burst else 1.0)
    return GateSetting(
        number=number,
        model_sha256=promise.model.sha256,
        mode=found.mode,
        score=Score(config.policy.score),
        temperature=found.temperature,
        threshold=found.threshold,
        guarantee=found.guarantee,
        epsilon=promise.promise.epsilon,
        delta=config.policy.delta,
        platt=found.platt,
        audit_share=min(1.0, share),
        tokens=grant.tokens,
        audit_tokens=grant.audit_tokens,
        rate_per_s=grant.rate_per_s,
        fill=grant.fill,
        paced=config.budget.paced,
        cool_down_s=config.cool_down_s,
        quiet_cameras=config.quiet,
    )
