"""What leaves the box, and what never does."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.config.escalation import PrivacyConfig
from vedette.escalate.privacy import sendable, why_not
from vedette.wire.escalation import DeclineCause
from vedette.wire.messages import Detection, Label, ModelRef, Result

WIDTH, HEIGHT = 320, 240
NOISE = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def answer(*found: tuple[str, tuple[float, float, float, float]], top: str = "") -> Result:
    detections = tuple(Detection(label, 0, 0.9, box) for label, box in found)
    parts: dict[str, Any] = {"top": (Label(top, 0, 0.6),)} if top else {"detections": detections}
    return Result(1, "front", 1, 0, ModelRef("m", "1", "a"), "classify" if top else "detect", **parts)


PERSON = ("person", (100.0, 60.0, 140.0, 180.0))


@pytest.mark.parametrize(
    ("rules", "result", "stays"),
    [
        (PrivacyConfig(), answer(top="cat"), False),
        (PrivacyConfig(send="never"), answer(top="cat"), True),
        (PrivacyConfig(deny=("person",)), answer(PERSON), True),
        (PrivacyConfig(deny=("person",)), answer(top="person"), True),
        (PrivacyConfig(deny=("person",)), answer(("dog", PERSON[1])), False),
        (PrivacyConfig(send="crop"), answer(PERSON), False),
        (PrivacyConfig(send="crop"), answer(), True),
        (PrivacyConfig(send="crop"), answer(top="cat"), True),
    ],
)
def test_what_may_leave(rules: PrivacyConfig, result: Result, *, stays: bool) -> None:
    assert why_not(result, rules) is (DeclineCause.PRIVACY if stays else None)


def test_a_crop_has_a_margin_and_boxes_find_their_way_back() -> None:
    sent = sendable(NOISE, answer(PERSON), PrivacyConfig(send="crop", margin=0.1))
    assert (sent.left, sent.top) == (96, 48)
    assert sent.picture.shape == (144, 48, 3)
    assert (sent.picture == NOISE[48:192, 96:144]).all()
    assert sent.in_frame((4.0, 12.0, 44.0, 132.0)) == PERSON[1]


def test_a_large_frame_is_made_smaller_and_boxes_larger_again() -> None:
    sent = sendable(NOISE, answer(top="cat"), PrivacyConfig(max_side=160))
    assert sent.picture.shape == (120, 160, 3)
    assert sent.in_frame((10.0, 10.0, 20.0, 20.0)) == (20.0, 20.0, 40.0, 40.0)


def test_a_face_is_nine_colours_and_the_frame_itself_is_untouched() -> None:
    before = NOISE.copy()
    sent = sendable(NOISE, answer(PERSON), PrivacyConfig(blur=("person",)))
    inside = sent.picture[60:180, 100:140].reshape(-1, 3)
    assert len(np.unique(inside, axis=0)) <= 9
    outside = np.ones((HEIGHT, WIDTH), bool)
    outside[60:180, 100:140] = False
    assert (sent.picture[outside] == NOISE[outside]).all()
    assert (before == NOISE).all()


EDGE = st.floats(-50, 400)


@given(EDGE, EDGE, EDGE, EDGE, st.sampled_from(["frame", "crop"]), st.integers(32, 400))
def test_no_box_is_too_odd(  # noqa: PLR0917 - a box has four edges
    x1: float, y1: float, x2: float, y2: float, send: Literal["frame", "crop"], max_side: int
) -> None:
    """Outside the frame, without area, inside out: something is sent, never larger than allowed."""
    result = answer(("person", (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))))
    sent = sendable(NOISE, result, PrivacyConfig(send=send, max_side=max_side, blur=("person",)))
    assert 1 <= max(sent.picture.shape[:2]) <= max_side
    assert sent.picture.dtype == np.uint8
