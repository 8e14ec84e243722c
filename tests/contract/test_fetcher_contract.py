"""What every fetcher owes its callers, whatever moves the bytes: HTTP, MQTT, a folder, a simulator."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import pytest
from tests.faults.update_servers.repository_http import RepositoryServer
from tests.stubs.block_plane import BlockDevice, block_server, make_repository
from tests.stubs.brokers import Mosquitto
from tests.unit.trust.simulator import RepositorySimulator

from vedette.errors import NotFoundError
from vedette.update.folder import FolderFetcher
from vedette.update.http import HttpFetcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.update.ports import Fetcher

BLOB = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(BLOB).hexdigest()
FILES = {"metadata/1.root.json": b"root", "targets/models/acme/traffic/00.1+b.json": b"{}" * 5000}


def _simulator() -> RepositorySimulator:
    simulator = RepositorySimulator()
    simulator.files = dict(FILES)
    simulator.blobs[SHA256] = BLOB
    return simulator


@contextlib.contextmanager
def _from_simulator(_folder: Path) -> Iterator[Fetcher]:
    yield _simulator()


@contextlib.contextmanager
def _from_folder(folder: Path) -> Iterator[Fetcher]:
    yield FolderFetcher(make_repository(folder, FILES, BLOB))


@contextlib.contextmanager
def _over_http(_folder: Path) -> Iterator[Fetcher]:
    with RepositoryServer({**FILES, f"blobs/{SHA256}": BLOB}) as server:
        opened = HttpFetcher(server.url, stall_s=5.0)
        yield opened
        opened.close()


@contextlib.contextmanager
def _over_mqtt(folder: Path) -> Iterator[Fetcher]:
    root = make_repository(folder / "repository", FILES, BLOB)
    with (
        Mosquitto(folder / "broker") as broker,
        block_server(broker.port, root),
        BlockDevice(broker.port) as device,
    ):
        yield device.fetcher


WAYS = {"http": _over_http, "folder": _from_folder, "simulator": _from_simulator, "mqtt": _over_mqtt}


@pytest.fixture(params=list(WAYS))
def fetcher(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fetcher]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with WAYS[request.param](tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("path", FILES)
def test_metadata_comes_whole(fetcher: Fetcher, path: str) -> None:
    assert b"".join(fetcher.metadata(path, 10_000)) == FILES[path]


def test_metadata_that_is_too_long_is_seen_to_be(fetcher: Fetcher) -> None:
    came = sum(len(piece) for piece in fetcher.metadata("targets/models/acme/traffic/00.1+b.json", 100))
    assert 100 < came <= 10_000


@pytest.mark.parametrize("path", ["metadata/2.root.json", "metadata", "metadata/none/1.root.json"])
def test_metadata_that_is_not_there(fetcher: Fetcher, path: str) -> None:
    with pytest.raises(NotFoundError):
        list(fetcher.metadata(path, 100))


@pytest.mark.parametrize(
    ("start", "end"), [(0, 256_000), (0, 1), (1, 2), (65_535, 131_073), (255_999, 256_000)]
)
def test_blobs_come_in_the_range_asked_for(fetcher: Fetcher, start: int, end: int) -> None:
    assert b"".join(fetcher.blob(SHA256, start, end)) == BLOB[start:end]


def test_an_empty_range_is_empty(fetcher: Fetcher) -> None:
    assert list(fetcher.blob(SHA256, 256_000, 256_000)) == []


def test_a_blob_that_is_not_there(fetcher: Fetcher) -> None:
    with pytest.raises(NotFoundError):
        list(fetcher.blob("0" * 64, 0, 10))


def test_a_reader_may_stop_early_and_read_again(fetcher: Fetcher) -> None:
    for _ in range(3):
        assert next(iter(fetcher.blob(SHA256, 0, 256_000)))[0] == 0
    assert b"".join(fetcher.blob(SHA256, 7, 9)) == BLOB[7:9]
