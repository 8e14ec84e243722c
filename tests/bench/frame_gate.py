"""What it costs to see that nothing changed: `python -m tests.bench.frame_gate`."""

from __future__ import annotations

import sys
import time
from typing import Any

import cv2
import numpy as np
from tests.bench.verdict import Verdict, options, table

from vedette.gate.frame_gate import FrameGate
from vedette.gate.reuse_rules import Change

WIDTH, HEIGHT = 640, 480


def main() -> int:
    """Measure, show, judge."""
    arguments = options("the frame gate", rounds=400).parse_args()
    verdict = Verdict(f"The frame gate at {WIDTH}x{HEIGHT}, microseconds a frame")
    rng = np.random.default_rng(1)
    coarse: Any = cv2.resize(rng.integers(30, 220, (12, 16, 3), np.uint8), (WIDTH, HEIGHT))
    frames = [np.clip(coarse + rng.normal(0, 3, coarse.shape), 0, 255).astype(np.uint8) for _ in range(8)]
    rows = []
    for name, kind in (("BGR", frames), ("luma", [np.ascontiguousarray(one[:, :, 1]) for one in frames])):
        gate = FrameGate()
        gate.look(kind[0])
        gate.answered(kind[0].shape)
        taken = []
        for number in range(arguments.rounds):
            frame = kind[number % len(kind)]
            began_ns = time.perf_counter_ns()
            change = gate.look(frame)
            taken.append((time.perf_counter_ns() - began_ns) / 1e3)
            assert change is Change.NONE
        rows.append([name, *(f"{np.percentile(taken, share):.0f}" for share in (50, 95))])
        verdict.at_most(f"{name}: median", float(np.median(taken)), 200, " us")
    table(("", "p50", "p95"), rows)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
