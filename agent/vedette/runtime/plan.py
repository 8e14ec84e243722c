"""What the daemon is to run, whatever front door it came through. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from vedette.api.door_messages import DOOR, DoorSpec
from vedette.config.escalation import EscalationConfig
from vedette.config.link import MqttConfig, TelemetryConfig
from vedette.engine.messages import WorkerSpec
from vedette.gate.reuse_rules import ReuseRules
from vedette.source.port import SourceSpec

LIVE_AGE_MS = 500.0
DOOR_STALL_S = 10.0


class RestartPolicy(msgspec.Struct, frozen=True):
    """How a dead child is started again; beyond `budget` deaths in `window_s` the slowest pace is left."""

    window_s: float = 60.0
    budget: int = 5
    backoff_min_s: float = 0.2
    backoff_max_s: float = 30.0


class CameraPlan(msgspec.Struct, frozen=True):
    """One camera; `max_age_ms` None means no age budget, "auto" means LIVE_AGE_MS for live sources only.

    `door` makes it the HTTP door: its requests are its frames, and its process is started again for ever.
    """

    source: SourceSpec
    priority: int = 1
    max_age_ms: float | Literal["auto"] | None = "auto"
    slots: int = 4
    reuse: ReuseRules | None = None
    door: DoorSpec | None = None

    @property
    def name(self) -> str:
        """The camera's name in results and counts."""
        return self.source.camera

    def max_age_ns(self, *, live: bool) -> int | None:
        """The age budget once the source is open and known to be live or not; None is no limit."""
        limit_ms = (LIVE_AGE_MS if live else None) if self.max_age_ms == "auto" else self.max_age_ms
        return None if limit_ms is None else round(limit_ms * 1e6)


def door_plan(spec: DoorSpec) -> CameraPlan:
    """The HTTP door as a camera; how long a request may wait is its own affair."""
    source = SourceSpec(camera=DOOR, input=spec.listen, live=False, stall_s=DOOR_STALL_S)
    return CameraPlan(source, max_age_ms=None, slots=spec.slots, door=spec)


class UpdatePlan(msgspec.Struct, frozen=True):
    """Where new models come from and who this box is to the fleet.

    `repository` is an http(s) URL or a folder, empty where blocks over MQTT are the only way; `via` are the
    ways in the order to try. `root` is the file with its first root metadata; `state_dir` keeps store and
    records. `window` is local time, `poll_s` monotonic.
    """

    repository: str
    root: Path
    state_dir: Path
    model: str
    device_id: str
    labels: dict[str, str] = {}
    via: tuple[Literal["http", "mqtt"], ...] = ("http",)
    window: str | None = None
    poll_s: float = 14_400.0
    reserve_bytes: int = 64_000_000


class LinkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The broker, what goes there, and who we are to it; `state_dir` keeps what waits in `link/`."""

    mqtt: MqttConfig
    telemetry: TelemetryConfig
    state_dir: Path
    device: str
    site: str | None = None
    labels: dict[str, str] = {}


class EscalationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The large model and who we are to it; without `state_dir` nothing outlives the asking process."""

    config: EscalationConfig
    state_dir: str = ""
    device: str = ""
    site: str = ""


class RunPlan(msgspec.Struct, frozen=True):
    """Everything the daemon needs to know.

    `headroom_bytes` of memory must stay available for a second worker to be kept or started for comparison.
    `trial_hang_s` is how long one frame may take in a trial, though never less than ten times what it took
    before. `outlives_model`: the daemon goes on without a model that works, for an update may bring one.
    `device` is this box's name; without `control_socket` nobody can ask the daemon anything. `shown` is the
    configuration as others may see it.
    """

    worker: WorkerSpec
    cameras: tuple[CameraPlan, ...]
    restart: RestartPolicy = RestartPolicy()
    ring_memory_bytes: int = 256 << 20
    load_timeout_s: float = 600.0
    hang_timeout_s: float = 10.0
    results_to: Path | None = None
    headroom_bytes: int = 64 << 20
    baseline_s: float = 600.0
    trial_hang_s: float = 3.0
    shadow_every: int = 2
    outlives_model: bool = False
    device: str = ""
    control_socket: Path | None = None
    update: UpdatePlan | None = None
    link: LinkPlan | None = None
    escalation: EscalationPlan | None = None
    shown: dict[str, Any] = {}
