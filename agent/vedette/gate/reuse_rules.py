"""The words and rules of giving an answer again. Pure, and without NumPy: the daemon uses them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Change(str, Enum):
    """What the gate sees."""

    FIRST = "first"  # there is nothing to compare with
    NONE = "none"
    SOMETHING = "something"  # a blob that is large enough to be an object
    LIGHT = "light"  # nearly everything: a lamp, infra-red, a camera that turned
    SIZE = "size"  # the camera gives another format


class Use(str, Enum):
    """What becomes of a frame."""

    AGAIN = "again"  # the earlier answer is given
    ANEW = "anew"  # the model answers it
    CHECK = "check"  # nothing changed, and the model answers it to see whether the earlier answer was right


class ReuseRules(NamedTuple):
    """`max_age_s` is how old an answer may be; `check_share` of the frames that would get it are answered."""

    max_age_s: float
    check_share: float = 0.01
