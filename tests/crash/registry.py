"""The scenarios that `python -m tests.crash` proves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.scenario_journal import JournalScenario
from tests.crash.scenario_part_file import PartFileScenario
from tests.crash.scenario_store import StoreScenario
from tests.crash.scenario_trust import TrustScenario
from tests.crash.scenario_update import UPDATES

if TYPE_CHECKING:
    from tests.crash.scenario import Scenario

ALL: tuple[Scenario, ...] = (
    JournalScenario(),
    PartFileScenario(),
    StoreScenario(),
    TrustScenario(),
    *UPDATES,
)


def find(name: str) -> Scenario:
    """A scenario by its name."""
    return next(scenario for scenario in ALL if scenario.name == name)
