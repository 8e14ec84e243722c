"""The memory that all frame rings share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.config.notation import parse_byte_size
from vedette.errors import ConfigError
from vedette.frame.layout import MAX_RING_BYTES, RingGeometry
from vedette.runtime.ring_budget import RingBudget

VGA = RingGeometry(4, 640 * 480 * 3, newest_wins=True)


def test_cameras_fit_up_to_the_last_byte_and_not_beyond() -> None:
    """Two rings fill the limit exactly; a third camera is refused, with what is free and what would do."""
    budget = RingBudget(2 * VGA.total_bytes)
    budget.reserve("left", VGA)
    budget.reserve("right", VGA)
    with pytest.raises(ConfigError, match=r"camera third: .* needs 3,694,592 bytes .*; 0 of the") as caught:
        budget.reserve("third", VGA)
    assert caught.value.exit_code == 78
    assert caught.value.cure is not None
    assert str(3 * VGA.total_bytes) in caught.value.cure


def test_the_cure_is_one() -> None:
    """The limit that the message names is enough."""
    with pytest.raises(ConfigError) as caught:
        RingBudget(1_000_000).reserve("front", VGA)
    assert caught.value.cure is not None
    named = parse_byte_size(caught.value.cure.split("at least ")[1].split(" ")[0])
    RingBudget(named).reserve("front", VGA)


def test_a_larger_ring_replaces_the_camera_s_own_reservation() -> None:
    """A camera whose pictures grow is not charged for the ring that it gives up."""
    large = RingGeometry(4, 2 * VGA.slot_bytes, newest_wins=True)
    budget = RingBudget(large.total_bytes)
    budget.reserve("front", VGA)
    budget.reserve("front", large)


def test_a_refused_reservation_changes_nothing() -> None:
    """The camera keeps what it had, the others can still have the rest."""
    budget = RingBudget(2 * VGA.total_bytes)
    budget.reserve("left", VGA)
    with pytest.raises(ConfigError):
        budget.reserve("left", RingGeometry(64, VGA.slot_bytes, newest_wins=True))
    budget.reserve("right", VGA)


def test_released_memory_can_be_had_again() -> None:
    """And releasing twice is harmless."""
    budget = RingBudget(VGA.total_bytes)
    budget.reserve("left", VGA)
    budget.release("left")
    budget.release("left")
    budget.reserve("right", VGA)


def test_no_limit_allows_more_than_a_ring_can_address() -> None:
    """A size from a hostile header does not become an allocation."""
    with pytest.raises(ConfigError):
        RingBudget(1 << 60).reserve("front", RingGeometry(64, MAX_RING_BYTES, newest_wins=True))


@given(
    st.integers(1, 1 << 24),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(2, 64), st.integers(1, 1 << 20)), max_size=30),
)
def test_what_is_set_aside_never_exceeds_the_limit(limit: int, wishes: list[tuple[str, int, int]]) -> None:
    """Whatever the cameras ask for and in which order."""
    budget, held = RingBudget(limit), dict[str, int]()
    for name, slots, slot_bytes in wishes:
        geometry = RingGeometry(slots, slot_bytes, newest_wins=False)
        others = sum(size for other, size in held.items() if other != name)
        if others + geometry.total_bytes <= limit:
            budget.reserve(name, geometry)
            held[name] = geometry.total_bytes
        else:
            with pytest.raises(ConfigError):
                budget.reserve(name, geometry)
        assert sum(held.values()) <= limit


def test_what_cameras_leave_may_be_lent_and_goes_back_to_a_camera_that_needs_it() -> None:
    budget = RingBudget(1_000_000)
    assert budget.lend(600_000)
    assert budget.lend(1_000_000), "in place of what was lent before"
    assert not budget.lend(1_000_001)
    assert budget.lent_bytes == 1_000_000
    budget.reserve("front", RingGeometry(2, 100_000, newest_wins=True))
    assert budget.lent_bytes == 0
    assert not budget.lend(900_000)
    assert budget.lend(700_000)
    budget.take_back()
    assert budget.lent_bytes == 0
