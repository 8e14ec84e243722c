"""An answer is given again only while nothing that matters has changed."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from vedette.gate.frame_gate import FrameGate
from vedette.gate.reuse import Reuse
from vedette.gate.reuse_rules import Change, ReuseRules, Use

Picture = NDArray[np.uint8]
WIDTH, HEIGHT = 640, 480
SECOND = 1_000_000_000


def street(rng: np.random.Generator) -> Picture:
    """A picture with large and small structure, as cameras see."""
    coarse = rng.integers(30, 220, (12, 16, 3), np.uint8)
    fine = rng.integers(-12, 13, (HEIGHT, WIDTH, 3))
    scene: Any = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    return np.asarray(np.clip(scene.astype(np.int16) + fine, 0, 255), np.uint8)


def seen(scene: Picture, rng: np.random.Generator, *, gain: float = 0.0) -> Picture:
    """The scene once more through a sensor with noise of 3 levels and a gain that wanders."""
    factor = 1 + rng.uniform(-gain, gain)
    noise = rng.normal(0, 3, scene.shape)
    return np.asarray(np.clip(scene * factor + noise, 0, 255), np.uint8)


def with_object(scene: Picture, side: int, rng: np.random.Generator) -> Picture:
    """Something of its own texture and brightness, at least 40 levels from what it hides."""
    changed: Picture = scene.copy()
    x, y = int(rng.integers(0, WIDTH - side)), int(rng.integers(0, HEIGHT - side))
    hidden = scene[y : y + side, x : x + side].mean(axis=(0, 1))
    away = rng.uniform(40, 110, 3) * (1 if rng.random() < 0.5 else -1)
    away = np.where((hidden + away > 255) | (hidden + away < 0), -away, away)
    texture = rng.normal(0, 15, (side, side, 3))
    changed[y : y + side, x : x + side] = np.clip(hidden + away + texture, 0, 255).astype(np.uint8)
    return changed


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(23)


@pytest.mark.parametrize("gain", [0.0, 0.03])
def test_noise_and_a_wandering_gain_are_no_change(rng: np.random.Generator, gain: float) -> None:
    scene = street(rng)
    gate = FrameGate()
    assert gate.look(seen(scene, rng)) is Change.FIRST
    gate.answered(scene.shape)
    assert all(gate.look(seen(scene, rng, gain=gain)) is Change.NONE for _ in range(60))


@pytest.mark.parametrize(("side", "draws"), [(48, 100), (64, 30)])
def test_a_new_object_is_overlooked_in_at_most_two_of_a_hundred(
    rng: np.random.Generator, side: int, draws: int
) -> None:
    missed = 0
    for _ in range(draws):
        scene = street(rng)
        gate = FrameGate()
        gate.look(seen(scene, rng))
        gate.answered(scene.shape)
        missed += gate.look(seen(with_object(scene, side, rng), rng, gain=0.03)) is Change.NONE
    assert missed <= 0.02 * draws


def test_what_creeps_in_is_seen_when_it_has_changed_enough(rng: np.random.Generator) -> None:
    """A running average would learn it; the reference is the frame that was answered."""
    scene = street(rng)
    target = with_object(scene, 96, rng)
    gate = FrameGate()
    gate.look(scene)
    gate.answered(scene.shape)
    found = [
        gate.look(seen((scene + (target - scene.astype(np.float64)) * step / 50).astype(np.uint8), rng))
        for step in range(51)
    ]
    assert found[0] is Change.NONE
    assert found[-1] is Change.SOMETHING


def test_light_formats_masks_and_a_new_model() -> None:
    scene = np.full((HEIGHT, WIDTH), 60, np.uint8)
    gate = FrameGate()
    gate.look(scene)
    gate.answered(scene.shape)
    assert gate.look(scene + 80) is Change.LIGHT
    assert gate.look(np.full((HEIGHT, WIDTH, 3), 60, np.uint8)) is Change.SIZE
    assert gate.look(np.full((240, WIDTH), 60, np.uint8)) is Change.SIZE
    gate.forget()
    assert gate.look(scene) is Change.FIRST
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[:, : WIDTH // 2] = 255
    masked = FrameGate(mask=mask)
    masked.look(scene)
    masked.answered(scene.shape)
    clock, door = scene.copy(), scene.copy()
    clock[100:200, 50:150] = 200
    door[100:200, 450:550] = 200
    assert (masked.look(clock), masked.look(door)) == (Change.NONE, Change.SOMETHING)


def test_an_answer_is_given_again_while_it_is_young_and_of_the_same_model() -> None:
    reuse = Reuse(ReuseRules(max_age_s=2.0), lambda: 0.5)
    assert reuse.decide(Change.NONE, "a", 0) is Use.ANEW  # there is none yet
    reuse.given(Use.ANEW, "a", "cat", 0)
    assert reuse.decide(Change.NONE, "a", SECOND) is Use.AGAIN
    assert reuse.decide(Change.SOMETHING, "a", SECOND) is Use.ANEW
    assert reuse.decide(Change.NONE, "b", SECOND) is Use.ANEW
    assert reuse.decide(Change.NONE, "a", 3 * SECOND) is Use.ANEW
    reuse.failed()
    assert reuse.decide(Change.NONE, "a", SECOND) is Use.ANEW


def test_some_are_checked_and_the_share_that_was_wrong_is_told() -> None:
    reuse = Reuse(ReuseRules(max_age_s=100.0, check_share=0.01), lambda: 0.009)
    reuse.given(Use.ANEW, "a", "cat", 0)
    for number in range(100):
        use = reuse.decide(Change.NONE, "a", number)
        assert use is Use.CHECK
        reuse.given(use, "a", "dog" if number == 50 else "cat", number)
    reuse.given(Use.AGAIN, "a", "cat", 101)
    found = reuse.figures()
    assert (found.again, found.anew, found.checks) == (1, 101, 100)
    assert found.wrong_share == 0.02  # there, and back again
    assert found.wrong_low < 0.02 < found.wrong_high
