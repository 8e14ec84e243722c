"""How an engine worker begins: at its priority before it imports anything heavy.

Started as `python -m vedette.engine.worker_start CONTROL_FD RESULTS_FD PULSE_FD PARENT_PID PACE SPEC`. NumPy,
OpenCV and the engine's runtime are more than half of the CPU time of loading a small model.
"""

from __future__ import annotations

import sys

from vedette.engine.priority import CpuPriority, Pace


def main(arguments: list[str]) -> int:
    """Choose the priority, then be the worker."""
    *numbers, pace, spec = arguments
    priority = CpuPriority(Pace(pace))
    from vedette.engine import worker  # noqa: PLC0415 - its imports are the heavy ones

    *descriptors, parent_pid = (int(number) for number in numbers)
    return worker.run(descriptors, parent_pid, spec, priority)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
