"""What the status says of the last look for updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.trust.simulator import RepositorySimulator, trust_in

from vedette.errors import UnavailableError
from vedette.runtime.roads import LoggedTrust, LookLog
from vedette.update.interruption import Interruption

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

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
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
