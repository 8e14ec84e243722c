"""The fleet from its messages: rows for devices, models and all together. Pure.

Percentiles are those of merged sketches, never means of percentiles (casebook 43), over the windows that
ended within the horizon. A report that came twice counts once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.errors import BadInputError
from vedette.telemetry.sketch import Sketch
from vedette.wire.escalation import UNMET
from vedette.wire.plane import DeviceStatus, Reported
from vedette.wire.telemetry import OTHER, STAGES, ReportedModel, decode_report
from vedette.wire.topics import parse_topic
from vedette_fleet.fleet_device import DeviceFigures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vedette.wire.telemetry import BoxFigures
    from vedette.wire.topics import Address
    from vedette_fleet.fleet_device import Window

HORIZON_S = 300.0
SILENT_AFTER_S = 180.0
MAX_DEVICES = 10_000
MAX_MODELS = 256
MAX_STATE_BYTES = 64 << 10
SKEW_S = 60.0


class Message(NamedTuple):
    """A message as it arrived; clocks are the reader's, `now_s` the monotonic one.

    `content_type` is empty where the broker does not carry it. What is `retained` says nothing about now.
    """

    topic: str
    payload: bytes
    content_type: str
    retained: bool
    now_s: float
    utc_s: float


class Latency(msgspec.Struct, frozen=True):
    """Of the stage that is watched; None where nothing was answered. Good to `accuracy`."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    count: int
    accuracy: float


class Throughput(msgspec.Struct, frozen=True):
    """Of the windows within the horizon; rates are over the time that they cover."""

    fps: float
    frames_in: int
    ok: int
    dropped: int
    failed: int


class Escalated(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of large models in the windows within the horizon.

    `share` is of the frames that were answered; `corrected` of the answers that came differ from the local
    one. `unmet` should have been asked about and were not. `agreement` of local answers, `epsilon` and
    `held_epsilon` are a device's own, by its newest report, and stand in no line of many devices. `money_day`
    is of today.
    """

    calls: int
    escalated: int
    share: float
    answers: int
    corrected: int
    unmet: int
    sent_bytes: int
    money_day: float
    mode: str = ""
    epsilon: float = 0.0
    held_epsilon: float = 0.0
    agreement: tuple[float, float, float] | None = None
    fault: str = ""


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A device. `state` is online, offline, silent (says nothing, and did not say goodbye) or unknown.

    `seen_s` is how long ago it was heard. `losses` are unanswered frames by cause since the agent's start.
    """

    device: str
    state: str
    seen_s: float | None
    agent: str
    model: str
    candidate: str
    phase: str
    progress: float | None
    update_result: str
    throughput: Throughput
    latency: Latency
    losses: dict[str, int]
    accelerator: str
    degraded: bool
    worker_restarts: int
    temperature_c: float | None
    power_w: float | None
    throttled: bool | None
    clock: str
    late: int
    repeated: int
    escalation: Escalated | None = None


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model, on all devices where it answered."""

    model: str
    version: str
    digest: str
    devices: int
    latency: Latency


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """All devices together."""

    devices: int
    online: int
    updating: int
    throughput: Throughput
    latency: Latency
    messages: int
    bad_messages: int
    last_bad: str
    too_many: int
    escalation: Escalated | None = None


class FleetView(msgspec.Struct, frozen=True):
    """Everything that `top` shows, at one moment."""

    stage: str
    horizon_s: float
    devices: tuple[DeviceRow, ...]
    models: tuple[ModelRow, ...]
    total: FleetRow


class FleetFigures:
    """Takes messages in, and gives rows. Bounded: devices beyond MAX_DEVICES are counted, not kept."""

    def __init__(self, *, stage: str = "total", horizon_s: float = HORIZON_S) -> None:
        if stage not in STAGES:
            raise ValueError(f"`{stage}` is none of the stages {', '.join(STAGES)}")
        self._stage = stage
        self._horizon_s = horizon_s
        self._devices: dict[str, DeviceFigures] = {}
        self._messages = self._bad = self._too_many = 0
        self._last_bad = ""

    def take(self, message: Message) -> None:
        """A message as it arrived; one that makes no sense is counted, and changes nothing."""
        address = parse_topic(message.topic)
        if address is None:
            return
        self._messages += 1
        name = f"{address.topics.site}/{address.topics.device}"
        device = self._devices.get(name) or DeviceFigures(self._stage)
        try:
            self._give(device, address, message)
        except (BadInputError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._bad += 1
            self._last_bad = f"{message.topic}: {error}"[:200]
            return
        if name not in self._devices and not self._admit(name, device):
            return
        if not message.retained and not _is_goodbye(device, address.rest):
            device.heard(message.now_s)

    def _give(self, device: DeviceFigures, address: Address, message: Message) -> None:
        payload = message.payload
        if address.rest == ("tele", "report"):
            report = decode_report(payload, message.content_type)
            if report.device != address.topics.device:
                raise BadInputError(f"a report of `{report.device}` on another device's topic")
            device.take_report(report, message.now_s, message.utc_s, self._horizon_s)
            return
        if len(payload) > MAX_STATE_BYTES:
            raise BadInputError(f"{len(payload)} bytes; {MAX_STATE_BYTES} is the most")
        if address.rest == ("status",) and payload:
            device.take_status(msgspec.json.decode(payload, type=DeviceStatus))
        elif address.rest == ("reported",) and payload:
            device.take_reported(msgspec.json.decode(payload, type=Reported))

    def _admit(self, name: str, device: DeviceFigures) -> bool:
        if len(self._devices) >= MAX_DEVICES:
            self._too_many += 1
            return False
        self._devices[name] = device
        return True

    def view(self, now_s: float) -> FleetView:
        """The rows at this moment."""
        rows = []
        by_model: dict[ReportedModel, tuple[int, Sketch]] = {}
        everything: list[Window] = []
        fps = 0.0
        for name, device in sorted(self._devices.items()):
            windows = list(device.recent(now_s, self._horizon_s))
            row = _device_row(name, device, windows, now_s)
            rows.append(row)
            fps += row.throughput.fps
            everything += windows
            for model in {model for window in windows for model in window.sketches}:
                self._add_model(by_model, model, windows)
        throughput = msgspec.structs.replace(_throughput(everything), fps=fps)
        money_day = sum(row.escalation.money_day for row in rows if row.escalation is not None)
        total = FleetRow(
            devices=len(rows),
            online=sum(row.state == "online" for row in rows),
            updating=sum(row.phase not in {"", "idle", "safe"} for row in rows),
            throughput=throughput,
            latency=_latency(Sketch.merged(sketch for _, sketch in by_model.values())),
            messages=self._messages,
            bad_messages=self._bad,
            last_bad=self._last_bad,
            too_many=self._too_many,
            escalation=_escalated(everything, money_day),
        )
        models = tuple(
            ModelRow(
                model=model.name,
                version=model.version,
                digest=model.digest,
                devices=devices,
                latency=_latency(sketch),
            )
            for model, (devices, sketch) in sorted(by_model.items(), key=lambda entry: _order(entry[0]))
        )
        return FleetView(self._stage, self._horizon_s, tuple(rows), models, total)

    def _add_model(
        self, by_model: dict[ReportedModel, tuple[int, Sketch]], model: ReportedModel, windows: list[Window]
    ) -> None:
        full = model not in by_model and len(by_model) >= MAX_MODELS
        key = ReportedModel(OTHER, "") if full else model
        devices, sketch = by_model.get(key, (0, Sketch()))
        for window in windows:
            if model in window.sketches:
                sketch.merge(window.sketches[model])
        by_model[key] = devices + 1, sketch


def _order(model: ReportedModel) -> tuple[str, int, str, str]:
    """Versions that are numbers in their order."""
    number = int(model.version) if model.version.isdecimal() and len(model.version) < 18 else 0
    return model.name, number, model.version, model.digest


def _is_goodbye(device: DeviceFigures, rest: tuple[str, ...]) -> bool:
    return rest == ("status",) and device.status is not None and not device.status.online


def _device_row(name: str, device: DeviceFigures, windows: list[Window], now_s: float) -> DeviceRow:
    reported, box = device.reported, device.box
    board = None if box is None else box.board
    engine = None if box is None else box.engine
    sketches = [sketch for window in windows for sketch in window.sketches.values()]
    seen_s = None if device.heard_s is None else now_s - device.heard_s
    return DeviceRow(
        device=name,
        state=_state(device, seen_s),
        seen_s=seen_s,
        agent=device.status.agent if device.status is not None else box.agent if box is not None else "",
        model=_model_text(device, windows),
        candidate=_candidate_text(device),
        phase=reported.phase if reported is not None else _phase_of(device),
        progress=_progress(device),
        update_result="" if reported is None else " ".join(filter(None, (reported.result, reported.cause))),
        throughput=_throughput(windows),
        latency=_latency(Sketch.merged(sketches)),
        losses=device.losses(),
        accelerator="" if engine is None else engine.effective,
        degraded=engine is not None and engine.degraded,
        worker_restarts=0 if box is None else box.worker_restarts,
        temperature_c=max(board.temperatures_c.values(), default=None) if board is not None else None,
        power_w=max(board.power_w.values(), default=None) if board is not None else None,
        throttled=None if board is None else board.throttled,
        clock=_clock_text(device),
        late=device.late,
        repeated=device.repeated,
        escalation=_own_escalated(box, windows),
    )


def _own_escalated(box: BoxFigures | None, windows: list[Window]) -> Escalated | None:
    """Counts of the windows, and what the newest report says of the promise."""
    newest = None if box is None else box.escalation
    found = _escalated(windows, 0.0 if newest is None else newest.money_day)
    if found is None or newest is None:
        return found
    return msgspec.structs.replace(
        found,
        mode=newest.mode,
        epsilon=newest.epsilon,
        held_epsilon=newest.held_epsilon,
        agreement=newest.local_agreement,
        fault=newest.fault,
    )


def _escalated(windows: list[Window], money_day: float) -> Escalated | None:
    """Counts added up; None where nobody has a large model."""
    found = [window.escalation for window in windows if window.escalation is not None]
    if not found:
        return None
    outcomes: Counter[str] = Counter()
    for one in found:
        outcomes.update({word: count[0] for word, count in one.outcomes.items()})
    escalated = sum(one.escalated[0] for one in found)
    ok = sum(window.ok for window in windows)
    return Escalated(
        calls=sum(one.calls[0] for one in found),
        escalated=escalated,
        share=min(1.0, escalated / ok) if ok else 0.0,
        answers=outcomes["answered"] + outcomes["agreed"],
        corrected=outcomes["answered"],
        unmet=sum(outcomes[f"declined_{cause.value}"] for cause in UNMET),
        sent_bytes=sum(one.sent_bytes[0] for one in found),
        money_day=money_day,
    )


def _state(device: DeviceFigures, seen_s: float | None) -> str:
    if device.online is None:
        return "unknown"
    if not device.online:
        return "offline"
    return "silent" if seen_s is not None and seen_s > SILENT_AFTER_S else "online"


def _model_text(device: DeviceFigures, windows: list[Window]) -> str:
    """What updates say is active; a box without updates is known by what answered last."""
    reported = device.reported
    if reported is not None and reported.active is not None:
        return f"{reported.active.name} {reported.active.version}"
    newest = max(
        (window for window in windows if window.sketches), key=lambda window: window.end_s, default=None
    )
    if newest is None:
        return ""
    return ", ".join(sorted(f"{model.name} {model.version}".strip() for model in newest.sketches))


def _candidate_text(device: DeviceFigures) -> str:
    reported = device.reported
    if reported is None or reported.candidate is None:
        return ""
    return f"{reported.candidate.name} {reported.candidate.version}"


def _phase_of(device: DeviceFigures) -> str:
    update = None if device.box is None else device.box.update
    return "" if update is None else update.phase


def _progress(device: DeviceFigures) -> float | None:
    """Share of the bytes of the update under way."""
    reported = device.reported
    if reported is None or reported.phase != "fetch" or not reported.bytes_needed:
        return None
    return min(1.0, reported.bytes_fetched / reported.bytes_needed)


def _clock_text(device: DeviceFigures) -> str:
    if not device.clock_trusted:
        return "untrusted"
    if device.skew_s is not None and abs(device.skew_s) > SKEW_S:
        return f"{device.skew_s:+.0f} s off"
    return ""


def _throughput(windows: Iterable[Window]) -> Throughput:
    """Parts of one report cover one window, and are not to be counted as two."""
    windows = list(windows)
    covered_s = sum({(window.start, window.seq): window.length_s for window in windows}.values())
    ok = sum(window.ok for window in windows)
    return Throughput(
        fps=ok / covered_s if covered_s > 0 else 0.0,
        frames_in=sum(window.frames_in for window in windows),
        ok=ok,
        dropped=sum(window.dropped for window in windows),
        failed=sum(window.failed for window in windows),
    )


def _latency(sketch: Sketch) -> Latency:
    return Latency(
        sketch.quantile(0.5),
        sketch.quantile(0.95),
        sketch.quantile(0.99),
        sketch.count,
        round(sketch.accuracy, 4),
    )
