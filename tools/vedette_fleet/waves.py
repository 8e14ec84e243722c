"""Percentages to shares of 10,000 buckets, and waves that only grow (casebook 62). Pure.

A device is in when its bucket is below the share, so a larger share keeps every device of a smaller one.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from vedette.errors import UsageError
from vedette.wire.rollout import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERYBODY = (BUCKETS,)
_CURE = "write percentages that grow, such as 1%,10%,100%"


def parse_share(text: str) -> int:
    """The share of BUCKETS that a percentage names, exactly.

    Raises:
        UsageError: No percentage of 0 to 100, or finer than a bucket.
    """
    if "e" in text.lower():  # of 1e999999999 a fraction would try to be exact
        raise UsageError(f"{text!r} is no percentage", cure=_CURE)
    try:
        share = Fraction(text.strip().removesuffix("%").strip()) * BUCKETS / 100
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"{text!r} is no percentage", cure=_CURE) from error
    if not 0 <= share <= BUCKETS:
        raise UsageError(f"{text!r} is not within 0 % and 100 %", cure=_CURE)
    if share.denominator != 1:
        raise UsageError(
            f"{text!r} is finer than {BUCKETS} buckets tell apart", cure="two digits after the point at most"
        )
    return share.numerator


def parse_waves(text: str) -> tuple[int, ...]:
    """The shares of a list such as `1%,10%,100%`.

    Raises:
        UsageError: A part is no percentage, or one is not larger than the one before.
    """
    shares = tuple(parse_share(part) for part in text.split(","))
    if any(later <= earlier for earlier, later in pairwise(shares)):
        raise UsageError(f"waves {text!r} do not grow", cure=_CURE)
    return shares


def next_share(waves: Sequence[int], share: int) -> int | None:
    """The wave after the one that is open; None after the last."""
    return next((wave for wave in waves if wave > share), None)


def wave_number(waves: Sequence[int], share: int) -> int:
    """How many waves are open at a share."""
    return sum(wave <= share for wave in waves)


def percent(share: int) -> str:
    """A share for people."""
    return f"{share * 100 / BUCKETS:g} %"
