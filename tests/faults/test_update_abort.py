"""Fault matrix: abort at each state, when the update thread is blocked by a server that deals out bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.update_servers.repository_http import Fault, RepositoryServer
from tests.unit.update.box import Box, FakeTrust

from vedette.clock import SystemClock
from vedette.errors import UnavailableError
from vedette.update.background import in_thread
from vedette.update.causes import Cause, Result
from vedette.update.driver import UpdateDriver
from vedette.update.folder import FolderFetcher
from vedette.update.http import HttpFetcher
from vedette.update.interruption import Interruption
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.update.settings import UpdateSettings
from vedette.update.update_thread import UpdateThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vedette.trust.offer import Offer

AT_ONCE_S = 20.0
STALL_S = 60.0  # far beyond: it is not the watchdog on progress that ends these
PATH = "metadata/timestamp.json"
_NEVER = threading.Event()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def until(done: Callable[[], object], what: str, within_s: float = 60.0) -> float:
    """Wait for something another thread does; how long that took."""
    begun_s = time.monotonic()
    while not done():
        if time.monotonic() - begun_s > within_s:
            raise AssertionError(f"not within {within_s} s: {what}")
        _NEVER.wait(0.005)  # the other thread is blocked in real I/O; there is no clock to inject
    return time.monotonic() - begun_s


# One request, at each of its stages -----------------------------------------------------------------------


@contextlib.contextmanager
def dripping(fault: Fault) -> Iterator[tuple[str, Callable[[], object]]]:
    with RepositoryServer({PATH: b"{}" * 5000}, fault) as server:
        yield server.url, lambda: server.requests


@contextlib.contextmanager
def deaf(scheme: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Takes connections and says nothing: no answer, and no handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []
        threading.Thread(target=lambda: taken.append(listening.accept()[0]), daemon=True).start()
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", lambda: taken
        for connected in taken:
            connected.close()


@contextlib.contextmanager
def full() -> Iterator[tuple[str, Callable[[], object]]]:
    """Its queue of connections is full, so that the kernel drops whoever else wants in."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as clients:
        for _ in range(3):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)  # noqa: FBT003 - the standard library's
            client.connect_ex(listening.getsockname())
        yield (
            f"http://127.0.0.1:{listening.getsockname()[1]}",
            lambda: any(thread.name == "fetch-connect" for thread in threading.enumerate()),
        )


STAGES: dict[str, Callable[[], contextlib.AbstractContextManager[tuple[str, Callable[[], object]]]]] = {
    "connecting": full,
    "handshake": lambda: deaf("https"),
    "silence": lambda: deaf("http"),
    "header": lambda: dripping(Fault(drip_header=True)),
    "body": lambda: dripping(Fault(drip_body=True)),
    "chunks": lambda: dripping(Fault(drip_chunks=True)),
    "silence in the body": lambda: dripping(Fault(silent_after=100)),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_request_is_given_up_at_any_stage(stage: str) -> None:
    """And none is begun while the interruption holds; afterwards the same fetcher goes on."""
    interruption = Interruption()
    errors: list[Exception] = []

    def read() -> None:
        try:
            list(fetcher.metadata(PATH, 100_000))
        except UnavailableError as error:
            errors.append(error)

    with STAGES[stage]() as (url, is_there):
        fetcher = HttpFetcher(url, stall_s=STALL_S, interruption=interruption)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        until(is_there, "the server was reached")
        interruption.set()
        reader.join(AT_ONCE_S)
        assert not reader.is_alive()
        assert "given up" in str(errors[0])
        with pytest.raises(UnavailableError, match="given up"):
            next(fetcher.metadata(PATH, 100))
        interruption.clear()
        with RepositoryServer({PATH: b"{}"}) as honest:
            fetcher._url = honest.url + "/"
            assert b"".join(fetcher.metadata(PATH, 100)) == b"{}"
        fetcher.close()


def test_a_folder_is_left_between_two_pieces(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / PATH).write_bytes(bytes(200_000))
    interruption = Interruption()
    pieces = FolderFetcher(tmp_path, interruption=interruption).metadata(PATH, 1 << 20)
    next(pieces)
    interruption.set()
    with pytest.raises(UnavailableError, match="given up"):
        next(pieces)


def test_an_interruption_for_good_is_not_cleared() -> None:
    interruption = Interruption()
    interruption.set(for_good=True)
    interruption.set()
    interruption.clear()
    assert interruption.is_set


# A whole update thread ------------------------------------------------------------------------------------


class AskingTrust(FakeTrust):
    """Vouches like the other, once it has read a file from a server."""

    def __init__(self, fetcher: HttpFetcher) -> None:
        super().__init__()
        self.fetcher = fetcher

    def refresh(self) -> Offer | None:
        list(self.fetcher.metadata(PATH, 100_000))
        return super().refresh()


class SlowWorld:
    """A box in its thread, with a server of metadata and one of blobs, each as slow as is wanted."""

    def __init__(self, folder: Path, metadata: RepositoryServer, blobs: RepositoryServer) -> None:
        self.metadata, self.blobs = metadata, blobs
        interruption = Interruption()
        self.trust = AskingTrust(HttpFetcher(metadata.url, stall_s=STALL_S, interruption=interruption))
        self.fetcher = HttpFetcher(blobs.url, stall_s=STALL_S, interruption=interruption)
        self.box = Box(
            folder,
            settings=UpdateSettings(first_look_s=0.0),
            ports={
                "road": Road(self.trust, self.fetcher),
                "clock": SystemClock(),
                "interruption": interruption,
                "background": in_thread,
            },
        ).start()
        self.box.offer(1, base=self.box.factory)
        self.trust.offer = self.box.trust.offer
        repository = self.box.publisher.folder / "repository"
        for path in (repository / "blobs").iterdir():
            blobs.files[f"blobs/{path.name}"] = path.read_bytes()
        self.driver = UpdateDriver(self.box.parts)
        self.thread = UpdateThread(self.driver)

    def aborted(self) -> tuple[str, float]:
        """The answer to an abort, and after how many seconds it came."""
        begun_s = time.monotonic()
        return self.driver.abort().result(20.0), time.monotonic() - begun_s


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowWorld]:
    with RepositoryServer({PATH: b"{}" * 5000}) as metadata, RepositoryServer({}) as blobs:
        world = SlowWorld(tmp_path, metadata, blobs)
        yield world
        world.thread.stop()
        world.trust.fetcher.close()
        world.fetcher.close()


def test_an_abort_does_not_wait_for_a_blob_that_drips(slow: SlowWorld) -> None:
    """It takes effect, too: the update is over, and said to be."""
    slow.blobs.fault = Fault(drip_body=True)
    slow.thread.start()
    until(lambda: slow.blobs.requests, "a blob is asked for")
    answer, seconds = slow.aborted()
    assert answer == "accepted"
    assert seconds < AT_ONCE_S
    until(lambda: slow.driver.record.phase is Phase.IDLE, "the update is over", AT_ONCE_S)
    last = slow.driver.record.last
    assert last is not None
    assert (last.result, last.cause) == (Result.ABORTED, Cause.OPERATOR_ABORT)


def test_an_abort_does_not_wait_for_a_look_while_an_update_is_under_way(slow: SlowWorld) -> None:
    """The blobs are away for ten minutes, and meanwhile the metadata of a poll drip."""
    slow.blobs.fault = Fault(status=503, headers={"Retry-After": "600"})
    slow.thread.start()
    until(lambda: slow.blobs.requests, "a blob is asked for")
    slow.metadata.fault = Fault(drip_header=True)
    asked = len(slow.metadata.requests)
    slow.driver.announce()
    until(lambda: len(slow.metadata.requests) > asked, "a look is under way")
    answer, seconds = slow.aborted()
    assert answer == "accepted"
    assert seconds < AT_ONCE_S
    until(lambda: slow.driver.record.phase is Phase.IDLE, "the update is over", AT_ONCE_S)
    assert slow.driver.record.last is not None
    assert slow.driver.record.last.result is Result.ABORTED


def test_an_abort_with_nothing_but_a_look_under_way_is_answered_and_ends_the_look(slow: SlowWorld) -> None:
    """The next look is not interrupted any more, and finds what there is."""
    slow.metadata.fault = Fault(drip_body=True)
    slow.thread.start()
    until(lambda: slow.metadata.requests, "a look is under way")
    answer, seconds = slow.aborted()
    assert answer == "rejected:nothing_to_abort"
    assert seconds < AT_ONCE_S
    until(lambda: slow.driver.record.phase is Phase.IDLE, "the look is over", AT_ONCE_S)
    slow.metadata.fault = Fault()
    slow.blobs.fault = Fault(status=503)
    slow.driver.announce()
    until(lambda: slow.driver.record.phase is Phase.FETCH, "the update begins")


def test_the_thread_ends_well_though_a_server_is_slow(slow: SlowWorld) -> None:
    """What came of the blob is kept for the next start."""
    slow.blobs.fault = Fault(silent_after=100)
    slow.thread.start()
    until(lambda: slow.blobs.requests, "a blob is asked for")
    begun_s = time.monotonic()
    assert slow.thread.stop()
    assert time.monotonic() - begun_s < AT_ONCE_S
    assert slow.thread.crash is None
    assert slow.driver.record.phase is Phase.FETCH
