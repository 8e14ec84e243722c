"""The HTTP door against a plain FastAPI and ONNX Runtime server: `python -m tests.bench.serve`.

engine  the engine's run alone, in this process, its input filled before
door    `vedette-agent run` with an `http` section: /v2/models/…/infer, a 640x480 picture as a binary tensor
inline  tests.bench.plain_server, the model inside `async def`
threads tests.bench.plain_server, the model in the thread pool

All run the same model with one thread; one client, the same for all of them, asks over one connection that
stays open, a block of requests here and one there. Bars: what the door takes over the engine alone is at most
SHARE of what each of the servers takes, at the median and at p95. `inline` is the quicker one for a single
client, at the price that it hears nobody else meanwhile; `threads` is what FastAPI's manual advises for work
that blocks. Then CLIENTS clients at once: the time for each answer, over the engine's own, by the same bar
against `inline`, which runs one model at a time as the agent does; `threads` runs one on each CPU.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tests.bench.agent_process import AgentProcess
from tests.bench.path import MODELS, columns
from tests.bench.plain_server import Form
from tests.bench.quiet import Figures, ForeignCpu, compare, figures_of, quietest, wait_for_quiet
from tests.bench.verdict import Verdict, options, table

from vedette.engine.messages import WorkerSpec
from vedette.engine.model import load_model
from vedette.runtime.benchmark import synthetic_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from tests.bench.quiet import Rounds

BUNDLE = "imagenet-onnx"
MODEL = "imagenet"
WIDTH, HEIGHT = 640, 480
THREADS = 1
SHARE = 0.7
CLIENTS = 8
CALLS_EACH = 12
TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.05


class Call(NamedTuple):
    """One request, the same again and again."""

    port: int
    path: str
    body: bytes
    headers: dict[str, str]


class Client:
    """One connection that stays open; each call is one answered request."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._connection = http.client.HTTPConnection("127.0.0.1", call.port, timeout=TIMEOUT_S)

    def __call__(self) -> bytes:
        """Ask, and read the whole answer.

        Raises:
            SystemExit: It is none.
        """
        _, path, body, headers = self._call
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
        except ConnectionError:  # closed as idle, while the others had their turn
            self._connection.close()
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {content[:300]!r}")
        return content

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def listen() -> socket.socket:
    """A free port of this box."""
    return socket.create_server(("127.0.0.1", 0), backlog=128)


def wait_until_ready(port: int, path: str) -> None:
    """Ask until 200 comes.

    Raises:
        SystemExit: It did not come.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        with contextlib.suppress(OSError):
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                connection.close()
                return
        connection.close()
        time.sleep(LOOK_EVERY_S)
    raise SystemExit(f"nobody is ready at {path} on port {port}")


@contextlib.contextmanager
def door(picture: NDArray[np.uint8]) -> Iterator[Call]:
    """The agent, and the request for it."""
    with listen() as free:
        port = free.getsockname()[1]
    configuration = json.dumps(
        {
            "model": {"factory": str(MODELS / BUNDLE)},
            "engine": {"threads": THREADS},
            "cameras": {},
            "http": {"listen": f"127.0.0.1:{port}"},
            "control": {"socket": "control.sock"},
        }
    )
    tensor = {
        "name": "image",
        "shape": [HEIGHT, WIDTH, 3],
        "datatype": "UINT8",
        "parameters": {"binary_data_size": picture.nbytes},
    }
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "labels"}, {"name": "scores"}]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream",
    }
    with AgentProcess(configuration):
        wait_until_ready(port, "/readyz")
        yield Call(port, f"/v2/models/{MODEL}/infer", head + picture.tobytes(), headers)


@contextlib.contextmanager
def plain(picture: NDArray[np.uint8], form: Form) -> Iterator[Call]:
    """The other server, and the request for it."""
    with listen() as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "tests.bench.plain_server", str(listener.fileno())]
        process = subprocess.Popen(
            [*command, str(MODELS / BUNDLE), str(THREADS), form.value], pass_fds=[listener.fileno()]
        )
    try:
        wait_until_ready(port, "/ready")
        headers = {"Content-Type": "application/octet-stream"}
        yield Call(port, f"/classify?height={HEIGHT}&width={WIDTH}", picture.tobytes(), headers)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TIMEOUT_S)
        process.kill()
        process.wait(TIMEOUT_S)


def check_same_answers(calls: Mapping[str, Call]) -> None:
    """What is compared has to do the same.

    Raises:
        SystemExit: The servers see different things in one picture.
    """
    seen = {}
    for name, call in calls.items():
        client = Client(call)
        answer = json.loads(client())
        client.close()
        if "top" in answer:
            seen[name] = answer["top"][0]["label"]
        else:
            seen[name] = next(o["data"][0] for o in answer["outputs"] if o["name"] == "labels")
    if len(set(seen.values())) != 1:
        raise SystemExit(f"the servers do not do the same: {seen}")


def at_once(call: Call) -> tuple[NDArray[np.int64], float]:
    """CLIENTS clients, CALLS_EACH requests each: what each took (ns), and seconds for all together."""
    taken_ns = np.zeros((CLIENTS, CALLS_EACH), np.int64)
    faults: list[BaseException] = []
    begin = threading.Barrier(CLIENTS + 1)

    def ask(row: int) -> None:
        client = Client(call)
        try:
            client()
            begin.wait(TIMEOUT_S)
            for index in range(CALLS_EACH):
                start_ns = time.perf_counter_ns()
                client()
                taken_ns[row, index] = time.perf_counter_ns() - start_ns
        except BaseException as error:  # noqa: BLE001 - told to whoever measures
            faults.append(error)
            begin.abort()
        finally:
            client.close()

    clients = [threading.Thread(target=ask, args=(row,)) for row in range(CLIENTS)]
    for client in clients:
        client.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        begin.wait(TIMEOUT_S)
    start_s = time.perf_counter()
    for client in clients:
        client.join(TIMEOUT_S)
    if faults:
        raise SystemExit(f"a client failed: {faults[0]!r}")
    return taken_ns.reshape(-1), time.perf_counter() - start_s


class Crowd(NamedTuple):
    """What CLIENTS clients at once saw: latencies, microseconds for each answer, and how far to trust it."""

    latency: Figures
    per_answer_us: float


def crowds(calls: Mapping[str, Call], rounds: int) -> tuple[dict[str, Crowd], float]:
    """Rounds in turn as `compare` does them; the share of foreign CPU in those that were kept."""
    taken: list[tuple[float, dict[str, NDArray[np.int64]]]] = []
    walls: list[dict[str, float]] = []
    for number in range(rounds):
        sys.stderr.write(f"{CLIENTS} clients, round {number + 1} of {rounds}\n")
        order = list(calls) if number % 2 == 0 else list(calls)[::-1]
        times, wall_s, noisiest = {}, {}, 0.0
        for name in order:
            wait_for_quiet(0.6)
            with ForeignCpu() as foreign:
                times[name], wall_s[name] = at_once(calls[name])
            noisiest = max(noisiest, foreign.share)
        taken.append((noisiest, times))
        walls.append(wall_s)
    kept = quietest(taken)
    kept_walls = [walls[[entry is one for one in taken].index(True)] for entry in kept]
    found = {
        name: Crowd(
            figures_of(np.concatenate([times[name] for _, times in kept])),
            float(np.median([wall[name] for wall in kept_walls])) / (CLIENTS * CALLS_EACH) * 1e6,
        )
        for name in calls
    }
    return found, float(np.mean([share for share, _ in kept]))


def engine_call() -> tuple[Callable[[], object], Callable[[], None]]:
    """The bare engine call, and how to close it."""
    model = load_model(WorkerSpec(bundle=str(MODELS / BUNDLE), threads=THREADS), lambda _: None)
    return model.engine.run, model.close


def judge(verdict: Verdict, found: Rounds, crowd: Mapping[str, Crowd]) -> None:
    """The door's share of what each of the servers takes over the engine."""
    engine = found.figures["engine"]
    over = {name: figures - engine for name, figures in found.figures.items() if name != "engine"}
    door = over["door"]
    for form in Form:
        what = f"one client: overhead of the door / of `{form.value}`"
        theirs = over[form.value]
        _judge_share(verdict, f"{what}, p50", door.p50, theirs.p50, noisy=found.noisy)
        _judge_share(verdict, f"{what}, p95", door.p95, theirs.p95, noisy=found.noisy)
    ours_us = crowd["door"].per_answer_us - engine.p50
    theirs_us = crowd[Form.INLINE.value].per_answer_us - engine.p50
    what = f"{CLIENTS} clients: time for an answer over the engine's, door / `inline`"
    _judge_share(verdict, what, ours_us, theirs_us, noisy=found.noisy)


def _judge_share(verdict: Verdict, what: str, ours_us: float, theirs_us: float, *, noisy: bool) -> None:
    """A share of nothing is no figure: an overhead below nothing says that the box was disturbed."""
    if min(ours_us, theirs_us) <= 0:
        verdict.at_most(f"{what} (not measurable)", math.inf, SHARE, noisy=True)
    else:
        verdict.at_most(what, ours_us / theirs_us, SHARE, noisy=noisy)


def main() -> int:
    """Measure, show, judge."""
    arguments = options("the HTTP door against a plain server", rounds=20).parse_args()
    verdict = Verdict(f"Serve: {WIDTH}x{HEIGHT} RGB over HTTP, {BUNDLE}, {THREADS} thread, microseconds")
    picture = np.ascontiguousarray(synthetic_frame(WIDTH, HEIGHT))
    run, close = engine_call()
    with contextlib.ExitStack() as stack:
        stack.callback(close)
        calls = {"door": stack.enter_context(door(picture))}
        for form in Form:
            calls[form.value] = stack.enter_context(plain(picture, form))
        check_same_answers(calls)
        ways: dict[str, Callable[[], object]] = {"engine": run}
        for name, call in calls.items():
            client = Client(call)
            stack.callback(client.close)
            ways[name] = client
        found = compare(ways, rounds=arguments.rounds)
        crowd, foreign = crowds(calls, max(3, arguments.rounds // 3))
    show(found, crowd, foreign)
    judge(verdict, found, crowd)
    return verdict.exit_status(strict=arguments.strict)


def show(found: Rounds, crowd: Mapping[str, Crowd], foreign: float) -> None:
    """The tables."""
    engine = found.figures["engine"]
    rows = []
    for name, figures in found.figures.items():
        rows.append([name, *columns(figures)])
        if name != "engine":
            rows.append([f"{name}: over the engine", *columns(figures - engine)])
    table(("one client", "p50", "p95", "p99"), rows)
    table(
        (f"{CLIENTS} clients at once", "p50", "p95", "p99", "an answer every", "over the engine"),
        [
            [
                name,
                *columns(one.latency),
                f"{one.per_answer_us:,.0f}",
                f"{one.per_answer_us - engine.p50:,.0f}",
            ]
            for name, one in crowd.items()
        ],
    )
    print(f"{found.noise}; with {CLIENTS} clients {foreign:.0%}\n")


if __name__ == "__main__":
    sys.exit(main())
