"""Whether the update server can be reached, over real sockets: what counts is that it answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.update_servers.repository_http import Fault, RepositoryServer

from vedette.update.folder import FolderFetcher
from vedette.update.http import HttpFetcher
from vedette.update.interruption import Interruption

if TYPE_CHECKING:
    from pathlib import Path

STALL_S = 0.4


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine of the tests says."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.parametrize("status", [0, 404, 503])
def test_a_server_that_says_anything_is_reached(status: int) -> None:
    """Maintenance of the repository must not look like a box that lost its network."""
    with RepositoryServer({"metadata/timestamp.json": b"{}"}, Fault(status=status)) as server:
        assert HttpFetcher(server.url, stall_s=STALL_S).reachable()
        assert len(server.requests) == 1


def test_a_server_that_is_away_is_not_reached() -> None:
    """Nobody listens there any more."""
    with RepositoryServer({}) as server:
        url = server.url
    assert not HttpFetcher(url, stall_s=STALL_S).reachable()


def test_a_server_that_never_finishes_its_header_is_not_reached_and_holds_nobody_up() -> None:
    """The watch over a trial waits for the answer, so it is given up in time."""
    with RepositoryServer({"metadata/timestamp.json": b"{}"}, Fault(drip_header=True)) as server:
        began_s = time.monotonic()
        assert not HttpFetcher(server.url, stall_s=STALL_S).reachable()
        assert time.monotonic() - began_s < 15


def test_the_end_of_the_agent_does_not_wait_for_it() -> None:
    """Interrupted for good, nothing is asked any more."""
    interruption = Interruption()
    interruption.set(for_good=True)
    with RepositoryServer({"metadata/timestamp.json": b"{}"}) as server:
        assert not HttpFetcher(server.url, stall_s=STALL_S, interruption=interruption).reachable()
        assert server.requests == []


def test_a_folder_is_reached_while_it_is_mounted(tmp_path: Path) -> None:
    """A share of the network that went away leaves an empty folder."""
    (tmp_path / "metadata").mkdir()
    assert FolderFetcher(tmp_path).reachable()
    (tmp_path / "metadata").rmdir()
    assert not FolderFetcher(tmp_path).reachable()
