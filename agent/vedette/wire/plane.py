"""What devices and fleet say to each other over MQTT, in JSON. Pure.

Unknown fields are ignored, so that both sides may learn new ones in any order; `v` rises only when an old
reader would misunderstand. Bytes in blocks and sketches have modules of their own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

JSON_TYPE = "application/json"
MSGPACK_TYPE = "application/vnd.msgpack"
MAX_COMMAND_BYTES = 16384
EVENT_EXPIRY_S = 7 * 86400
COMMAND_EXPIRY_S = 60
TELEMETRY_EXPIRY_S = 3600


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Birth, and in the same form the will (`online` false); both retained on the same topic.

    `session` is new in each connection: a will that arrives late names a session that is not the newest
    birth's and means nothing. `clean` is true when the device said goodbye itself.
    """

    v: int = 1
    online: bool
    device: str
    boot_id: str
    session: str
    agent: str
    utc_s: float = 0.0
    clock_trusted: bool = True
    clean: bool = False


class ModelState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as updates name it."""

    name: str
    version: str
    sha256: str


class Reported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How updates stand on a device; the newest takes the place of the one before.

    `counter` is the highest rollout counter seen. `result` and `cause` are those of the last update that
    ended, `update_id` the one under way, else the last. `labels` are the device's own.
    """

    v: int = 1
    seq: int
    boot_id: str
    utc_s: float
    phase: str
    active: ModelState | None = None
    previous: ModelState | None = None
    candidate: ModelState | None = None
    update_id: str = ""
    rollout: str = ""
    counter: int = 0
    bytes_fetched: int = 0
    bytes_needed: int = 0
    result: str = ""
    cause: str = ""
    detail: str = ""
    look_fault: str = ""
    clock_doubt: str = ""
    labels: dict[str, str] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something happened on a device. `id` never repeats on it: two arrivals of one id are one event.

    `lost` is how many events of this class were dropped for want of space since the last one that was kept.
    """

    v: int = 1
    id: str
    kind: str
    boot_id: str
    utc_s: float
    monotonic_s: float
    data: dict[str, Any] = {}
    lost: int = 0


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Asked of a device. `id` makes it idempotent: a second arrival is answered as the first was."""

    id: str
    arguments: dict[str, Any] = {}


class CommandReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer; `error` names the cause, `cure` what helps."""

    v: int = 1
    id: str
    ok: bool
    body: Any = None
    error: str = ""
    cure: str | None = None
    repeated: bool = False


class Announcement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hint that metadata changed, and no more; each device looks at its own moment in `spread_s`."""

    v: int = 1
    timestamp_version: int
    rollouts_version: int
    spread_s: float = 0.0


CommandName = Literal[
    "ping",
    "status",
    "snapshot",
    "diagnose",
    "set-log-level",
    "pause-camera",
    "resume-camera",
    "check-updates",
]
