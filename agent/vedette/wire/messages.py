"""Results and reports as outsiders see them (JSON lines, MQTT, HTTP). Pure.

Field order is the order in the JSON line. Optional parts that do not apply are absent, not null, except
`escalation`, whose null says "was not escalated".
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class ModelRef(msgspec.Struct, frozen=True):
    """Which model answered; `sha256` is the digest of the whole bundle."""

    name: str
    version: str
    sha256: str


class Label(msgspec.Struct, frozen=True):
    """One class of a classification."""

    label: str
    index: int
    score: float


class Detection(msgspec.Struct, frozen=True):
    """One object; `box` is x1, y1, x2, y2 in pixels of the upright original frame."""

    label: str
    index: int
    score: float
    box: tuple[float, float, float, float]
    keypoints: tuple[tuple[float, float], ...] | UnsetType = UNSET


class RawTensor(msgspec.Struct, frozen=True):
    """One output tensor, dequantised to float32 where it was quantised; little-endian, row-major.

    The answer to somebody's own input tensor holds the outputs in the engine's own types instead.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: bytes


class LatencyMs(msgspec.Struct, frozen=True, omit_defaults=False):
    """Milliseconds on the monotonic clock, from the source's timestamp to the answer leaving the worker."""

    transport: float
    queue: float
    preprocess: float
    infer: float
    postprocess: float
    total: float


class Failure(msgspec.Struct, frozen=True):
    """A frame that was taken and not answered."""

    cause: str
    detail: str


class Escalation(msgspec.Struct, frozen=True):
    """The single outcome of an escalation; the words are those of `wire.escalation`.

    `took_ms` is from the local answer to the outcome. `model` is the large
    model's name, `said` its own word where that could not be mapped.
    """

    outcome: Literal["answered", "agreed", "declined", "expired", "failed"]
    cause: str | UnsetType = UNSET
    reason: Literal["uncertain", "audit"] | UnsetType = UNSET
    took_ms: float | UnsetType = UNSET
    model: str | UnsetType = UNSET
    said: str | UnsetType = UNSET


class Result(msgspec.Struct, frozen=True):
    """One line of output: an answer, or a failure that names its cause.

    `file` is the picture file that the frame came from, relative to the folder or list that was the input.
    `reused_ms`: nothing had changed since a frame captured that long before, and this is its answer.
    """

    v: int
    camera: str
    seq: int
    captured_ns: int
    model: ModelRef
    task: str
    file: str | UnsetType = UNSET
    top: tuple[Label, ...] | UnsetType = UNSET
    detections: tuple[Detection, ...] | UnsetType = UNSET
    tensors: tuple[RawTensor, ...] | UnsetType = UNSET
    confidence: float | UnsetType = UNSET
    source: Literal["local", "cloud"] = "local"
    escalation: Escalation | None = None
    latency_ms: LatencyMs | UnsetType = UNSET
    failed: Failure | UnsetType = UNSET
    reused_ms: float | UnsetType = UNSET


class Skipped(msgspec.Struct, frozen=True):
    """An accelerator that was asked for and is not in effect, and why."""

    accelerator: str
    reason: str


class AcceleratorReport(msgspec.Struct, frozen=True):
    """What the model really runs on, against what was asked.

    `nodes` counts graph nodes per accelerator where the runtime tells (empty where it does not); `evidence`
    says how `effective` is known; `check_ms` is the median of a few timed runs on this accelerator.
    """

    runtime: str
    asked: tuple[str, ...]
    effective: str
    nodes: dict[str, int]
    skipped: tuple[Skipped, ...]
    evidence: str
    threads: int
    check_ms: float
    load_ms: float
    degraded: bool


class SelfTest(msgspec.Struct, frozen=True):
    """Golden inputs run at load: `worst` deviation as a share of its tolerance; 1 or less passes."""

    cases: int
    worst: float
    detail: str
