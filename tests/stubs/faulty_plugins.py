"""Engine plug-ins with faults that no well-behaved adapter would let out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.stubs.engines import StubEngine, open_stub

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.engine.port import EngineRequest, Progress


def open_raising(request: EngineRequest, progress: Progress) -> StubEngine:
    """Loading ends in an exception of no family of ours."""
    del request, progress
    raise RuntimeError("the driver is upside down")


class NanLater(StubEngine):
    """Proves itself well, then answers every frame with NaN."""

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Good in the self-test and the warm-up only."""
        outputs = super().run()
        if self._calls <= 2:
            return outputs
        return tuple(np.full_like(output, np.nan) for output in outputs)


def open_nan_later(request: EngineRequest, progress: Progress) -> StubEngine:
    """A NanLater with the stub's report."""
    engine = NanLater(request)
    engine.report = open_stub(request, progress).report
    return engine
