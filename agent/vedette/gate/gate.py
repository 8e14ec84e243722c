"""The gate: for each frame, is the local answer trusted, and if not, is the large model asked. Pure.

The audit's draw comes first, before anything of the answer is looked at; that alone makes its samples speak
for all frames. Tokens come with each setting and are spent here, so that two settings apart no more is
spent than was granted, whoever else restarts in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.gate.confidence import score_of
from vedette.gate.expected_error import expected_error
from vedette.gate.pacing import Pacer
from vedette.gate.scene import Scenes
from vedette.gate.setting import GateMode, GateSetting, Verdict
from vedette.wire.escalation import DeclineCause, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class Evidence(NamedTuple):
    """What an answer rests on: logits (classes,), or every candidate's score and class index.

    `box_threshold` is the detector's: candidates from there on are in the answer.
    """

    logits: NDArray[Any] | None = None
    candidates: Sequence[tuple[float, int]] = ()
    box_threshold: float = 0.0


class Gate:
    """Applies settings; one thread owns it. `draw` gives a random number in [0, 1)."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._setting: GateSetting | None = None
        self._tokens = 0
        self._audit_tokens = 0
        self._pacer = Pacer()
        self._scenes = Scenes()

    @property
    def on(self) -> bool:
        """Whether frames are to be judged at all."""
        return self._setting is not None and self._setting.mode is not GateMode.OFF

    @property
    def number(self) -> int:
        """Of the setting in use, 0 without one."""
        return 0 if self._setting is None else self._setting.number

    def sees(self, camera: str) -> bool:
        """Whether anybody may be asked about this camera's frames."""
        return self._setting is not None and camera not in self._setting.quiet_cameras

    def use(self, setting: GateSetting) -> None:
        """Apply a setting from now on; one that is older than the one in use is ignored."""
        before = self._setting
        if before is not None:
            if setting.model_sha256 != before.model_sha256:
                self._pacer, self._scenes = Pacer(), Scenes()
            elif setting.number <= before.number:
                return
        self._setting = setting
        self._tokens, self._audit_tokens = setting.tokens, setting.audit_tokens

    def judge(self, camera: str, answer: str, evidence: Evidence, now_ns: int) -> Verdict:
        """Judge one frame.

        Args:
            camera: Its name.
            answer: The local answer, as text that is equal for equal answers.
            evidence: What the answer rests on.
            now_ns: Monotonic.
        """
        setting = self._setting
        if setting is None or setting.mode is GateMode.OFF or camera in setting.quiet_cameras:
            return Verdict(None, None, 0.0, 0.0, 0.0)
        inclusion = setting.audit_share if self._audit_tokens > 0 else 0.0
        audited = inclusion > 0.0 and self._draw() < inclusion
        if evidence.logits is not None:
            score = score_of(evidence.logits, setting.score, setting.temperature)
            uncertainty, unsure = 1.0 - score, score < setting.threshold
        else:
            uncertainty = expected_error(
                evidence.candidates,
                evidence.box_threshold,
                setting.platt,
                count_normalised=setting.count_normalised,
            )
            score, unsure = max(0.0, 1.0 - uncertainty), uncertainty > setting.threshold
        self._pacer.see(uncertainty, now_ns)
        if audited:
            self._audit_tokens -= 1
            self._scenes.asked(camera, answer, uncertainty, now_ns)
            return Verdict(Reason.AUDIT, None, score, uncertainty, inclusion, unsure)
        if not unsure:
            return Verdict(None, None, score, uncertainty, inclusion, unsure)
        declined = self._why_not(setting, camera, answer, uncertainty, now_ns)
        if declined is not None:
            return Verdict(None, declined, score, uncertainty, inclusion, unsure)
        self._tokens -= 1
        self._scenes.asked(camera, answer, uncertainty, now_ns)
        return Verdict(Reason.UNCERTAIN, None, score, uncertainty, inclusion, unsure)

    def _why_not(
        self, setting: GateSetting, camera: str, answer: str, uncertainty: float, now_ns: int
    ) -> DeclineCause | None:
        """What keeps an unsure frame here."""
        if self._scenes.is_known(
            camera,
            answer,
            uncertainty,
            now_ns,
            cool_down_s=setting.cool_down_s,
            hysteresis=setting.hysteresis,
        ):
            return DeclineCause.COOL_DOWN
        if self._tokens <= 0:
            return DeclineCause.BUDGET
        if setting.paced and not self._pacer.chosen(uncertainty, setting.rate_per_s, setting.fill):
            return DeclineCause.BUDGET
        return None

    def refund(self, camera: str, verdict: Verdict) -> None:
        """The frame could not be handed over after all: its token is free again, its scene is news."""
        self._scenes.forget(camera)
        if verdict.reason is Reason.AUDIT:
            self._audit_tokens += 1
        elif verdict.reason is Reason.UNCERTAIN:
            self._tokens += 1
