"""The cheapest possible worker: takes a byte, spins for as long as a model would run, gives a byte back.

`python -m tests.bench.echo NANOSECONDS`. What a round trip costs beyond the spinning is what the kernel, and
a hypervisor below it, takes to put one process to sleep and wake the other, twice. No transport can be
cheaper without spinning while it waits; on a virtual machine the price grows with the length of the sleep.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time


class Echo:
    """The parent's end; calling it is one round trip."""

    def __init__(self, busy_ns: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.echo", str(busy_ns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def __call__(self) -> bytes:
        """A byte there, a byte back."""
        os.write(self._in.fileno(), b".")
        answer = os.read(self._out.fileno(), 1)
        if not answer:
            raise SystemExit("the echo process ended")
        return answer

    def close(self) -> None:
        """It ends with its input."""
        self._in.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait(10)
        self._out.close()


def main() -> None:
    """Echo until the input ends."""
    busy_ns = int(sys.argv[1])
    while os.read(0, 1):
        until_ns = time.perf_counter_ns() + busy_ns
        while time.perf_counter_ns() < until_ns:
            pass
        os.write(1, b".")


if __name__ == "__main__":
    main()
