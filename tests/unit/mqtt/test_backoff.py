"""When a lost broker is tried again (case 28), for one box and for a fleet of them."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from vedette.clock import ManualClock
from vedette.mqtt.backoff import Backoff


class _Middle(random.Random):
    """Dice that always fall in the middle."""

    def random(self) -> float:
        return 0.5


def _backoff(clock: ManualClock, rng: random.Random | None = None, *, max_s: float = 120.0) -> Backoff:
    return Backoff(min_s=1.0, max_s=max_s, clock=clock, rng=rng or _Middle(0), proven_s=60.0)


def test_the_first_attempt_is_due_at_once() -> None:
    assert _backoff(ManualClock()).remaining_s() == 0


def test_pauses_double_up_to_the_ceiling() -> None:
    backoff = _backoff(ManualClock())
    assert [backoff.ended(0.0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_thousand_failures_are_no_overflow() -> None:
    backoff = _backoff(ManualClock())
    assert {backoff.ended(0.0) for _ in range(1000)} <= {0.5, 1, 2, 4, 8, 16, 32, 60}


def test_the_pause_counts_from_the_end_of_the_attempt() -> None:
    """Case 28: an attempt that hung for 30 s is followed by a whole pause all the same."""
    clock = ManualClock()
    backoff = _backoff(clock)
    for _ in range(4):
        clock.advance_s(30.0)
        pause_s = backoff.ended(0.0)
        assert backoff.remaining_s() == pytest.approx(pause_s)
        clock.advance_s(pause_s / 2)
        assert backoff.remaining_s() == pytest.approx(pause_s / 2)
        clock.advance_s(pause_s)
        assert backoff.remaining_s() == 0


def test_every_pause_is_drawn_from_zero_to_the_ceiling() -> None:
    rng = random.Random(7)  # noqa: S311 - dice
    drawn = []
    for _ in range(2000):
        backoff = _backoff(ManualClock(), rng)
        drawn.append([backoff.ended(0.0) for _ in range(3)][-1])
    assert 0 <= min(drawn) < 0.05
    assert 3.95 < max(drawn) <= 4.0
    assert sum(drawn) / len(drawn) == pytest.approx(2.0, abs=0.1)


def test_a_broker_that_flaps_once_a_second_is_left_in_peace() -> None:
    """Each connection comes about and lasts a second: in an hour that is some sixty attempts, not 1,800."""
    clock = ManualClock()
    backoff = _backoff(clock, random.Random(3))  # noqa: S311 - dice
    attempts = 0
    while clock.monotonic_ns() < 3600e9:
        attempts += 1
        clock.advance_s(1.0)
        clock.advance_s(backoff.ended(1.0))
    assert attempts < 100


def test_a_connection_that_proved_good_makes_the_next_pause_short() -> None:
    backoff = _backoff(ManualClock())
    for _ in range(10):
        backoff.ended(0.0)
    assert backoff.ended(59.0) == 60
    assert backoff.ended(60.0) == 0.5


WINDOW_S = 10.0
AWAY_S = 1200.0


def _returns(*, clients: int, hang_s: float, max_s: float, seed: int) -> list[float]:
    """Seconds after the broker's return at which each client is connected again.

    All lose it at once. While it is away an attempt hangs and fails; one begun after its return succeeds.
    """
    clock = ManualClock()
    rng = random.Random(seed)  # noqa: S311 - dice
    backoffs = [_backoff(clock, rng, max_s=max_s) for _ in range(clients)]
    # Ends of attempts in the order of time; the first end is the loss itself.
    ends = [(0.0, client) for client in range(clients)]
    returned = []
    while ends:
        end_s, client = heapq.heappop(ends)
        clock.advance_s(end_s - clock.monotonic_ns() / 1e9 if end_s * 1e9 > clock.monotonic_ns() else 0.0)
        begin_s = end_s + backoffs[client].ended(100.0 if end_s == 0 else 0.0)
        if begin_s >= AWAY_S:
            returned.append(begin_s - AWAY_S)
        else:
            heapq.heappush(ends, (begin_s + hang_s, client))
    return returned


@pytest.mark.parametrize("seed", range(5))
def test_five_hundred_clients_come_back_spread_over_the_window(seed: int) -> None:
    """Case 28: away for 20 minutes with connects that hang 30 s, then back.

    The window is from the return to the last client. In it, the fullest ten seconds hold at most three times
    the mean of all ten seconds.
    """
    returned = _returns(clients=500, hang_s=30.0, max_s=120.0, seed=seed)
    assert len(returned) == 500
    assert 60 < max(returned) <= 150, "the longest pause, and an attempt that hung meanwhile"
    counts = Counter(int(at_s / WINDOW_S) for at_s in returned)
    mean = 500 / (int(max(returned) / WINDOW_S) + 1)
    assert max(counts.values()) <= 3 * mean


def test_the_simulation_sees_a_herd() -> None:
    """Without jitter all come in the same ten seconds, so the bar above tells one from the other."""
    clock = ManualClock()
    backoffs = [_backoff(clock) for _ in range(500)]
    pauses = Counter(int(backoff.ended(0.0) / WINDOW_S) for backoff in backoffs)
    assert max(pauses.values()) == 500
