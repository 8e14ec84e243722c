"""What is asked of a running daemon over its control socket, and what it answers. Pure.

One JSON object in a line each way. The protocol is for this agent's own command line on the same box.
"""

from __future__ import annotations

import msgspec

from vedette.escalate.messages import Promise, Spend
from vedette.link.port import LinkStatus
from vedette.telemetry.escalation_window import EscalationCounts
from vedette.update.status import UpdateStatus
from vedette.vision.tensors import TensorInfo
from vedette.wire.messages import AcceleratorReport, ModelRef, SelfTest
from vedette.wire.telemetry import EscalationFigures

MAX_LINE_BYTES = 1 << 20


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """How does it go?"""


class CheckRequest(msgspec.Struct, frozen=True, tag="update-check"):
    """Look for updates now."""


class AbortRequest(msgspec.Struct, frozen=True, tag="update-abort"):
    """Stop the update that is under way."""


class ImportRequest(msgspec.Struct, frozen=True, tag="update-import"):
    """Take updates from a folder, such as a USB stick; `folder` is absolute."""

    folder: str


class DescribeRequest(msgspec.Struct, frozen=True, tag="describe"):
    """Which model answers frames, and what does it take and give?"""


class MetricsRequest(msgspec.Struct, frozen=True, tag="metrics"):
    """Every figure there is, for Prometheus; the body is a `telemetry.prometheus` snapshot."""


Request = StatusRequest | CheckRequest | AbortRequest | ImportRequest | DescribeRequest | MetricsRequest


class Reply(msgspec.Struct, frozen=True):
    """`error` with its exit code, or `body`, whose form belongs to the request."""

    body: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    cure: str | None = None
    exit_code: int = 0


class CameraStatus(msgspec.Struct, frozen=True):
    """One camera since the start; `fps` is answers a second over the last half minute or so.

    `reused` answers were given again, `checks` of such frames were answered anew, and `checks_wrong` of those
    differed.
    """

    camera: str
    state: str
    live: bool
    fps: float
    frames_in: int
    ok: int
    dropped: dict[str, int]
    failed: dict[str, int]
    in_flight: int
    source_restarts: int
    reused: int = 0
    checks: int = 0
    checks_wrong: int = 0


class EscalationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The large model `model`, the process that asks it (`state`, `fault`, `restarts`), and what came of it.

    `pause_s` is for how long it is not asked because it failed too often. Counts in `figures` are totals.
    """

    model: str
    state: str
    fault: str
    restarts: int
    cameras: dict[str, EscalationCounts]
    promise: Promise
    spend: Spend
    figures: EscalationFigures
    pause_s: float
    backlog_bytes: int
    training_samples: int
    training_bytes: int


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `StatusRequest`; `uptime_s` is monotonic.

    `model` is what answers frames now, null while nothing does. `releases` gives names to the digests in
    `update`, which is null where no update is configured; `no_update` says why none can be had, `look_fault`
    why the last look for one failed, `clock_doubt` why the clock was not believed in it.
    `link` is null where no broker is configured, `escalation` where no large model is.
    """

    v: int = 1
    agent: str
    device: str
    uptime_s: float
    model: ModelRef | None
    engine: AcceleratorReport | None
    worker_restarts: int
    cameras: tuple[CameraStatus, ...]
    update: UpdateStatus | None = None
    releases: dict[str, str] = {}
    no_update: str = ""
    look_fault: str = ""
    clock_doubt: str = ""
    link: LinkStatus | None = None
    escalation: EscalationStatus | None = None


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `DescribeRequest`.

    `ready`: loaded, warmed, its golden inputs answered, and serving; else `reason` says what is going on, and
    `retry_after_s` when asking again makes sense. `inputs` and `outputs` are the engine's own, the picture
    first. `bundle_bytes` is the size of all its files.
    """

    ready: bool
    reason: str = ""
    retry_after_s: float = 1.0
    model: ModelRef | None = None
    task: str = ""
    platform: str = ""
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    bundle_bytes: int = 0
    engine: AcceleratorReport | None = None
    self_test: SelfTest | None = None


class Heard(msgspec.Struct, frozen=True):
    """The answer to the other requests: in a word, or a few, what becomes of it."""

    said: str
