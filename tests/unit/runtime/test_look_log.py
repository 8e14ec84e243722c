"""What the status says of the last look for updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.trust.simulator import RepositorySimulator, trust_in

from vedette.clock import ManualClock
from vedette.errors import TrustError, UnavailableError
from vedette.runtime.roads import LoggedTrust, LookLog
from vedette.update.interruption import Interruption
from vedette.update.paced_source import PacedSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Breakable:
    """A repository whose server may be told to be away."""

    def __init__(self) -> None:
        self.repository = RepositorySimulator()
        self.repository.release("1")
        self.repository.publish()
        self.away = False
        self.garbles = "-"

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        if path.endswith(self.garbles):
            return iter([b"{"])
        if self.away:
            raise UnavailableError("the server is away")
        return self.repository.metadata(path, max_bytes)


def test_a_look_that_fails_is_noted_until_one_goes_well_and_one_given_up_is_not(tmp_path: Path) -> None:
    source, log, interruption = Breakable(), LookLog(), Interruption()
    trust = LoggedTrust(trust_in(tmp_path, source, source.repository.bootstrap), log, interruption)
    source.away = True
    with pytest.raises(UnavailableError):
        trust.refresh()
    assert log.fault == "the server is away"
    source.away = False
    assert trust.refresh() is not None
    assert log.fault == ""
    source.away = True
    interruption.set()  # the operator aborts, and the fetcher gives up
    with pytest.raises(UnavailableError):
        trust.refresh()
    assert log.fault == ""


def test_a_refusal_says_its_stable_word_and_the_file(tmp_path: Path) -> None:
    """As the report does; which of a dozen files it was is what an operator asks first."""
    source, log = Breakable(), LookLog()
    paced = PacedSource(source, ManualClock())
    trust = LoggedTrust(
        trust_in(tmp_path, paced, source.repository.bootstrap), log, Interruption(), paced=paced
    )
    source.garbles = "timestamp.json"
    with pytest.raises(TrustError, match=r"timestamp\.json") as refused:
        trust.refresh()
    assert refused.value.kind == "bad_metadata"
    assert log.fault.startswith("bad_metadata: update repository: ")
    assert log.fault.endswith("(last read: metadata/timestamp.json)")
