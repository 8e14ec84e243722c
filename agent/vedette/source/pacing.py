"""When a frame is due: rate caps and real-time playback, on an absolute schedule. Pure."""

from __future__ import annotations

SECOND_NS = 1_000_000_000
RESTART_BEHIND_NS = SECOND_NS


class RateCap:
    """Admits at most `fps` frames a second in the long run, half a period of jitter forgiven.

    The schedule is absolute: each admitted frame moves it by one period, however early or late the frame was,
    so a 30 fps source with jitter under a cap of 30 loses nothing, and no rounding adds up.
    """

    def __init__(self, fps: float) -> None:
        self._period_ns = SECOND_NS / fps if fps > 0 else 0.0
        self._due_ns: float | None = None

    def admits(self, time_ns: float) -> bool:
        """Whether the frame of `time_ns` (any clock that does not go back) is to be handed on."""
        if not self._period_ns:
            return True
        half_ns = self._period_ns / 2
        due_ns = time_ns if self._due_ns is None else self._due_ns
        if time_ns < due_ns - half_ns:
            return False
        self._due_ns = max(due_ns, time_ns - half_ns) + self._period_ns
        return True


class Playback:
    """Plays media time against the monotonic clock, as a camera would.

    Frame `t` of the media is due at start + t. A player that fell more than a second behind starts its
    schedule anew instead of rushing through the backlog. Media time that goes back (a loop) continues.
    """

    def __init__(self) -> None:
        self._start_ns: int | None = None
        self._media_ns = -1

    def due_ns(self, media_ns: int, now_ns: int) -> int:
        """Monotonic time at which the frame is due."""
        restarted = media_ns < self._media_ns
        self._media_ns = media_ns
        if self._start_ns is None or restarted or now_ns - (self._start_ns + media_ns) > RESTART_BEHIND_NS:
            self._start_ns = now_ns - media_ns
        return self._start_ns + media_ns
