"""A child process of the daemon: started with inherited descriptors, watched by pidfd, its stderr kept."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_STDERR_BYTES = 8192
KILL_WAIT_S = 1.0
# What libraries print when all is well: TensorFlow Lite, absl, and ONNX Runtime at levels below a warning.
_BANNER = re.compile(r"(?:INFO|VERBOSE|DEBUG)\b|[IV]\d{4,8} \d|.{0,80}\[[IV]:onnxruntime")
# One thread each: the engine's own pool is sized on purpose, and every further pool is memory and noise.
_QUIET_POOLS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class Child:
    """One running child; the owner polls `exited` when `pidfd` becomes readable."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, pass_fds: Sequence[int], stdin: int | None = None
    ) -> None:
        """Start `python -m module arguments`.

        Args:
            module: Dotted name of the module to run.
            arguments: Its command line.
            pass_fds: Descriptors that it inherits under the same numbers.
            stdin: Descriptor for its standard input; None is /dev/null.

        Raises:
            OSError: The system has no process, memory or descriptor left for it.
        """
        self.stderr_fd, stderr_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(stderr_write, True)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr_write,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
                env={**os.environ, **_QUIET_POOLS},
            )
        except OSError:
            os.close(self.stderr_fd)
            raise
        finally:
            os.close(stderr_write)
        self.pid = self._process.pid
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._process.kill()
            self._process.wait(KILL_WAIT_S)
            os.close(self.stderr_fd)
            raise
        self._stderr = b""

    def read_stderr(self) -> None:
        """Move what the child said into the kept tail; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while True:
                piece = os.read(self.stderr_fd, 65536)
                if not piece:
                    return
                self._stderr = (self._stderr + piece)[-KEPT_STDERR_BYTES:]

    def last_words(self) -> str:
        """The last line of the child's stderr that says something; empty where banners are all there is."""
        self.read_stderr()
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line and not _BANNER.match(line)), "")

    def exited(self) -> int | None:
        """Exit status (negative: killed by that signal), or None while it runs. Reaps."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL; harmless when it is already dead."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; False when it still runs after `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Make sure it is dead and reaped, and close the descriptors."""
        if self._process.poll() is None:
            self.kill()
            # One that a driver holds in the kernel cannot be reaped now; the daemon must not wait for it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_WAIT_S)
        for fd in (self.pidfd, self.stderr_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
