"""How fast a backlog may go: a token bucket, in messages. Pure."""

from __future__ import annotations


class TokenBucket:
    """Holds up to `burst` tokens, and gets `rate_per_s` new ones; times are monotonic."""

    def __init__(self, *, rate_per_s: float, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._since_ns = 0

    def empty(self, from_ns: int) -> None:
        """Hold nothing until `from_ns`, and fill from then on."""
        self._tokens, self._since_ns = 0.0, from_ns

    def wait_s(self, now_ns: int) -> float:
        """Seconds until a token is there; 0 when one is."""
        self._fill(now_ns)
        missing = 1.0 - self._tokens
        not_before_s = max(0.0, (self._since_ns - now_ns) / 1e9)
        return not_before_s + max(0.0, missing / self._rate_per_s)

    def take(self, now_ns: int) -> None:
        """Use a token; the caller looked at `wait_s`."""
        self._fill(now_ns)
        self._tokens -= 1.0

    def _fill(self, now_ns: int) -> None:
        if now_ns > self._since_ns:
            gained = (now_ns - self._since_ns) / 1e9 * self._rate_per_s
            self._tokens = min(self._burst, self._tokens + gained)
            self._since_ns = now_ns
