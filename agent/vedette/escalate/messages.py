"""What the daemon and the process that asks the large model say to each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from vedette.gate.setting import GateSetting
from vedette.wire.messages import ModelRef, Result

if TYPE_CHECKING:
    from vedette.config.escalation import EscalationConfig


class EscalatorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is to work; travels as JSON on the command line, which anybody on the box can read.

    `config` is the checked `escalation` section as plain JSON, without its `key`; see `begin`. `state_dir`
    keeps budgets, audits, what waits and the training set; empty: nothing outlives the process.
    """

    config: dict[str, Any]
    state_dir: str
    device: str
    site: str = ""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The first message: the key that the large model wants, empty for none, or for that of `key_file`."""

    key: str = ""


def begin(
    config: EscalationConfig, *, state_dir: str, device: str, site: str = ""
) -> tuple[EscalatorSpec, Begin]:
    """What goes onto the command line, and what must not."""
    plain = msgspec.to_builtins(msgspec.structs.replace(config, key=None))
    return EscalatorSpec(config=plain, state_dir=state_dir, device=device, site=site), Begin(config.key or "")


class Feed(msgspec.Struct, frozen=True, tag=True):
    """Take cases from this worker's ring, whose descriptors come along; replaces the one before.

    What is still in the ring before is taken first. `model_sha256` is that of the model file, `bundle` its
    folder.
    """

    model: ModelRef
    model_sha256: str
    bundle: str


class StopEscalating(msgspec.Struct, frozen=True, tag=True):
    """Put down what waits, and end within two seconds."""


ToEscalator = Begin | Feed | StopEscalating


class EscalatorReady(msgspec.Struct, frozen=True, tag=True):
    """It can be fed."""


class NewSetting(msgspec.Struct, frozen=True, tag=True):
    """For the worker whose model this is."""

    setting: GateSetting


class Concluded(msgspec.Struct, frozen=True, tag=True):
    """How escalations ended, each once.

    The local result again, with the large model's answer where it gave one, and `escalation` filled in.
    """

    results: tuple[Result, ...]


class Spend(msgspec.Struct, frozen=True):
    """What is left and was used; `None` where there is no such limit. Money is in the configured currency."""

    calls_minute: int = 0
    calls_day: int = 0
    calls_day_limit: int | None = None
    bytes_day: int = 0
    bytes_day_limit: int | None = None
    money_day: float = 0.0
    money_day_limit: float | None = None


class Promise(msgspec.Struct, frozen=True):
    """What is promised and what really holds.

    `epsilon` is what was asked for. `unmet_share` of the last hour's frames were unsure and got no answer of
    the large model, so that `held_epsilon` = epsilon + unmet_share is what holds; 1 where nothing does.
    `agreement` is the unbiased estimate of how often what this box answers, with corrections, agrees with the
    large model, and `local_agreement` that of the local answers alone, both with Wilson intervals; None
    before any audit.
    """

    guarantee: str = "none"
    mode: str = "off"
    epsilon: float = 0.0
    delta: float = 0.05
    threshold: float = 0.0
    temperature: float = 1.0
    samples: int = 0
    samples_needed: int = 0
    unmet_share: float = 0.0
    held_epsilon: float = 0.0
    agreement: float | None = None
    agreement_low: float | None = None
    agreement_high: float | None = None
    local_agreement: tuple[float, float, float] | None = None


class EscalatorFigures(msgspec.Struct, frozen=True, tag=True):
    """How it goes, about once a second, newest wins. Counters are since the process began.

    `outcomes` counts by the outcome's word, with `_` and the cause where there is one. `audits_censored` were
    drawn and might not leave the box: the agreement that is measured speaks for the others only.
    """

    promise: Promise = Promise()
    spend: Spend = Spend()
    asked: int = 0
    outcomes: dict[str, int] = {}
    audits: int = 0
    audits_censored: int = 0
    in_flight: int = 0
    backlog: int = 0
    backlog_bytes: int = 0
    breaker: str = "closed"
    pause_s: float = 0.0
    rtt_p50_ms: float = 0.0
    rtt_p90_ms: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    training_samples: int = 0
    training_bytes: int = 0
    sent_bytes: int = 0
    fault: str = ""


class EscalatorEvent(msgspec.Struct, frozen=True, tag=True):
    """Something that an operator wants to know once: `calibrated`, `drift`, `budget_spent`, `quota`, ..."""

    word: str
    detail: str


FromEscalator = EscalatorReady | NewSetting | Concluded | EscalatorFigures | EscalatorEvent
