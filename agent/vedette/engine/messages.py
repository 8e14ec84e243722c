"""What the daemon and an engine worker say to each other. Pure."""

from __future__ import annotations

import msgspec

from vedette.engine.port import OnFallback
from vedette.wire.causes import DropCause
from vedette.wire.messages import AcceleratorReport, ModelRef, Result, SelfTest


class WorkerSpec(msgspec.Struct, frozen=True):
    """How a worker process is to load its model; travels as JSON on the command line.

    `plugins` overrides or adds engines by "module:factory". `warmup_runs` are inferences made before READY.
    """

    bundle: str
    accelerators: tuple[str, ...] = ("cpu",)
    on_fallback: OnFallback = OnFallback.WARN
    threads: int = 1
    cache_dir: str | None = None
    options: dict[str, str] = {}
    plugins: dict[str, str] = {}
    warmup_runs: int = 3


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Serve a camera from the ring whose descriptors come along."""

    camera: str
    seat: int
    priority: int = 1
    max_age_ns: int | None = None


class Detach(msgspec.Struct, frozen=True, tag=True):
    """Serve a camera no longer."""

    camera: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish the frame in hand and exit 0."""


ToWorker = Attach | Detach | Stop


class Progress(msgspec.Struct, frozen=True, tag=True):
    """One real step of loading."""

    line: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Loaded, self-tested and warmed."""

    model: ModelRef
    task: str
    accelerator: AcceleratorReport
    self_test: SelfTest


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """This model cannot be served; trying the same again is useless."""

    exit_code: int
    cause: str
    cure: str | None = None


class Detached(msgspec.Struct, frozen=True, tag=True):
    """The camera's ring is no longer used."""

    camera: str


FromWorker = Progress | Ready | Fatal | Detached


class Answered(msgspec.Struct, frozen=True, tag=True):
    """A frame's answer, or its failure; `answered_ns` is CLOCK_MONOTONIC when it left the worker."""

    result: Result
    answered_ns: int


class Dropped(msgspec.Struct, frozen=True, tag=True):
    """A frame that was taken from the ring and not inferred."""

    camera: str
    seq: int
    cause: DropCause


FromWorkerResults = Answered | Dropped
