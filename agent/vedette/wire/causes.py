"""Why a frame was dropped or failed: the stable words of the ledger, results and metrics. Pure."""

from __future__ import annotations

from enum import Enum


class DropCause(str, Enum):
    """The frame was good, or could not be read at all; it was not answered, on purpose."""

    SUPERSEDED = "superseded"  # a newer frame of the same camera was there
    NO_WORKER = "no_worker"  # no engine worker was serving: starting, or being replaced
    STALE = "stale"  # older than the camera's age budget
    RATE = "rate"  # above the camera's configured fps
    DAMAGED = "damaged"  # picture cut, foreign bytes, failed checksum: never inferred
    SHORT = "short"  # the stream ended inside the frame
    OVERSIZE = "oversize"  # larger than the ring's slots
    SHUTDOWN = "shutdown"  # read, but the agent was told to stop


class FailCause(str, Enum):
    """The frame was taken for inference and got no answer; a result line says so."""

    DECODE = "decode"  # the pixels could not be interpreted
    INFER = "infer"  # the engine raised
    OUT_OF_MEMORY = "out_of_memory"
    BAD_OUTPUT = "bad_output"  # NaN, wrong shape
    WORKER_CRASHED = "worker_crashed"  # the engine worker died with the frame in hand
    WORKER_HUNG = "worker_hung"  # the engine worker was killed for taking too long
    UNDELIVERED = "undelivered"  # answered, but the answer did not reach its reader; so no line says it


# What the owner asked for is no loss: beyond `fps` no frame was ever wanted.
AS_CONFIGURED = frozenset({DropCause.RATE.value})

# Drops that the source counts in the ring's header; the position is the ABI.
SOURCE_DROPS: tuple[DropCause, ...] = (
    DropCause.RATE,
    DropCause.DAMAGED,
    DropCause.SHORT,
    DropCause.OVERSIZE,
)
