"""HTTP servers that misbehave, rows of the fault matrix: survived, or refused with a reason."""

from __future__ import annotations

import hashlib
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.update_servers.repository_http import Fault, RepositoryServer
from tests.faults.update_servers.tls import self_signed

from vedette.errors import (
    BadInputError,
    ChangedError,
    ConfigError,
    NotFoundError,
    RangeIgnoredError,
    UnavailableError,
)
from vedette.update.fetching import BlobFetch, FetchLimits, FetchResult
from vedette.update.http import HttpFetcher
from vedette.update.part_file import PartFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STALL_S = 0.4
SIZE = 1_000_000
BLOB = random.Random(7).randbytes(SIZE)  # noqa: S311 - the same in every run
SHA256 = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine of the tests says."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[RepositoryServer]:
    with RepositoryServer({f"blobs/{SHA256}": BLOB, "metadata/timestamp.json": b"{}" * 50}) as running:
        yield running


@pytest.fixture
def fetcher(server: RepositoryServer) -> Iterator[HttpFetcher]:
    opened = HttpFetcher(server.url, stall_s=STALL_S)
    yield opened
    opened.close()


def read(fetcher: HttpFetcher, start: int = 0, end: int = SIZE) -> bytes:
    return b"".join(fetcher.blob(SHA256, start, end))


class Waits:
    """Stands in for the waiting of the driver: remembers how long it would have slept."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def __call__(self, seconds: float) -> bool:
        if seconds > 0:
            self.slept_s.append(seconds)
        return False


def fetch(
    fetcher: HttpFetcher, folder: Path, *, waits: Waits | None = None, limits: FetchLimits | None = None
) -> tuple[FetchResult, bytes]:
    """The whole loop into a real part file; what it put together."""
    with PartFile(folder, SHA256, SIZE) as part:
        loop = BlobFetch(fetcher, part, wait=waits or Waits(), draw=lambda: 0.5, limits=limits)
        result = loop.run()
        return result, part.verify().read_bytes()


def test_an_honest_server(server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path) -> None:
    assert fetch(fetcher, tmp_path) == (FetchResult(complete=True, fetched_bytes=SIZE, tries=1), BLOB)
    assert server.agent.startswith("vedette/")


def test_connections_are_used_again(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    for start in range(0, 50_000, 10_000):
        assert read(fetcher, start, start + 10_000) == BLOB[start : start + 10_000]
    assert (server.connections, len(server.requests)) == (1, 5)


def test_server_ignores_range(server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path) -> None:
    """The first connection breaks off, and the next answer would begin at zero again."""
    server.fault = Fault(ignore_range=True, reset_after=300_000, faulty_answers=1)
    with pytest.raises(UnavailableError):
        read(fetcher)
    server.fault = Fault(ignore_range=True)
    with pytest.raises(RangeIgnoredError):
        read(fetcher, 10, 20)
    assert read(fetcher) == BLOB
    result, content = fetch(fetcher, tmp_path)
    assert content == BLOB
    assert result.complete


def test_server_ignores_range_after_a_cut(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(ignore_range=True, body_limit=300_000, length_offset=0, faulty_answers=1)
    with PartFile(tmp_path, SHA256, SIZE) as part:
        for offset in range(0, 5 * 65536, 65536):
            part.write(offset, BLOB[offset : offset + 65536])
        part.flush()
    server.fault = Fault(ignore_range=True)
    result, content = fetch(fetcher, tmp_path)
    assert content == BLOB
    assert result.fetched_bytes == SIZE


@pytest.mark.parametrize(
    "content_range",
    ["bytes 0-999999/1000000", "bytes 7-9/10", "bytes */1000000", "items 1-2/3", "bytes 9-5/10", "garbage"],
)
def test_wrong_content_range_is_not_used(
    server: RepositoryServer, fetcher: HttpFetcher, content_range: str
) -> None:
    server.fault = Fault(content_range=content_range)
    with pytest.raises(UnavailableError, match="asked for bytes 500-599"):
        read(fetcher, 500, 600)


def test_object_that_changes_is_never_spliced(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    """A mutable URL (casebook 40): begun on one object, it goes on with another under the same name."""
    server.files[f"blobs/{SHA256}"] = bytes(SIZE)
    server.fault = Fault(etags=['"old"', '"new"'], reset_after=300_000, faulty_answers=1)
    with pytest.raises(UnavailableError):
        read(fetcher)
    server.files[f"blobs/{SHA256}"] = BLOB
    server.fault = Fault(etags=['"new"'])
    with pytest.raises(ChangedError):
        read(fetcher, 300_000)
    assert fetch(fetcher, tmp_path)[1] == BLOB


def test_object_that_changes_during_a_fetch_is_fetched_from_the_beginning(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(etags=['"a"', '"b"'], reset_after=700_000)
    result, content = fetch(fetcher, tmp_path)
    assert content == BLOB
    assert result.fetched_bytes <= 2 * SIZE


def test_object_that_changes_all_the_time_is_given_up(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(etags=[f'"{number}"' for number in range(99)], reset_after=100_000)
    with pytest.raises(ChangedError):
        fetch(fetcher, tmp_path)


def test_server_promises_more_than_it_sends(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(body_limit=400_000, faulty_answers=1)
    assert fetch(fetcher, tmp_path)[1] == BLOB
    server.fault = Fault(length_offset=5)
    with pytest.raises(UnavailableError, match="asked for bytes"):
        read(fetcher, 100, 200)


def test_server_sends_more_than_it_promises(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    """What comes after the promised end is not taken for the beginning of the next answer."""
    server.fault = Fault(length_offset=-7)
    with pytest.raises(UnavailableError):
        read(fetcher, 100, 200)
    server.fault = Fault()
    assert read(fetcher, 100, 200) == BLOB[100:200]


def test_object_is_longer_than_what_was_signed(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    server.files[f"blobs/{SHA256}"] = BLOB + b"more"
    assert read(fetcher) == BLOB


def test_object_is_shorter_than_what_was_signed(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    """416 at the end of a file that is still being uploaded."""
    server.files[f"blobs/{SHA256}"] = BLOB[:600_000]
    waits = Waits()
    with pytest.raises(UnavailableError, match="shorter"):
        fetch(fetcher, tmp_path, waits=waits, limits=FetchLimits(tries=3))
    assert len(waits.slept_s) >= 2
    server.files[f"blobs/{SHA256}"] = BLOB
    result, content = fetch(fetcher, tmp_path)
    assert content == BLOB
    assert result.fetched_bytes <= 400_000 + 65536


def test_nothing_is_asked_when_nothing_is_missing(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    assert read(fetcher, SIZE, SIZE) == b""
    assert server.requests == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(silent_after=0),
        Fault(silent_after=500_000),
        Fault(drip_header=True),
        Fault(drip_body=True),
        Fault(drip_chunks=True),
    ],
    ids=["silent at once", "silent half way", "slow header", "slow body", "slow chunk header"],
)
@pytest.mark.parametrize("what", ["blob", "metadata"])
def test_stalls_and_slow_loris_are_cut_off(
    server: RepositoryServer, fetcher: HttpFetcher, fault: Fault, what: str
) -> None:
    server.files["metadata/timestamp.json"] = BLOB
    server.fault = fault
    pieces = {
        "blob": fetcher.blob(SHA256, 0, SIZE),
        "metadata": fetcher.metadata("metadata/timestamp.json", SIZE),
    }
    began_s = time.monotonic()
    with pytest.raises(UnavailableError, match=r"nothing moved for 0\.4 s"):
        b"".join(pieces[what])
    assert time.monotonic() - began_s < 15


def test_a_slow_reader_is_not_the_servers_fault(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    """A disk that takes longer over a sync than the stall limit."""
    pieces = fetcher.blob(SHA256, 0, SIZE)
    first = next(pieces)
    server.stopped.wait(2.5 * STALL_S)
    assert first + b"".join(pieces) == BLOB


@pytest.mark.parametrize("redirect", ["/next/{n}", "{url}/again"])
def test_redirects_for_ever(server: RepositoryServer, fetcher: HttpFetcher, redirect: str) -> None:
    server.fault = Fault(redirect=redirect.replace("{url}", server.url))
    with pytest.raises(UnavailableError, match="more than 5 redirects"):
        read(fetcher)
    assert len(server.requests) == 6


def test_a_few_redirects_are_followed_with_the_range(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    server.fault = Fault(redirect=f"/blobs/{SHA256}", faulty_answers=5)
    assert read(fetcher, 5, 9) == BLOB[5:9]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x"])
def test_redirect_to_something_else_than_http(
    server: RepositoryServer, fetcher: HttpFetcher, target: str
) -> None:
    server.fault = Fault(redirect=target)
    with pytest.raises(UnavailableError, match="not followed"):
        read(fetcher)


def test_redirect_from_https_to_http_is_not_followed(server: RepositoryServer, tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    with RepositoryServer({}, Fault(redirect=f"{server.url}/blobs/{SHA256}"), tls=context) as secure:
        fetcher = HttpFetcher(secure.url, stall_s=5.0, ca=certificate)
        with pytest.raises(UnavailableError, match="not followed") as caught:
            b"".join(fetcher.blob(SHA256, 0, 1))
        fetcher.close()
    assert server.requests == []
    assert caught.value.cure == "a redirect must not leave https"


def test_https_of_an_unknown_authority(server: RepositoryServer, tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    with RepositoryServer(server.files, tls=context) as secure:
        stranger = HttpFetcher(secure.url, stall_s=5.0)
        with pytest.raises(UnavailableError, match="TLS failed") as caught:
            b"".join(stranger.blob(SHA256, 0, 10))
        assert "clock" in (caught.value.cure or "")
        stranger.close()
        known = HttpFetcher(secure.url, stall_s=5.0, ca=certificate)
        assert b"".join(known.blob(SHA256, 0, 10)) == BLOB[:10]
        secure.fault = Fault(drip_body=True)
        slow = HttpFetcher(secure.url, stall_s=STALL_S, ca=certificate)
        with pytest.raises(UnavailableError, match="nothing moved"):
            b"".join(slow.blob(SHA256, 0, SIZE))
        known.close()
        slow.close()


def test_slow_link_that_is_reset_all_the_time(tmp_path: Path) -> None:
    """Casebook 40: a reset every 500 kB of 8 MB; the bytes fetched stay near the size."""
    content = BLOB * 8
    sha256 = hashlib.sha256(content).hexdigest()
    fault = Fault(reset_after=500_000, rate_bytes_per_s=20_000_000)
    with RepositoryServer({f"blobs/{sha256}": content}, fault) as server:
        fetcher = HttpFetcher(server.url, stall_s=5.0)
        with PartFile(tmp_path, sha256, len(content)) as part:
            result = BlobFetch(fetcher, part, wait=Waits(), draw=lambda: 0.5).run()
            assert part.verify().read_bytes() == content
        fetcher.close()
    assert result.complete
    assert result.fetched_bytes <= 1.01 * len(content)
    assert server.sent_bytes <= 1.5 * len(content), "the kernel had more on the way than was read"


def test_server_sends_less_than_it_was_asked_for(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(most_per_answer=100_000)
    result, content = fetch(fetcher, tmp_path)
    assert (result.fetched_bytes, result.tries, content) == (SIZE, 10, BLOB)


def test_bytes_in_all_are_bounded(server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path) -> None:
    """No Range, and no connection that lasts: invariant I5."""
    server.fault = Fault(ignore_range=True, reset_after=400_000)
    told: list[int] = [0]
    with PartFile(tmp_path, SHA256, SIZE) as part:
        loop = BlobFetch(fetcher, part, wait=Waits(), draw=lambda: 0.5, progress=told.append)
        with pytest.raises((BadInputError, UnavailableError)):
            loop.run()
    assert told[-1] <= 2 * SIZE + 65536


@pytest.mark.parametrize("status", [404, 410])
def test_a_blob_that_is_not_there_is_asked_for_once(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path, status: int
) -> None:
    server.fault = Fault(status=status)
    with pytest.raises(NotFoundError):
        fetch(fetcher, tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 404, 410])
def test_metadata_that_is_not_there(server: RepositoryServer, fetcher: HttpFetcher, status: int) -> None:
    server.fault = Fault(status=status)
    with pytest.raises(NotFoundError):
        list(fetcher.metadata("metadata/2.root.json", 100))


@pytest.mark.parametrize("status", [400, 403, 429, 500, 502, 503, 507])
def test_other_failures_are_tried_again_with_growing_waits(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path, status: int
) -> None:
    server.fault = Fault(status=status)
    waits = Waits()
    with pytest.raises(UnavailableError, match=f"HTTP {status}"):
        fetch(fetcher, tmp_path, waits=waits, limits=FetchLimits(tries=5, longest_wait_s=6.0))
    assert waits.slept_s == [1.5, 3.0, 4.5, 4.5]
    server.fault = Fault()
    assert fetch(fetcher, tmp_path)[1] == BLOB


def test_a_server_that_says_when_to_come_again(
    server: RepositoryServer, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    server.fault = Fault(status=503, headers={"Retry-After": "40"}, faulty_answers=1)
    waits = Waits()
    assert fetch(fetcher, tmp_path, waits=waits)[1] == BLOB
    assert waits.slept_s == [41.5]


def test_a_compressed_answer_is_refused(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    server.fault = Fault(headers={"Content-Encoding": "gzip"})
    with pytest.raises(UnavailableError, match="gzip"):
        read(fetcher, 0, 10)


def test_chunks_are_as_good_as_a_length(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    server.fault = Fault(chunked=True)
    assert read(fetcher, 10, 500_000) == BLOB[10:500_000]
    assert b"".join(fetcher.metadata("metadata/timestamp.json", 100)) == b"{}" * 50


def test_metadata_ends_after_what_it_may_have(server: RepositoryServer, fetcher: HttpFetcher) -> None:
    server.files["metadata/timestamp.json"] = BLOB
    assert sum(map(len, fetcher.metadata("metadata/timestamp.json", 1000))) == 1001


def test_a_proxy_of_the_environment_is_used_and_watched(
    server: RepositoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    server.files[f"http://repository.invalid/blobs/{SHA256}"] = BLOB
    fetcher = HttpFetcher("http://repository.invalid", stall_s=STALL_S)
    assert read(fetcher, 3, 9) == BLOB[3:9]
    server.fault = Fault(drip_body=True)
    with pytest.raises(UnavailableError, match="nothing moved"):
        read(fetcher)
    fetcher.close()


def test_nobody_listens(server: RepositoryServer, tmp_path: Path) -> None:
    with RepositoryServer({}) as gone:
        url = gone.url
    fetcher = HttpFetcher(url, stall_s=STALL_S)
    with pytest.raises(UnavailableError, match="refused"):
        fetch(fetcher, tmp_path, limits=FetchLimits(tries=2))
    fetcher.close()
    assert server.requests == []


@pytest.mark.parametrize("url", ["", "repository", "ftp://host/x", "https://", "file:///srv"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="no http or https URL"):
        HttpFetcher(url)


def test_passwords_are_shown_to_nobody(server: RepositoryServer) -> None:
    url = server.url.replace("://", "://box:hunter2@") + "/sub"
    fetcher = HttpFetcher(url, stall_s=STALL_S)
    with pytest.raises(NotFoundError) as caught:
        list(fetcher.metadata("x.json", 10))
    fetcher.close()
    assert "hunter2" not in caught.value.diagnostics()
    assert server.requests == [("/sub/x.json", None)]
