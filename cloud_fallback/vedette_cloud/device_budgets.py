"""How much a device may ask: a number of requests a minute and a day. Pure; one thread owns it."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

MINUTE_NS = 60 * 10**9
DAY_NS = 24 * 60 * MINUTE_NS
# A window moves on in this many steps, so a request is forgotten at most a step late and never early.
STEPS = 60
# Tokens name devices, so there are as many as the file has; without one there is a single device.
MAX_DEVICES = 100_000


class Overdrawn(NamedTuple):
    """Which limit is used up, and for how long at least."""

    limit: int
    span: str
    wait_ns: int

    def text(self, device: str) -> str:
        """For the device's owner."""
        return f"the budget of {device!r} is used up: {self.limit} requests a {self.span}"


class SlidingWindow:
    """At most `limit` in any `span_ns`, counted in bounded memory."""

    def __init__(self, limit: int, span_ns: int) -> None:
        self._limit = limit
        self._span_ns = span_ns
        self._step_ns = span_ns // STEPS
        self._steps: deque[list[int]] = deque()  # [number of the step, requests in it]
        self._used = 0

    def wait_ns(self, now_ns: int) -> int:
        """0 where one more fits now, else how long until then."""
        self._forget(now_ns)
        if self._used < self._limit:
            return 0
        if not self._steps:  # a limit of 0
            return self._span_ns
        return self._gone_ns(self._steps[0][0]) - now_ns

    def take(self, now_ns: int) -> None:
        """Count one."""
        step = now_ns // self._step_ns
        if not self._steps or self._steps[-1][0] != step:
            self._steps.append([step, 0])
        self._steps[-1][1] += 1
        self._used += 1

    def give_back(self) -> None:
        """One that was counted last was for nothing."""
        if self._steps and self._steps[-1][1]:
            self._steps[-1][1] -= 1
            self._used -= 1

    def _forget(self, now_ns: int) -> None:
        while self._steps and self._gone_ns(self._steps[0][0]) <= now_ns:
            self._used -= self._steps.popleft()[1]

    def _gone_ns(self, step: int) -> int:
        """When the last request that a step may hold is a whole span old."""
        return (step + 1) * self._step_ns + self._span_ns


class DeviceBudgets:
    """The windows of every device; None: no limit. A restart of the server forgets them."""

    def __init__(self, *, per_minute: int | None, per_day: int | None) -> None:
        self._limits = [
            (limit, span, span_ns)
            for limit, span, span_ns in ((per_minute, "minute", MINUTE_NS), (per_day, "day", DAY_NS))
            if limit is not None
        ]
        self._devices: OrderedDict[str, list[SlidingWindow]] = OrderedDict()

    def take(self, device: str, now_ns: int) -> Overdrawn | None:
        """Count a request of a device, or say which limit it is beyond; then nothing is counted."""
        windows = self._windows(device)
        waits = [window.wait_ns(now_ns) for window in windows]
        if any(waits):
            longest = max(range(len(waits)), key=waits.__getitem__)
            limit, span, _ = self._limits[longest]
            return Overdrawn(limit, span, waits[longest])
        for window in windows:
            window.take(now_ns)
        return None

    def give_back(self, device: str) -> None:
        """The server, not the device, was why its last request had no answer."""
        for window in self._devices.get(device, ()):
            window.give_back()

    def _windows(self, device: str) -> list[SlidingWindow]:
        windows = self._devices.get(device)
        if windows is None:
            windows = self._devices[device] = [SlidingWindow(limit, ns) for limit, _, ns in self._limits]
            while len(self._devices) > MAX_DEVICES:
                self._devices.popitem(last=False)
        return windows
