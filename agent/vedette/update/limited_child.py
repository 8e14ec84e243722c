"""Runs `work(spec, tell)` of a module in a child process with limits: it may crash, hang or swell, alone.

The child is started by `limited_start`: the spec comes on standard input, lines go to a descriptor. It is the
first that the kernel kills when memory runs out, takes processor and disk only when nobody else wants them,
and dies with the thread that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vedette.frame.lifeline import tie_to_parent
from vedette.update.jobs import Child, Ended, Limits, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock

POLL_S = 0.2
KILL_WAIT_S = 5.0
MAX_TOLD_BYTES = 1 << 20
KEPT_STDERR_BYTES = 8192
INTERPRETER_BYTES = 192 << 20
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "armv7l": 314, "riscv64": 30}
_IOPRIO_IDLE = 3 << 13
# One thread each, as in the engine's worker: pools of numeric libraries are memory and noise.
_QUIET_POOLS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


class ChildProcesses:
    """Implements `jobs.RunChild`; the children are this process's own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, module: str, spec: bytes, limits: Limits, on_line: Callable[[bytes], None]) -> Child:
        """Run to the end, in pieces; closing the generator kills the child."""
        try:
            child = _Process(module, spec, limits)
        except OSError as error:
            return Ended((), 127, f"no process could be started: {error.strerror}")
        deadline_ns = self._clock.monotonic_ns() + round(limits.wall_s * 1e9)
        broke = ""
        try:
            while child.status() is None:
                yield Wait(POLL_S, child.told_fd)
                child.read(on_line)
                if self._clock.monotonic_ns() > deadline_ns:
                    broke = "time"
                elif child.swelled():
                    broke = "memory"
                if broke:
                    child.kill()
                    break
            child.read(on_line)
            return Ended(tuple(child.lines), child.status() or 0, child.last_words(), broke)
        finally:
            child.close()


class _Process:
    """A started child and its three streams."""

    def __init__(self, module: str, spec: bytes, limits: Limits) -> None:
        self.lines: list[bytes] = []
        self._partial = b""
        self._told_bytes = 0
        self._stderr = b""
        self._limit_bytes = limits.memory_bytes
        self._first_bytes = 0
        self.told_fd, told_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stderr_fd, stderr_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        spec_fd = os.memfd_create("vedette-spec", os.MFD_CLOEXEC)
        try:
            os.set_blocking(told_write, True)
            os.set_blocking(stderr_write, True)
            with os.fdopen(os.dup(spec_fd), "wb") as file:
                file.write(spec)
            os.lseek(spec_fd, 0, os.SEEK_SET)
            arguments = [module, str(told_write), str(os.getpid()), msgspec.json.encode(limits).decode()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vedette.update.limited_start", *arguments],
                stdin=spec_fd,
                stdout=subprocess.DEVNULL,
                stderr=stderr_write,
                pass_fds=(told_write,),
                start_new_session=True,
                env={**os.environ, **_QUIET_POOLS},
            )
        except OSError:
            os.close(self.told_fd)
            os.close(self._stderr_fd)
            raise
        finally:
            for fd in (told_write, stderr_write, spec_fd):
                os.close(fd)

    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self._process.poll()

    def read(self, on_line: Callable[[bytes], None]) -> None:
        """Take in what it said; never blocks."""
        self._stderr = (self._stderr + _drain(self._stderr_fd))[-KEPT_STDERR_BYTES:]
        self._partial += _drain(self.told_fd)
        *whole, self._partial = self._partial.split(b"\n")
        for line in whole:
            self._told_bytes += len(line)
            if self._told_bytes > MAX_TOLD_BYTES:
                self.kill()
                return
            self.lines.append(line)
            on_line(line)

    def swelled(self) -> bool:
        """Whether it holds more memory than it may; its first megabytes are Python and its imports."""
        if not self._limit_bytes:
            return False
        try:
            fields = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()
        except OSError:
            return False
        # File pages are the kernel's to take back; what is shared with nobody is what hurts.
        private_bytes = (int(fields[1]) - int(fields[2])) * resource.getpagesize()
        return private_bytes > self._limit_bytes + INTERPRETER_BYTES

    def last_words(self) -> str:
        """The last line of its standard error that says something."""
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it in the kernel
            self._process.wait(KILL_WAIT_S)

    def close(self) -> None:
        """Make sure that it is dead, and let go of its streams."""
        if self._process.poll() is None:
            self.kill()
        os.close(self.told_fd)
        os.close(self._stderr_fd)


def _drain(fd: int) -> bytes:
    pieces = []
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(fd, 65536):
            pieces.append(piece)
    return b"".join(pieces)


def _yield_to_everybody() -> None:
    """Beside its niceness, which `limited_start` lowers."""
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _limit(limits: Limits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 5))
    if limits.address_bytes:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + limits.address_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(arguments: list[str]) -> int:
    """The child, with MODULE FD PARENT_PID LIMITS: limits first, then the work."""
    module, told_fd, parent_pid, encoded = arguments
    tie_to_parent(int(parent_pid))
    _yield_to_everybody()
    work = importlib.import_module(module).work
    _limit(msgspec.json.decode(encoded, type=Limits))
    spec = sys.stdin.buffer.read()
    descriptor = int(told_fd)

    def tell(line: bytes) -> None:
        left = line + b"\n"
        while left:
            left = left[os.write(descriptor, left) :]

    work(spec, tell)
    return 0
