"""How late after its deadline a call to the large model is back: `python -m tests.bench.cloud_deadline`.

The bar is 50 ms, whatever the server does; each row is a server that would keep us for longer.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.bench.verdict import Verdict, options, table
from tests.stubs.cloud_scripts import ScriptedCloud, drips, floods, mute

from vedette.clock import SystemClock
from vedette.escalate.http_call import CloudHttp
from vedette.escalate.port import CloudError
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_S = 0.3
BAR_MS = 50
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMALL, LARGE = b"{}", bytes(20_000_000)
ANSWER_BYTES = 1 << 40


@contextlib.contextmanager
def _never_reads() -> Iterator[str]:
    """Connections are made by the kernel, and nobody takes them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _black_hole() -> Iterator[str]:
    """A listener whose queue is full: what asks for a connection is not answered."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _scripted(script: Callable[..., None], *, tls: bool = False) -> Iterator[str]:
    with ScriptedCloud(script) as cloud:
        yield cloud.url.replace("http:", "https:") if tls else cloud.url


@contextlib.contextmanager
def _hanging_name() -> Iterator[str]:
    """The system's look-up, held for a second: what a dead name server does for up to a minute."""
    real = socket.getaddrinfo

    def held(*arguments: Any, **options_: Any) -> Any:  # noqa: ANN401 - as the system's own
        time.sleep(1)
        return real(*arguments, **options_)

    socket.getaddrinfo = held
    try:
        yield "http://nowhere.invalid"
    finally:
        socket.getaddrinfo = real


SERVERS: dict[str, tuple[contextlib.AbstractContextManager[str], bytes]] = {
    "mute": (_scripted(mute), SMALL),
    "mute to TLS": (_scripted(mute, tls=True), SMALL),
    "head drips": (_scripted(drips(HEAD * 50, 0.02)), SMALL),
    "body drips": (_scripted(drips(HEAD + b"\r\n" + b" " * 5000, 0.01)), SMALL),
    "chunks drip": (_scripted(drips(CHUNKED + b"1\r\n \r\n" * 900, 0.01)), SMALL),
    "500 MB": (_scripted(floods), SMALL),
    "never reads 20 MB": (_never_reads(), LARGE),
    "black hole": (_black_hole(), SMALL),
    "name server hangs": (_hanging_name(), SMALL),
}


def main() -> int:
    """Measure, show, judge."""
    arguments = options("the deadline of a call to the large model", rounds=5).parse_args()
    verdict = Verdict(f"Back after a deadline of {DEADLINE_S * 1e3:.0f} ms, milliseconds too late")
    rows, faults = [], set()
    for name, (opened, body) in SERVERS.items():
        with opened as url:
            late_ms, found = _late_ms(url, body, arguments.rounds)
        faults |= found
        rows.append([name, f"{late_ms[len(late_ms) // 2]:.1f}", f"{late_ms[-1]:.1f}"])
        verdict.at_most(f"{name}: latest", late_ms[-1], BAR_MS, " ms")
    table(("", "median", "latest"), rows)
    verdict.equal("faults", sorted(faults), [CloudFault.DEADLINE.value])
    return verdict.exit_status(strict=arguments.strict)


def _late_ms(url: str, body: bytes, rounds: int) -> tuple[list[float], set[str]]:
    client = CloudHttp(url, SystemClock(), max_answer_bytes=ANSWER_BYTES)
    late_ms, faults = [], set()
    for _ in range(rounds):
        deadline_s = time.monotonic() + DEADLINE_S
        try:
            client.post("/ask", body, {}, deadline_s)
            faults.add("none")
        except CloudError as error:
            faults.add(error.fault.value)
        late_ms.append((time.monotonic() - deadline_s) * 1e3)
    client.close()
    return sorted(late_ms), faults


if __name__ == "__main__":
    sys.exit(main())
