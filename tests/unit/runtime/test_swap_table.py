"""The switch's table: every pair is either a transition or refused, and every state has a way home."""

from __future__ import annotations

from itertools import product

import pytest

from vedette.errors import InternalError
from vedette.runtime.swap_table import TABLE, SwapEvent, SwapState, diagram, step, takes

PAIRS = list(product(SwapState, SwapEvent))


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda value: value.value)
def test_every_pair_is_a_transition_or_is_refused_by_name(state: SwapState, event: SwapEvent) -> None:
    """Illegal events raise and change nothing."""
    if takes(state, event):
        assert step(state, event) is TABLE[state][event]
    else:
        with pytest.raises(InternalError, match=f"{state.value} cannot be {event.value}"):
            step(state, event)


def test_a_death_of_either_worker_ends_with_one_that_serves() -> None:
    """The new one's death leads back, wherever it happens; the old one's, while it waits, leads nowhere."""
    for state in (SwapState.LOADING, SwapState.PROVING, SwapState.TRIAL):
        assert step(state, SwapEvent.NEW_LOST) is SwapState.IDLE
    assert step(step(SwapState.MOVING, SwapEvent.NEW_LOST), SwapEvent.UNDONE) is SwapState.IDLE
    for state in (SwapState.LOADING, SwapState.PROVING, SwapState.TRIAL, SwapState.UNDOING):
        assert step(state, SwapEvent.OLD_LOST) is state
    assert step(SwapState.MOVING, SwapEvent.OLD_LOST) is SwapState.PROVING


def test_every_state_is_reached_and_left() -> None:
    """From idle to idle again."""
    reached = {SwapState.IDLE}
    for _ in SwapState:
        reached |= {target for state in reached for target in TABLE[state].values()}
    assert reached == set(SwapState)
    home = {SwapState.IDLE}
    for _ in SwapState:
        home |= {state for state in SwapState if home & set(TABLE[state].values())}
    assert home == set(SwapState)


def test_a_wish_waits_only_while_cameras_change_hands() -> None:
    """A switch that hangs before its first answer can be taken back."""
    waiting = {state for state in SwapState if not takes(state, SwapEvent.WISHED)}
    assert waiting == {SwapState.MOVING, SwapState.UNDOING}


def test_the_diagram_holds_every_transition() -> None:
    """It is made from the table."""
    assert diagram().count(" --> ") == 1 + sum(len(row) for row in TABLE.values())
