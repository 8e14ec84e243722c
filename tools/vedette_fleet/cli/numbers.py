"""Number options: click's ranges let NaN through, and infinity where there is no upper end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from vedette.wire.rollout import MAX_FRAMES, MAX_LATENCY_RATIO, MAX_WAIT_S

if TYPE_CHECKING:
    from typing import Any


class FiniteRange(click.FloatRange):
    """A number within a range; NaN and infinity are none, and JSON cannot carry them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's signature
        """Read and judge one value.

        Raises:
            click.BadParameter: No number, not finite, or out of the range.
        """
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return float(super().convert(value, param, ctx))


SECONDS = FiniteRange(0, MAX_WAIT_S)
FRAMES = click.IntRange(0, MAX_FRAMES)
SHARE = FiniteRange(0, 1)
RATIO = FiniteRange(0, MAX_LATENCY_RATIO, min_open=True)
