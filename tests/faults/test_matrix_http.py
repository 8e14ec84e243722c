"""Fault matrix: servers of metadata and blobs that misbehave, under real trust and a whole box."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.update_servers.repository_http import Fault, RepositoryServer
from tests.faults.update_servers.tls import self_signed
from tests.unit.trust.simulator import RepositorySimulator, trust_in
from tests.unit.update.box import Box

from vedette.errors import UnavailableError
from vedette.update.causes import Cause, Result
from vedette.update.http import HttpFetcher
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.wire.release import EncodingKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.trust.client import TufTrust
    from vedette.trust.offer import Offer

STALL_S = 0.3
NEXT_ROOT = r"/metadata/2\.root\.json"
LOOP = Fault(redirect="/next/{n}")
SLOW = {"slow header": Fault(drip_header=True), "slow body": Fault(drip_body=True)}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine of the tests says."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class PickyServer(RepositoryServer):
    """Faulty for the first `answers` to paths that match `where`, and for what a redirect of one leads to."""

    where = ""
    answers = 0

    @property
    def fault(self) -> Fault:
        asked = [bool(re.fullmatch(f"(?:{self.where})|/next/.*", path)) for path, _range in self.requests]
        return self._fault if asked and asked[-1] and sum(asked) <= self.answers else Fault()

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault

    def spoil(self, where: str, fault: Fault, *, answers: int = 1 << 30) -> None:
        """Be faulty there from now on."""
        self.where, self._fault, self.answers = where, fault, answers


@pytest.fixture
def repository() -> RepositorySimulator:
    simulator = RepositorySimulator()
    simulator.release("1")
    simulator.publish()
    return simulator


@pytest.fixture
def server(repository: RepositorySimulator) -> Iterator[PickyServer]:
    with PickyServer(repository.files) as running:
        yield running


@pytest.fixture
def trust(server: PickyServer, repository: RepositorySimulator, tmp_path: Path) -> Iterator[TufTrust]:
    fetcher = HttpFetcher(server.url, stall_s=STALL_S)
    yield trust_in(tmp_path / "trust", fetcher, repository.bootstrap)
    fetcher.close()


def offered(trust: TufTrust) -> Offer:
    offer = trust.refresh()
    assert offer is not None
    return offer


# Metadata -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404, 410])
def test_metadata_server_404_on_the_next_root_is_the_end_of_the_walk(
    server: PickyServer, trust: TufTrust, status: int
) -> None:
    """Fault matrix: metadata server 404/403: object stores say 403 for what they do not have."""
    server.spoil(NEXT_ROOT, Fault(status=status))
    assert offered(trust).counter == 1


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(status=503), LOOP, Fault(silent_after=0), *SLOW.values()],
    ids=["500", "503", "redirect loop", "silent", *SLOW],
)
def test_metadata_server_that_fails_at_the_next_root_is_not_taken_for_the_end(
    server: PickyServer, trust: TufTrust, repository: RepositorySimulator, fault: Fault
) -> None:
    """Fault matrix: metadata server 500/slowloris/redirect loop: else a revoked key could be kept in use."""
    offered(trust)
    repository.rotate("timestamp")
    repository.publish()
    server.spoil(NEXT_ROOT, fault)
    with pytest.raises(UnavailableError):
        trust.refresh()
    server.spoil("", Fault())
    assert offered(trust).counter == 2


@pytest.mark.parametrize("name", ["timestamp", "snapshot", "targets", "rollouts", "models-acme"])
@pytest.mark.parametrize(
    "fault",
    [Fault(status=403), Fault(status=404), Fault(status=500), LOOP],
    ids=["403", "404", "500", "redirect loop"],
)
def test_metadata_server_that_is_away_is_no_refusal_and_nothing_is_forgotten(
    server: PickyServer, trust: TufTrust, repository: RepositorySimulator, name: str, fault: Fault
) -> None:
    """Fault matrix: metadata server 404/403/500/redirect loop, at each role."""
    offer = offered(trust)
    repository.publish()
    server.spoil(rf"/metadata/(?:\d+\.)?{name}\.json", fault)
    before = len(server.requests)
    with pytest.raises(UnavailableError) as caught:
        trust.refresh()
    assert caught.value.cure
    assert len(server.requests) - before <= 6 + 6
    assert trust.still_wanted(offer)
    server.spoil("", Fault())
    assert offered(trust).counter == 2


@pytest.mark.parametrize("fault", [Fault(silent_after=0), *SLOW.values()], ids=["silent", *SLOW])
@pytest.mark.parametrize("path", [r"/metadata/timestamp\.json", r"/targets/.*rollouts\.json"])
def test_metadata_server_slowloris_is_cut_off(
    server: PickyServer, trust: TufTrust, fault: Fault, path: str
) -> None:
    """Fault matrix: metadata server slowloris: slow cut-off, then as if nothing had been."""
    server.spoil(path, fault)
    began_s = time.monotonic()
    with pytest.raises(UnavailableError, match="nothing moved"):
        trust.refresh()
    assert time.monotonic() - began_s < 20
    server.spoil("", Fault())
    assert offered(trust).counter == 1


# Blobs, and a whole box -----------------------------------------------------------------------------------


class ServedBox(Box):
    """A box that gets its blobs over HTTP."""

    def follow(self, server: PickyServer) -> ServedBox:
        self.http = HttpFetcher(server.url, stall_s=STALL_S)
        self.ports["road"] = Road(self.trust, self.http)
        self.server = server
        self.start()
        return self

    def serve(self, version: int) -> str:
        """Offer a version, whose blobs the server has; the path of its weights."""
        manifest = self.offer(version)
        for path in self.publisher.blobs.iterdir():
            self.server.files[f"blobs/{path.name}"] = path.read_bytes()
        return f"blobs/{self.publisher.blob_of(manifest, 'weights.bin', EncodingKind.FULL).name}"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ServedBox]:
    with PickyServer({}) as running:
        box = ServedBox(tmp_path).follow(running)
        yield box
        box.driver.close()
        box.http.close()


SURVIVED = {
    "ignores Range": (Fault(ignore_range=True, reset_after=30_000), 2),
    "wrong Content-Range": (Fault(content_range="bytes 7-9/10"), 3),
    "changes ETag": (Fault(etags=['"a"', '"b"'], reset_after=30_000), 1),
    "416 at EOF": (Fault(status=416), 4),
    "sends half of it": (Fault(body_limit=30_000), 2),
    "500": (Fault(status=500), 9),
    "403": (Fault(status=403), 9),
    "429 with Retry-After": (Fault(status=429, headers={"Retry-After": "7"}), 2),
    "redirect loop": (LOOP, 18),
    "slowloris": (Fault(drip_body=True), 1),
    "resets": (Fault(reset_after=20_000), 3),
}


@pytest.mark.parametrize(("fault", "answers"), SURVIVED.values(), ids=SURVIVED.keys())
def test_http_server_faults_are_survived_by_a_whole_update(
    box: ServedBox, fault: Fault, answers: int
) -> None:
    """Fault matrix: HTTP server ignores Range, wrong Content-Range, changes ETag, 416 at EOF."""
    weights = box.serve(1)
    box.server.spoil(f"/{weights}", fault, answers=answers)
    box.until(lambda: box.idle and bool(box.results()))
    assert [report.result for report in box.results()] == [Result.SUCCESS]
    assert box.serving == "1"
    assert box.results()[0].bytes_fetched <= 2 * 60_000 + 65_536


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(status=404), Cause.BLOB_MISSING),
        (Fault(status=410), Cause.BLOB_MISSING),
        (Fault(status=500), Cause.CONNECTIVITY_LOST),
        (LOOP, Cause.CONNECTIVITY_LOST),
    ],
    ids=["404", "410", "500", "redirect loop"],
)
def test_http_server_that_stays_bad_ends_the_update_and_nothing_else(
    box: ServedBox, fault: Fault, cause: Cause
) -> None:
    """Fault matrix: metadata server / blobs: backoff with jitter, and an end; the box serves what it has."""
    weights = box.serve(1)
    box.server.spoil(f"/{weights}", fault)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, cause)
    assert (box.serving, box.staged()) == ("0", [])
    assert len(box.server.requests) < 1000


def test_http_server_swaps_the_object_between_a_restart(box: ServedBox) -> None:
    """Fault matrix: changes ETag, over a restart that forgot the tag: the hash refuses what was spliced."""
    weights = box.serve(1)
    right = box.server.files[weights]
    box.server.files[weights] = bytes(len(right))
    box.until_phase(Phase.VERIFY_PATCH)
    box.server.files[weights] = right
    box.restart()
    report = box.until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "1")


def test_http_server_with_a_renewed_certificate_is_believed_at_the_next_connection(
    repository: RepositorySimulator, tmp_path: Path
) -> None:
    """Casebook 39: certificate files are read again at each connect."""
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        folder.mkdir()
    context, trusted = self_signed(folders[0])
    _, renewed = self_signed(folders[1])
    with RepositoryServer(repository.files, tls=context) as server:
        fetcher = HttpFetcher(server.url, stall_s=5.0, ca=trusted)
        trust = trust_in(tmp_path / "trust", fetcher, repository.bootstrap)
        assert offered(trust).counter == 1
        context.load_cert_chain(renewed, folders[1] / "key.pem")
        server.fault = Fault(length_offset=1, body_limit=0)  # ends the connection that is open
        with pytest.raises(UnavailableError):
            trust.refresh()
        server.fault = Fault()
        with pytest.raises(UnavailableError, match="TLS failed"):
            trust.refresh()
        trusted.write_bytes(renewed.read_bytes())
        assert offered(trust).counter == 1
        fetcher.close()
