"""Answers drawn into pictures, for people. Pure.

The picture is enlarged first and drawn on afterwards, so that lines and letters stay crisp on small frames.
Letters always stand on a dark ground; a label goes where it covers no detection, if there is such a place.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import cv2
import msgspec
import numpy as np

from vedette.vision.orientation import Rect
from vedette.wire.messages import Detection, Label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Colour = tuple[int, int, int]

FONT = cv2.FONT_HERSHEY_SIMPLEX
# Blue, green, red. Bright enough for a dark ground, and told apart by people who see red and green alike.
PALETTE: tuple[Colour, ...] = (
    (86, 214, 255),
    (235, 179, 86),
    (120, 200, 90),
    (190, 130, 240),
    (80, 130, 245),
    (220, 220, 120),
)
INK: Colour = (245, 245, 245)
QUIET_INK: Colour = (176, 176, 176)
GROUND: Colour = (30, 26, 24)
GROOVE: Colour = (70, 64, 60)


class Caption(msgspec.Struct, frozen=True):
    """One column under a picture: who says so, and the labels, surest first."""

    heading: str
    top: tuple[Label, ...]


def enlarge(picture: Pixels, width: int) -> Pixels:
    """Return a copy `width` pixels wide, of the same proportions.

    Args:
        picture: (height, width, 3), BGR.
        width: Pixels.

    Raises:
        ValueError: Not such a picture.
    """
    _check(picture)
    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    shrinking = width < picture.shape[1]
    return _pixels(
        cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA if shrinking else cv2.INTER_CUBIC)
    )


def draw_detections(picture: Pixels, detections: Sequence[Detection], *, scale: float = 1.0) -> Pixels:
    """Draw boxes, key points, labels and scores into a copy.

    Args:
        picture: (height, width, 3), BGR, upright.
        detections: In pixels of the frame before it was enlarged.
        scale: Pixels of `picture` for each pixel of that frame.

    Raises:
        ValueError: Not such a picture.
    """
    _check(picture)
    drawn: Pixels = picture.copy()
    line_px = _line_px(drawn)
    boxes = [_scaled_box(detection, scale) for detection in detections]
    for detection, box in zip(detections, boxes, strict=True):
        corners = (box.x, box.y), (box.x + box.width, box.y + box.height)
        cv2.rectangle(drawn, *corners, GROUND, line_px * 2 + 1, cv2.LINE_AA)
        cv2.rectangle(drawn, *corners, colour_of(detection.index), line_px, cv2.LINE_AA)
        for x, y in detection.keypoints or ():
            centre = round(x * scale), round(y * scale)
            cv2.circle(drawn, centre, line_px * 2 + 1, GROUND, cv2.FILLED, cv2.LINE_AA)
            cv2.circle(drawn, centre, line_px * 2 - 1, INK, cv2.FILLED, cv2.LINE_AA)
    taken: list[Rect] = []
    for detection, box in zip(detections, boxes, strict=True):
        text = f"{printable(detection.label)} {detection.score:.2f}"
        taken.append(_draw_label(drawn, text, box, boxes + taken, colour_of(detection.index)))
    return drawn


def draw_captions(picture: Pixels, captions: Sequence[Caption]) -> Pixels:
    """Put the labels of one or more classifications under a copy of the picture, with a bar for each score.

    Args:
        picture: (height, width, 3), BGR.
        captions: One column each, from left to right.

    Returns:
        (height + strip, width, 3): the strip lies below, so that nothing of the picture is covered.

    Raises:
        ValueError: Not such a picture, or no caption.
    """
    _check(picture)
    if not captions:
        raise ValueError("there is no caption to draw")
    width = picture.shape[1]
    row_px = max(16, width // 22)
    rows = 1 + max(len(caption.top) for caption in captions)
    strip = np.full((row_px * rows + row_px // 2, width, 3), GROUND, np.uint8)
    column_px = width // len(captions)
    for number, caption in enumerate(captions):
        area = Rect(number * column_px, row_px // 4, column_px, row_px)
        _draw_column(strip, area, caption, PALETTE[number % len(PALETTE)])
    return np.vstack((picture, strip))


def draw_note(picture: Pixels, text: str) -> Pixels:
    """Put one quiet line under a copy of the picture.

    Raises:
        ValueError: Not such a picture.
    """
    _check(picture)
    row_px = max(16, picture.shape[1] // 22)
    strip = np.full((row_px + row_px // 2, picture.shape[1], 3), GROUND, np.uint8)
    room = Rect(row_px // 2, row_px // 4, picture.shape[1] - row_px, row_px)
    _write(strip, room, printable(text), QUIET_INK)
    return np.vstack((picture, strip))


def dim_outside(picture: Pixels, part: Rect) -> Pixels:
    """Return a copy that is darker outside of `part`, a rectangle in pixels of the picture.

    Raises:
        ValueError: Not such a picture.
    """
    _check(picture)
    dimmed = _pixels(cv2.convertScaleAbs(picture, alpha=0.45))
    rows, columns = slice(part.y, part.y + part.height), slice(part.x, part.x + part.width)
    dimmed[rows, columns] = picture[rows, columns]
    return dimmed


def contact_sheet(pictures: Sequence[Pixels], *, columns: int, gap: int = 12) -> Pixels:
    """Lay pictures out in rows; in each row they stand at the top of cells as wide as the widest of all.

    Args:
        pictures: (height, width, 3) each, BGR, of any sizes.
        columns: Pictures in a row.
        gap: Pixels between them and around them.

    Raises:
        ValueError: No picture, no column, or what is no picture.
    """
    if not pictures or columns < 1:
        raise ValueError("a contact sheet needs a picture and a column")
    for picture in pictures:
        _check(picture)
    cell_px = max(picture.shape[1] for picture in pictures)
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    heights = [max(picture.shape[0] for picture in row) for row in rows]
    across = min(columns, len(pictures))
    shape = sum(heights) + gap * (len(rows) + 1), across * cell_px + gap * (across + 1), 3
    sheet = np.full(shape, GROUND, np.uint8)
    y = gap
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            x = gap + column * (cell_px + gap) + (cell_px - picture.shape[1]) // 2
            sheet[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
        y += height + gap
    return sheet


def colour_of(index: int) -> Colour:
    """The colour of a class; the same class always has the same one."""
    return PALETTE[index % len(PALETTE)]


def printable(text: str) -> str:
    """Letters that the font has: accents are taken off, what is left over becomes `?`."""
    plain = unicodedata.normalize("NFKD", text)
    bare = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return "".join(letter if " " <= letter <= "~" else "?" for letter in bare)


def place_label(size: tuple[int, int], box: Rect, picture: tuple[int, int], taken: Sequence[Rect]) -> Rect:
    """Find a place for a label beside its box: above, below, right, left; else where it covers least.

    Args:
        size: Width, height of the label in pixels.
        box: What it belongs to.
        picture: Width, height of the picture; the label stays inside.
        taken: Rectangles that should not be covered, the box itself among them.
    """
    width, height = size
    x, y = box.x, box.y
    right, bottom = x + box.width, y + box.height
    corners = (
        *((x, y - height), (right - width, y - height), (x, bottom), (right - width, bottom)),
        *((right, y), (right, bottom - height), (x - width, y), (x - width, bottom - height)),
    )
    places = [
        Rect(max(0, min(left, picture[0] - width)), max(0, min(top, picture[1] - height)), width, height)
        for left, top in corners
    ]
    return min(places, key=lambda place: sum(_overlap(place, other) for other in taken))


def _overlap(one: Rect, other: Rect) -> int:
    """The area that two rectangles share, in pixels."""
    across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return max(0, across) * max(0, down)


def _draw_label(drawn: Pixels, text: str, box: Rect, taken: Sequence[Rect], colour: Colour) -> Rect:
    height, width = drawn.shape[:2]
    line_px = _line_px(drawn)
    row_px = min(height, max(14, min(width, height) // 14))
    label_px = min(width, _text_width(text, row_px) + row_px // 2)
    # The outline of the box is as good as taken: a label on it would hide where the box ends.
    outlined = Rect(
        box.x - line_px, box.y - line_px, box.width + 2 * line_px + 1, box.height + 2 * line_px + 1
    )
    place = place_label((label_px, row_px), outlined, (width, height), taken)
    area = drawn[place.y : place.y + place.height, place.x : place.x + place.width]
    area[:] = GROUND
    area[:, : max(2, line_px)] = colour
    _write(drawn, place._replace(x=place.x + row_px // 4, width=place.width - row_px // 4), text, INK)
    return place


def _draw_column(strip: Pixels, area: Rect, caption: Caption, colour: Colour) -> None:
    """A heading, then a row for each label: name, bar, score in per cent. `area` is the first row."""
    margin = area.height // 2
    bar_px, score_px = area.width // 5, _text_width("100 %", area.height)
    left, right = area.x + margin, area.x + area.width - margin
    _write(
        strip, Rect(left, area.y, area.width - 2 * margin, area.height), printable(caption.heading), colour
    )
    for number, label in enumerate(caption.top, start=1):
        y = area.y + number * area.height
        ink = INK if number == 1 else QUIET_INK
        bar_x = right - score_px - bar_px
        room = Rect(left, y, bar_x - left - margin // 2, area.height)
        _write(strip, room, printable(label.label), ink)
        top, bottom = y + area.height * 2 // 5, y + area.height * 3 // 5
        strip[top:bottom, bar_x : bar_x + bar_px - margin // 2] = GROOVE
        filled = round((bar_px - margin // 2) * min(1.0, max(0.0, label.score)))
        strip[top:bottom, bar_x : bar_x + filled] = colour
        score = f"{label.score:.0%}".replace("%", " %")
        score_x = right - _text_width(score, area.height)
        _write(strip, Rect(score_x, y, right - score_x, area.height), score, ink)


def _write(canvas: Pixels, room: Rect, text: str, ink: Colour) -> None:
    """One line of text in the middle of the height of `room`; narrowed by leaving letters out at the end."""
    shown = text
    while _text_width(shown, room.height) > room.width and len(shown) > 1:
        shown = shown.removesuffix("..")[:-1].rstrip() + ".."
        if shown == "..":
            return
    scale, stroke_px = _font(room.height)
    (_, letters_px), _ = cv2.getTextSize("H", FONT, scale, stroke_px)
    baseline = room.y + (room.height + letters_px) // 2
    cv2.putText(canvas, shown, (room.x, baseline), FONT, scale, ink, stroke_px, cv2.LINE_AA)


def _text_width(text: str, row_px: int) -> int:
    scale, stroke_px = _font(row_px)
    return int(cv2.getTextSize(text, FONT, scale, stroke_px)[0][0])


def _font(row_px: int) -> tuple[float, int]:
    """Font scale and stroke for a row of that height: capitals take about half of it."""
    return row_px / 44, 1 if row_px < 32 else 2


def _line_px(picture: Pixels) -> int:
    line_px: int = max(1, round(min(picture.shape[:2]) / 240))
    return line_px


def _scaled_box(detection: Detection, scale: float) -> Rect:
    x1, y1, x2, y2 = (round(value * scale) for value in detection.box)
    return Rect(x1, y1, x2 - x1, y2 - y1)


def _check(picture: Pixels) -> None:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise ValueError(
            f"expected a picture of shape (height, width, 3) in uint8, got {picture.shape} in {picture.dtype}"
        )


def _pixels(picture: NDArray[np.generic]) -> Pixels:
    return np.asarray(picture, np.uint8)
