"""The asking process without its sockets: settings, promises, figures, and what outlives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.stubs.asked_cases import HandPool, escalation_config, frame_of, says
from tests.stubs.played_bundles import played_bundle

from vedette.bundle.folder import load_bundle
from vedette.clock import ManualClock
from vedette.config.escalation import (
    AuditConfig,
    BudgetConfig,
    PolicyConfig,
    PrivacyConfig,
    TrainingConfig,
)
from vedette.escalate.asking import RoundTrips
from vedette.escalate.backlog_files import BacklogFiles
from vedette.escalate.breaker import Breaker
from vedette.escalate.budgets import DAY_S
from vedette.escalate.messages import EscalatorEvent, EscalatorFigures, EscalatorSpec, Feed, NewSetting, begin
from vedette.escalate.purse import Purse
from vedette.escalate.service import Service, ServiceParts
from vedette.escalate.training import TrainingSet
from vedette.gate.case import Case
from vedette.gate.setting import GateMode
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Label, ModelRef, Result

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.config.escalation import EscalationConfig
    from vedette.gate.setting import GateSetting

NOON_S = 20_000 * DAY_S + DAY_S / 2


class Box:
    """A box whose asking process starts and ends, with a worker that asks about what it is told to."""

    def __init__(self, root: Path, config: EscalationConfig | None = None) -> None:
        self.root = root
        self.config = config or escalation_config(
            policy=PolicyConfig(target=0.9), audit=AuditConfig(share=0.02, per_day=5000)
        )
        self.clock = ManualClock(10**12)
        self.told: list[Any] = []
        self.ended: list[Result] = []
        self._seq = 0
        for name in ("audits", "backlog", "training"):
            (root / name).mkdir()
        self.bundles: dict[str, Path] = {}
        self.start()

    def start(self) -> None:
        self.pool = HandPool(2)
        utc_s = lambda: NOON_S + (self.clock.monotonic_ns() - 10**12) / 1e9  # noqa: E731 - one line says it
        training = None
        if self.config.training is not None:
            training = TrainingSet(self.root / "training", self.config.training)
        parts = ServiceParts(
            self.pool,
            RoundTrips(),
            Purse(self.config, self.root, self.clock, utc_s, boot="b"),
            Breaker(lambda: 0.5),
            BacklogFiles(self.root / "backlog", self.config.offline),
            training,
            self.root / "audits",
            self.clock,
            utc_s,
            lambda result, _: self.ended.append(result),
            self.told.append,
        )
        spec = EscalatorSpec(config={}, state_dir=str(self.root), device="box", site="yard")
        self.service = Service(spec, self.config, parts)

    def bundle(self, name: str, **more: Any) -> Feed:  # noqa: ANN401 - as of `played_bundle`
        if name not in self.bundles:
            made = played_bundle(self.root / name, files={"weights.bin": name.encode()}, **more)
            (made / "tiny.onnx").write_bytes((made / "tiny.onnx").read_bytes() + _note(name))
            from vedette.bundle.folder import seal

            seal(made)
            self.bundles[name] = made
        found = load_bundle(self.bundles[name])
        ref = ModelRef(found.spec.name, found.spec.version, found.sha256)
        return Feed(ref, found.model_sha256, str(found.root))

    def second(self) -> None:
        self.clock.advance_s(1.0)
        self.service.turn()

    def audit(self, said: str, *, sure: float = 5.0, reason: Reason = Reason.AUDIT) -> None:
        """One frame of a scene of its own, whose local answer is red."""
        self._seq += 1
        logits = np.array([sure, 0.0, 0.0, 0.0], "<f4")
        score = float(1 / np.exp(logits - sure).sum())
        model = self.service.model
        assert model is not None
        result = Result(
            1,
            "front",
            self._seq,
            self.clock.monotonic_ns(),
            ModelRef("tiny", "1", "a"),
            "classify",
            top=(Label("red", 0, score),),
        )
        case = Case(
            reason=reason,
            result=result,
            score=score,
            uncertainty=1 - score,
            inclusion=0.02,
            setting=1,
            guarantee=Guarantee.NONE,
            model_sha256=model.sha256,
            logits=logits.tobytes(),
        )
        self.service.desk.take(case, model, lambda: frame_of(self._seq))
        assert self.pool.jobs, self.ended[-1]
        self.pool.reply(says(said))
        self.clock.advance_s(1.01)
        self.service.turn()

    @property
    def setting(self) -> GateSetting:
        return next(one.setting for one in reversed(self.told) if isinstance(one, NewSetting))

    @property
    def figures(self) -> EscalatorFigures:
        return next(one for one in reversed(self.told) if isinstance(one, EscalatorFigures))

    def events(self) -> list[str]:
        return [one.word for one in self.told if isinstance(one, EscalatorEvent)]


def _note(name: str) -> bytes:
    """A field that protobuf skips: another file, the same model."""
    text = name.encode()
    return b"\x32" + bytes([len(text)]) + text  # `domain`... of ModelProto's doc string, field 6


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_worker_is_told_every_second_what_it_may_spend(box: Box) -> None:
    box.service.feed(box.bundle("one"))
    first = box.setting
    assert (first.mode, first.guarantee, first.threshold) == (GateMode.UNCALIBRATED, Guarantee.NONE, 0.9)
    assert first.model_sha256 == box.bundle("one").model_sha256
    assert (first.audit_share, first.audit_tokens > 0, first.tokens > 0) == (0.02, True, True)
    box.second()
    assert box.setting.number > first.number
    box.service.stop()
    box.start()
    box.service.feed(box.bundle("one"))
    assert box.setting.number > first.number + 900  # a worker that lives on does not ignore it


def test_a_promise_is_earned_and_comes_back_with_its_model(box: Box) -> None:
    box.service.feed(box.bundle("one"))
    for _ in range(120):
        box.audit("red")
    assert (box.setting.mode, box.setting.guarantee) == (GateMode.CALIBRATED, Guarantee.AGREEMENT)
    assert box.events() == ["calibrated", "calibrated"]
    earned = box.setting.threshold
    promise = box.figures.promise
    assert (promise.guarantee, promise.mode) == ("agreement", "calibrated")
    assert promise.epsilon == pytest.approx(0.1)
    assert promise.samples >= promise.samples_needed > 0
    assert promise.agreement is not None
    assert promise.agreement > 0.95

    box.service.feed(box.bundle("two"))
    assert box.setting.mode is GateMode.UNCALIBRATED
    assert box.figures.promise.agreement is None

    box.service.feed(box.bundle("one"))
    assert (box.setting.mode, box.setting.threshold) == (GateMode.CALIBRATED, earned)
    box.service.stop()
    box.start()
    box.service.feed(box.bundle("one"))
    assert (box.setting.mode, box.setting.threshold) == (GateMode.CALIBRATED, earned)


def test_when_the_world_changes_the_promise_ends_and_audits_come_in_a_burst(box: Box) -> None:
    box.service.feed(box.bundle("one"))
    for _ in range(80):
        box.audit("red")
    assert box.setting.mode is GateMode.CALIBRATED
    for _ in range(60):
        box.audit("blue")
        if "drift" in box.events():
            break
    assert box.events()[-1] == "drift"
    found = box.setting
    assert found.mode is GateMode.UNCALIBRATED
    assert found.audit_share == pytest.approx(0.1)
    assert box.figures.promise.guarantee == "none"


def test_escalated_frames_calibrate_nothing(box: Box) -> None:
    """They are the hard ones: only frames that were drawn speak for all."""
    box.service.feed(box.bundle("one"))
    for _ in range(100):
        box.audit("red", reason=Reason.UNCERTAIN)
    assert (box.setting.mode, box.figures.promise.samples) == (GateMode.UNCALIBRATED, 0)


def test_a_bundle_that_is_damaged_is_told_and_nobody_is_asked(box: Box) -> None:
    feed = box.bundle("one")
    (box.bundles["one"] / "labels.txt").write_text("other\n", encoding="utf-8")
    box.service.feed(feed)
    assert box.service.model is None
    box.second()
    assert box.events() == ["unusable_bundle"]
    assert "nobody can be asked" in box.figures.fault
    assert not any(isinstance(one, NewSetting) for one in box.told)


def test_a_bundle_says_how_the_large_models_words_are_read(box: Box) -> None:
    files = {"aliases.json": b'{"crimson": "red"}'}
    spec = {"escalation": {"prompt": "Which lamp?", "aliases": "aliases.json"}}
    made = played_bundle(box.root / "words", spec=spec, files=files)
    found = load_bundle(made)
    box.service.feed(Feed(ModelRef("tiny", "1", "a"), found.model_sha256, str(made)))
    box.audit("Crimson")
    assert box.ended[-1].escalation is not None
    assert box.ended[-1].escalation.outcome == "agreed"
    assert box.service.model is not None
    assert box.service.model.prompt == "Which lamp?"


def test_the_same_model_with_other_words_is_read_anew(box: Box) -> None:
    """The digest of the model file alone does not tell."""
    for word in ("crimson", "scarlet"):
        files = {"aliases.json": f'{{"{word}": "red"}}'.encode()}
        made = played_bundle(box.root / word, spec={"escalation": {"aliases": "aliases.json"}}, files=files)
        found = load_bundle(made)
        box.service.feed(Feed(ModelRef("tiny", "1", found.sha256), found.model_sha256, str(made)))
        box.audit(word)
        assert box.ended[-1].source == "cloud"


@pytest.mark.parametrize(
    "content", [b"[]", b'{"crimson": 5}', b'{"crimson": "scarlet"}', b'{"red": "blue"}', b"\xff"]
)
def test_aliases_that_are_none_are_refused(box: Box, content: bytes) -> None:
    spec = {"escalation": {"aliases": "aliases.json"}}
    made = played_bundle(box.root / "words", spec=spec, files={"aliases.json": content})
    found = load_bundle(made)
    box.service.feed(Feed(ModelRef("tiny", "1", "a"), found.model_sha256, str(made)))
    assert box.events() == ["unusable_bundle"]


def test_where_nothing_may_leave_the_gate_is_off(tmp_path: Path) -> None:
    box = Box(tmp_path, escalation_config(privacy=PrivacyConfig(send="never")))
    box.service.feed(box.bundle("one"))
    assert box.setting.mode is GateMode.OFF
    box.second()
    assert "never" in box.figures.fault


def test_a_spent_day_is_told_once(tmp_path: Path) -> None:
    box = Box(tmp_path, escalation_config(budget=BudgetConfig(bytes_per_day=1500)))
    box.service.feed(box.bundle("one"))
    for _ in range(2):
        box.service.desk._parts.purse.cost(1000, says("red").usage)
    for _ in range(3):
        box.second()
    assert box.events() == ["budget_spent"]
    assert (box.setting.tokens, box.setting.audit_tokens) == (0, 0)
    assert box.figures.spend.bytes_day == 2000


def test_answers_become_samples_for_the_next_model(tmp_path: Path) -> None:
    box = Box(tmp_path, escalation_config(training=TrainingConfig(disk=1_000_000)))
    box.service.feed(box.bundle("one"))
    box.audit("red")
    box.audit("blue", reason=Reason.UNCERTAIN)
    assert box.figures.training_samples == 2
    box.service.stop()
    assert sorted(path.name for path in (tmp_path / "training").iterdir()) == [
        "audit-000001.tar",
        "unsure-000002.tar",
    ]


def test_the_key_is_not_on_the_command_line() -> None:
    config = replace(escalation_config(), key="sk-secret")
    spec, first = begin(config, state_dir="", device="d")
    assert "sk-secret" not in repr(spec)
    assert first.key == "sk-secret"
