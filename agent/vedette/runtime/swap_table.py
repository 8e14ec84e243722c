"""The switch from one model to the next as a table: state x event -> state. Pure.

"New" is the worker of the bundle that was asked for, "old" the one that served when it was asked. A pair that
the table does not hold is our bug. After a restart of the daemon nothing is recovered: the update machine's
record says what to serve, and the table begins at IDLE.
"""

from __future__ import annotations

from enum import Enum

from vedette.errors import InternalError


class SwapState(str, Enum):
    """Where a switch is."""

    IDLE = "idle"  # one model serves, nobody else is wanted
    LOADING = "loading"  # the new worker loads, the old one serves
    MOVING = "moving"  # cameras change hands, each at a frame boundary
    UNDOING = "undoing"  # the new worker died among the cameras; they go back to the old one
    PROVING = "proving"  # the new worker has all cameras and has not answered yet; the old one waits
    TRIAL = "trial"  # the new worker answers; the old one is ready to take over


class SwapEvent(str, Enum):
    """What happens to a switch."""

    WISHED = "wished"  # a bundle is asked for
    STAYED = "stayed"  # the bundle that is asked for serves already
    READY = "ready"  # the new worker is loaded, self-tested and warm
    MOVED = "moved"  # the last camera changed hands
    UNDONE = "undone"  # everything the new worker held is accounted for
    ANSWERED = "answered"  # the new worker's first good answer
    CONFIRMED = "confirmed"  # the trial is over, or there was none
    NEW_LOST = "new_lost"
    OLD_LOST = "old_lost"


_S, _E = SwapState, SwapEvent

TABLE: dict[SwapState, dict[SwapEvent, SwapState]] = {
    _S.IDLE: {_E.WISHED: _S.LOADING, _E.STAYED: _S.IDLE},
    _S.LOADING: {
        _E.WISHED: _S.LOADING,
        _E.STAYED: _S.IDLE,
        _E.READY: _S.MOVING,
        _E.NEW_LOST: _S.IDLE,
        _E.OLD_LOST: _S.LOADING,
    },
    _S.MOVING: {_E.MOVED: _S.PROVING, _E.NEW_LOST: _S.UNDOING, _E.OLD_LOST: _S.PROVING},
    _S.UNDOING: {_E.UNDONE: _S.IDLE, _E.OLD_LOST: _S.UNDOING},
    _S.PROVING: {
        _E.WISHED: _S.LOADING,
        _E.ANSWERED: _S.TRIAL,
        _E.NEW_LOST: _S.IDLE,
        _E.OLD_LOST: _S.PROVING,
    },
    _S.TRIAL: {
        _E.WISHED: _S.LOADING,
        _E.STAYED: _S.IDLE,
        _E.CONFIRMED: _S.IDLE,
        _E.NEW_LOST: _S.IDLE,
        _E.OLD_LOST: _S.TRIAL,
    },
}


def takes(state: SwapState, event: SwapEvent) -> bool:
    """Whether the event means anything in this state; a wish that does not has to wait."""
    return event in TABLE[state]


def step(state: SwapState, event: SwapEvent) -> SwapState:
    """The next state.

    Raises:
        InternalError: The table has no such transition; nothing changed.
    """
    try:
        return TABLE[state][event]
    except KeyError:
        raise InternalError(f"a model switch that is {state.value} cannot be {event.value}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_S.IDLE.value}"]
    lines += [
        f"    {state.value} --> {target.value}: {event.value}"
        for state, row in TABLE.items()
        for event, target in row.items()
    ]
    return "\n".join(lines) + "\n"
