"""Answers drawn into pictures: at the right place, readable, and covering nothing that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.vision.annotate import (
    GROUND,
    Caption,
    colour_of,
    contact_sheet,
    dim_outside,
    draw_captions,
    draw_detections,
    draw_note,
    enlarge,
    place_label,
    printable,
)
from vedette.vision.orientation import Rect
from vedette.wire.messages import Detection, Label

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

GREY = 128


def blank(width: int, height: int) -> NDArray[np.uint8]:
    return np.full((height, width, 3), GREY, np.uint8)


def touched(drawn: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where a blank picture was drawn on."""
    return np.asarray((drawn != GREY).any(axis=2))


def detection(*box: float, label: str = "face", index: int = 0) -> Detection:
    return Detection(label, index, 0.987, (box[0], box[1], box[2], box[3]))


def overlap(one: Rect, other: Rect) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def test_a_box_is_drawn_where_the_frame_has_it_at_any_scale() -> None:
    """The outline in the class's colour runs through the scaled corners; the middle stays as it was."""
    drawn = draw_detections(blank(640, 480), [detection(40, 30, 120, 90, index=2)], scale=4)
    for x, y in ((160, 200), (480, 200), (300, 120), (300, 360)):
        assert tuple(drawn[y, x]) == colour_of(2)
    assert (drawn[140:340, 180:460] == GREY).all()


def test_key_points_are_marked() -> None:
    """A light dot at each, in pixels of the enlarged picture."""
    found = Detection("face", 0, 0.9, (10, 10, 50, 50), ((20.0, 22.0), (40.0, 38.5)))
    drawn = draw_detections(blank(300, 300), [found], scale=5)
    for x, y in ((100, 110), (200, 192)):
        assert drawn[y, x].min() > 200
    assert (drawn[150, 150] == GREY).all()


@pytest.mark.parametrize(
    "box",
    [(200, 200, 440, 400), (0, 0, 300, 300), (340, 0, 640, 480), (0, 100, 640, 480), (100, 0, 300, 480)],
)
def test_a_label_never_covers_what_it_names(box: tuple[float, ...]) -> None:
    """In the middle, in a corner, along an edge: the inside stays free where there is other room."""
    drawn = draw_detections(blank(640, 480), [detection(*box)])
    x1, y1, x2, y2 = (int(side) for side in box)
    assert (drawn[y1 + 6 : y2 - 5, x1 + 6 : x2 - 5] == GREY).all()
    written = touched(drawn)
    written[max(0, y1 - 5) : y2 + 6, max(0, x1 - 5) : x2 + 6] = False
    assert written.sum() > 1000


def test_a_box_as_large_as_the_picture_still_gets_its_label() -> None:
    """Nowhere is free, so it stands inside, at the edge."""
    drawn = draw_detections(blank(640, 480), [detection(0, 0, 640, 480)])
    assert touched(drawn)[10:470, 10:630].sum() > 1000


def test_two_neighbours_have_labels_that_do_not_hide_each_other() -> None:
    """Side by side and equally high, so that both would like the same place."""
    boxes = [detection(100, 100, 140, 200, label="person"), detection(150, 100, 190, 200, label="person")]
    alone = [touched(draw_detections(blank(640, 480), [box])) for box in boxes]
    together = touched(draw_detections(blank(640, 480), boxes))
    assert together.sum() > 0.95 * (alone[0].sum() + alone[1].sum())


def test_nothing_found_leaves_the_picture_as_it_is() -> None:
    """And it is a copy, so that the caller may go on drawing."""
    picture = blank(64, 48)
    drawn = draw_detections(picture, [])
    assert (drawn == picture).all()
    assert drawn is not picture


sides = st.floats(-50, 700, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.lists(st.tuples(sides, sides, sides, sides, st.text(max_size=60)), max_size=4),
)
def test_any_box_and_any_label_can_be_drawn_on_any_picture(
    width: int, height: int, found: list[tuple[float, float, float, float, str]]
) -> None:
    """Tiny pictures, boxes outside of them or turned inside out, labels of any letters: never an error."""
    picture = blank(width, height)
    drawn = draw_detections(
        picture, [detection(*box[:4], label=box[4], index=number) for number, box in enumerate(found)]
    )
    assert drawn.shape == picture.shape
    assert (picture == GREY).all()


rects = st.builds(Rect, st.integers(0, 250), st.integers(0, 250), st.integers(1, 60), st.integers(1, 60))


@given(st.integers(1, 100), st.integers(1, 30), rects, st.lists(rects, max_size=3))
def test_a_label_stays_in_the_picture_and_takes_a_free_place_if_there_is_one_beside_the_box(
    width: int, height: int, box: Rect, others: list[Rect]
) -> None:
    """Inside always; and when the place right above is inside and free, nothing is covered."""
    place = place_label((width, height), box, (310, 310), [box, *others])
    assert 0 <= place.x <= 310 - width
    assert 0 <= place.y <= 310 - height
    above = Rect(box.x, box.y - height, width, height)
    inside = above.y >= 0 and above.x + width <= 310
    if inside and not any(overlap(above, other) for other in others):
        assert not any(overlap(place, other) for other in [box, *others])


def test_captions_stand_below_and_leave_the_picture_alone() -> None:
    """The upper part is the very picture; the strip has a column for each engine, a bar for each score."""
    picture = np.random.default_rng(0).integers(0, 256, (272, 640, 3), dtype=np.uint8)
    top = Label("unicycle", 880, 0.8), Label("bicycle", 444, 0.1)
    drawn = draw_captions(picture, [Caption("LiteRT", top), Caption("ONNX Runtime", top[:1])])
    assert (drawn[:272] == picture).all()
    strip = drawn[272:]
    assert 60 <= len(strip) <= 140
    for column in (strip[:, :320], strip[:, 320:]):
        assert (column != GROUND).any(axis=2).sum() > 300


def test_a_bar_is_as_long_as_its_score() -> None:
    """Twice the score, twice the bar; a score outside of 0..1 does not leave its place."""

    def bar_px(score: float) -> int:
        drawn = draw_captions(blank(640, 200), [Caption("", (Label("", 0, score),))])
        return int((drawn[200:] == colour_of(0)).all(axis=2).sum(axis=1).max())

    assert bar_px(0.8) == pytest.approx(2 * bar_px(0.4), abs=2)
    assert bar_px(0.0) == 0
    assert bar_px(-1.0) == 0
    assert bar_px(7.0) == bar_px(1.0)


def test_a_name_that_is_too_long_is_cut_and_keeps_off_the_score() -> None:
    """The score of a class with an endless name is drawn exactly as that of one without a name."""
    strips = [
        draw_captions(blank(640, 10), [Caption("", (Label(name, 0, 0.5),))])[10:] for name in ("", "w" * 200)
    ]
    right = strips[0].shape[1] * 7 // 10
    assert (strips[0][:, right:] == strips[1][:, right:]).all()
    assert (strips[0] != strips[1]).any()


def test_a_note_stands_below() -> None:
    """One line, the picture above it untouched."""
    drawn = draw_note(blank(200, 100), "frame 7")
    assert (drawn[:100] == GREY).all()
    assert drawn.shape[0] > 100
    assert (drawn[100:] != GROUND).any()


def test_letters_that_the_font_has_not_are_replaced_and_accents_dropped() -> None:
    """A label list in any language gives something that can be read, or a question mark."""
    assert printable("café au lait") == "cafe au lait"
    assert printable("人 \n\x00") == "? ??"
    assert printable("plain ~ text") == "plain ~ text"


def test_what_the_model_does_not_see_is_darker() -> None:
    """Inside untouched, outside less than half as bright."""
    dimmed = dim_outside(blank(100, 60), Rect(20, 10, 40, 30))
    assert (dimmed[10:40, 20:60] == GREY).all()
    dimmed[10:40, 20:60] = 0
    assert dimmed.max() < GREY / 2


@pytest.mark.parametrize(("width", "height"), [(640, 524), (88, 72), (1, 1)])
def test_a_picture_is_enlarged_in_proportion(width: int, height: int) -> None:
    """176x144 to any width, up or down, at least one row."""
    assert enlarge(blank(176, 144), width).shape == (height, width, 3)


def test_a_contact_sheet_holds_every_picture_whole_and_apart() -> None:
    """Five pictures of different sizes in rows of three."""
    pictures = [np.full((40 + number, 60, 3), 50 * (number + 1), np.uint8) for number in range(5)]
    sheet = contact_sheet(pictures, columns=3, gap=10)
    assert sheet.shape == (10 + 42 + 10 + 44 + 10, 10 + 3 * 70, 3)
    for picture in pictures:
        assert (sheet == picture[0, 0]).all(axis=2).sum() == picture.shape[0] * picture.shape[1]


@pytest.mark.parametrize(
    "draw",
    [
        lambda picture: draw_detections(picture, []),
        lambda picture: draw_captions(picture, [Caption("", ())]),
        lambda picture: dim_outside(picture, Rect(0, 0, 1, 1)),
        lambda picture: enlarge(picture, 10),
        lambda picture: contact_sheet([picture], columns=1),
    ],
)
@pytest.mark.parametrize(
    "picture",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)],
    ids=["grey", "float", "empty"],
)
def test_what_is_no_picture_is_refused(draw: Callable[[Any], object], picture: NDArray[Any]) -> None:
    """With its shape and type, instead of a failure somewhere inside."""
    with pytest.raises(ValueError, match="expected a picture"):
        draw(picture)


def test_an_empty_sheet_and_no_caption_are_refused() -> None:
    """There would be nothing to see."""
    with pytest.raises(ValueError, match="contact sheet"):
        contact_sheet([], columns=3)
    with pytest.raises(ValueError, match="no caption"):
        draw_captions(blank(10, 10), [])
