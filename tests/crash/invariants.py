"""What holds of a box at every instant, whatever goes wrong: I1 to I10 of the design.

Each check of a scenario names the invariant that it finds broken, `I4: …`. Where each is looked at:

| invariant | by |
|---|---|
| I1 to I9 | `scenario_update`, of whole updates; I1, I4, I9 also `scenario_store`, I3 `scenario_trust` |
| I10 | `scenario_trust`, with clocks that are wrong |

`test_crash_invariants` breaks each of them on purpose, and expects it to be named.
"""

from __future__ import annotations

INVARIANTS: dict[str, str] = {
    "I1": "a valid record points to a complete, verified model",
    "I2": "nothing unverified is ever loaded",
    "I3": "counters of releases and documents never decrease",
    "I4": "an unconfirmed model is never the active one",
    "I5": "attempts, bytes, disk and writes are bounded",
    "I6": "every update has exactly one result, which is not lost",
    "I7": "at every step some model serves, or is being loaded after a start",
    "I8": "a condemned candidate is not tried again by itself",
    "I9": "the store returns to its steady size",
    "I10": "a wrong clock neither lets in what is known to be expired, nor blocks for ever",
}
_SAID = "broken "


def broken(invariant: str, what: str) -> str:
    """How a check says it."""
    assert invariant in INVARIANTS, invariant
    return f"{invariant}: {what}"


def word_of(violation: str) -> str:
    """The word by which a run says what it saw broken on its way; it is remembered like a promise."""
    return _SAID + violation


def said_in(word: str) -> str | None:
    """The violation in such a word."""
    return word.removeprefix(_SAID) if word.startswith(_SAID) else None
