"""What batches bring the cloud server: `python -m tests.bench.cloud`.

Two servers of this repository, as an operator starts them, over the same bundle: `--batch 8` and `--batch 1`.
CLIENTS clients ask over connections that stay open, a block of requests here and one there, in one run. Bar:
answers a second with batches are at least GAIN times those without, on a model on which batches pay: a stack
of wide dense layers (tests.stubs.cloud_bundles.deep_bundle), where reading the weights is the work. The same
is printed for `imagenet-large` without a bar: its convolutions read their weights many times for one picture
already, so on a CPU there is little left to share, and the server finds that out when it starts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tests.bench.path import MODELS
from tests.bench.serve import Call, Client
from tests.bench.verdict import Verdict, options, table
from tests.integration.cloud_server.served import Served
from tests.stubs.cloud_bundles import deep_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLIENTS = 8
BATCH = 8
WAIT_MS = 5
GAIN = 2.0
BLOCK_S = 1.0


def call_for(server: Served, side: int) -> Call:
    """A request with a picture of that side, the same for both servers."""
    picture = np.random.default_rng(3).integers(0, 256, (side, side, 3), np.uint8).tobytes()
    entry = {
        "name": "image",
        "shape": [side, side, 3],
        "datatype": "UINT8",
        "parameters": {"binary_data_size": len(picture)},
    }
    head = json.dumps({"inputs": [entry], "outputs": [{"name": "labels"}, {"name": "scores"}]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream",
    }
    port = int(server.url.rpartition(":")[2])
    return Call(port, f"/v2/models/{server.ready['model']}/infer", head + picture, headers)


def answers_a_second(clients: Sequence[Client], block_s: float) -> float:
    """All clients at once, for a while."""
    counts = [0] * len(clients)
    end_s = time.monotonic() + block_s

    def ask(index: int) -> None:
        while time.monotonic() < end_s:
            clients[index]()
            counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(clients))]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - started_s)


@contextlib.contextmanager
def asking(folder: Path, bundle: Path, batch: int, side: int) -> Iterator[list[Client]]:
    """A server and its clients."""
    folder.mkdir()
    with Served(folder, bundle, "--batch", str(batch), "--batch-wait-ms", str(WAIT_MS)) as server:
        print(f"{bundle.name}: asked for {batch}, runs as one {server.ready['batches']}")
        clients = [Client(call_for(server, side)) for _ in range(CLIENTS)]
        try:
            yield clients
        finally:
            for client in clients:
                client.close()


def measure(folder: Path, bundle: Path, side: int, rounds: int) -> tuple[list[float], list[float]]:
    """Answers a second in each round: with batches, and without."""
    with (
        asking(folder / f"{bundle.name}-batched", bundle, BATCH, side) as batched,
        asking(folder / f"{bundle.name}-single", bundle, 1, side) as single,
    ):
        for clients in (batched, single):
            answers_a_second(clients, BLOCK_S / 2)
        found: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds):
            pairs = [(found[0], batched), (found[1], single)]
            for figures, clients in pairs if turn % 2 else reversed(pairs):
                figures.append(answers_a_second(clients, BLOCK_S))
        return found


def main() -> int:
    """Run it."""
    given = options(__doc__ or "", rounds=5).parse_args()
    verdict = Verdict(f"Answers a second of {CLIENTS} clients, batches of {BATCH} against one by one")
    rows, gains = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for bundle, side in ((deep_bundle(folder / "deep"), 8), (MODELS / "imagenet-large", 320)):
            batched, single = measure(folder, bundle, side, given.rounds)
            gains[bundle.name] = statistics.median(
                with_ / without for with_, without in zip(batched, single, strict=True)
            )
            rows.append(
                [
                    bundle.name,
                    f"{statistics.median(single):.1f}",
                    f"{statistics.median(batched):.1f}",
                    f"{gains[bundle.name]:.2f}",
                ]
            )
    table(["bundle", "one by one, 1/s", f"batches of {BATCH}, 1/s", "gain"], rows)
    verdict.at_most("deep: one by one over batches", 1 / gains["deep"], 1 / GAIN)
    return verdict.exit_status(strict=given.strict)


if __name__ == "__main__":
    sys.exit(main())
