"""Files in blocks over MQTT on loopback: `python -m tests.bench.blocks`.

blocks    one `vedette-fleet serve-blocks`, Mosquitto, and this process as the device
http      the same blob from `vedette-fleet serve-files`, by the agent's HTTP fetcher, in the same run
lossy     the first, through a proxy that drops, doubles or reorders one block in twenty

Bars: 20 MB in a second at most, in the median of the rounds; through the proxy it completes, and what is
fetched again is at most AGAIN_RATIO times what was lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.verdict import Verdict, options, table
from tests.stubs.block_plane import COMMAND, BlockDevice, ServerProcess, make_repository
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_proxy import Act, MqttProxy, RandomFaults

from vedette.errors import InternalError
from vedette.update.http import HttpFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB = 1_000_000
BLOB_BYTES = 32 << 20
BAR_MB_S = 20.0
LOSSY_BYTES = 16 << 20
# So that there are a thousand blocks, and about fifty lost ones.
LOSSY_PACKET_BYTES = 17_000
CHANCE = 0.05
AGAIN_RATIO = 1.2


def timed_s(fetch: Callable[[], bytes], content: bytes) -> float:
    """How long a fetch took, which must bring this."""
    began_s = time.perf_counter()
    got = fetch()
    took_s = time.perf_counter() - began_s
    if got != content:
        raise InternalError("other bytes came than were asked for")
    return took_s


@contextlib.contextmanager
def http_server(root: Path) -> Iterator[str]:
    """`vedette-fleet serve-files` on a free port; its URL."""
    process = subprocess.Popen(
        [*COMMAND, "serve-files", str(root), "--port", "0", "--quiet"], stdout=subprocess.PIPE
    )
    try:
        if process.stdout is None:
            raise InternalError("a pipe was asked for")
        yield process.stdout.readline().decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(5.0)


def measure_speed(port: int, root: Path, blob: bytes, rounds: int) -> dict[str, list[float]]:
    """Seconds for the blob, both ways in turn."""
    sha256 = hashlib.sha256(blob).hexdigest()
    took: dict[str, list[float]] = {"blocks": [], "http": []}
    with http_server(root) as url, BlockDevice(port) as device:
        http = HttpFetcher(url)
        ways = {"blocks": device.fetcher.blob, "http": http.blob}
        for _ in range(rounds):
            for name, way in ways.items():
                took[name].append(timed_s(lambda way=way: b"".join(way(sha256, 0, len(blob))), blob))  # type: ignore[misc]
        http.close()
    return took


def measure_loss(port: int, blob: bytes, act: Act, seed: int) -> tuple[list[str], float]:
    """A row of the table, and what was fetched again as a share of what was lost (of a block, for none)."""
    faults = RandomFaults(seed, topic="/blk/dat", **{act.value: CHANCE})
    sha256 = hashlib.sha256(blob).hexdigest()
    with (
        MqttProxy(port, faults) as proxy,
        BlockDevice(proxy.port, max_packet_bytes=LOSSY_PACKET_BYTES, stall_s=30.0) as device,
    ):
        took_s = timed_s(lambda: b"".join(device.fetcher.blob(sha256, 0, LOSSY_BYTES)), blob[:LOSSY_BYTES])
        figures = device.fetcher.figures
    row = [
        act.value,
        f"{faults.harmed[act]:,}",
        f"{faults.dropped_bytes:,}",
        f"{figures.asked_again_bytes:,}",
        f"{figures.duplicates:,}",
        f"{LOSSY_BYTES / MB / took_s:.1f}",
    ]
    return row, figures.asked_again_bytes / max(faults.dropped_bytes, LOSSY_PACKET_BYTES)


def main() -> int:
    """Measure, print, and say which bars were missed."""
    arguments = options("Files in blocks over MQTT on loopback.", rounds=5).parse_args()
    verdict = Verdict("Files in blocks over MQTT, loopback")
    blob = random.Random(1).randbytes(BLOB_BYTES)  # noqa: S311 - a file
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as name:
        folder = Path(name)
        root = make_repository(folder / "repository", {}, blob)
        with (
            Mosquitto(folder / "broker") as broker,
            ServerProcess(broker.port, root, folder / "server.log"),
        ):
            took = measure_speed(broker.port, root, blob, arguments.rounds)
            speeds = {way: [len(blob) / MB / took_s for took_s in all_s] for way, all_s in took.items()}
            table(
                ["way", "MB/s, median", "worst", "best"],
                [
                    [way, *(f"{figure:.1f}" for figure in (median(found), min(found), max(found)))]
                    for way, found in speeds.items()
                ],
            )
            lossy = [
                measure_loss(broker.port, blob, act, seed)
                for seed, act in enumerate((Act.DROP, Act.DUPLICATE, Act.REORDER))
            ]
    table(
        ["one block in 20", "blocks", "lost bytes", "fetched again", "unneeded", "MB/s"],
        [row for row, _ in lossy],
    )
    verdict.at_most("seconds for 20 MB", BAR_MB_S / median(speeds["blocks"]), 1.0, " s")
    for (row, ratio), what in zip(lossy, ("lost", "one block", "one block"), strict=True):
        verdict.at_most(f"{row[0]}: fetched again / {what}", ratio, AGAIN_RATIO)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
