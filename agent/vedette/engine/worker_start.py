"""How an engine worker begins: tied to the daemon and at its priority before it imports what is heavy.

Started as `python -m vedette.engine.worker_start CONTROL_FD RESULTS_FD PULSE_FD PARENT_PID SPEC`. NumPy,
OpenCV and the engine's runtime are more than half of the CPU time of loading a small model.
"""

from __future__ import annotations

import sys

import msgspec

from vedette.engine.messages import WorkerSpec
from vedette.engine.priority import CpuPriority
from vedette.frame.lifeline import tie_to_parent


def main(arguments: list[str]) -> int:
    """Choose the priority, then be the worker."""
    *descriptors, parent_pid = (int(argument) for argument in arguments[:4])
    tie_to_parent(parent_pid)
    spec = msgspec.json.decode(arguments[4], type=WorkerSpec)
    priority = CpuPriority(spec.pace)
    from vedette.engine import worker  # noqa: PLC0415 - its imports are the heavy ones

    return worker.run(descriptors, spec, priority)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
