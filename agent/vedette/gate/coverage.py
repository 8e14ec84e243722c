"""What of a promise holds where some frames were not asked about. Pure, and without NumPy."""

from __future__ import annotations


def held_epsilon(epsilon: float, unmet: int, frames: int) -> float:
    """What is left of a promise: it does not cover frames that were to be escalated and were not."""
    return min(1.0, epsilon + (unmet / frames if frames else 0.0))
