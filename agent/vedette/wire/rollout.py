"""The rollout document: who runs what, one small signed document for the whole fleet. Pure.

Target `rollouts.json` of the update repository, signed by the `rollouts` role with a short expiry. Its size
grows with rollouts, not with devices: a device finds out by itself whether it is meant.
"""

from __future__ import annotations

import hashlib

import msgspec

BUCKETS = 10_000
MAX_DOCUMENT_BYTES = 65536
# Beyond these nothing is meant, and devices would count nanoseconds past what their clocks can hold.
MAX_WAIT_S = 366 * 86400.0
MAX_FRAMES = 1 << 31
MAX_LATENCY_RATIO = 1000.0
_MAX_UTC = 1 << 40


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a candidate's time on live frames: it must last `min_s` and `min_frames`, at most `max_s`."""

    min_s: float
    min_frames: int
    max_s: float


class Guards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device itself refuses, against its own baseline in the window before.

    `latency_ratio`: p95 of the candidate over p95 of the old model. `error_rate`: failed frames over frames.
    `disagreement`: share of shadowed frames with another top class or other boxes; null does not look.
    """

    latency_ratio: float = 1.5
    error_rate: float = 0.02
    disagreement: float | None = None


class Rollout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release for one selection of devices.

    `target` is the manifest's path in the repository and `sha256` its digest. `share` of BUCKETS is the wave
    that is open now; waves only grow. `select` must match a device's labels, all of them. `not_before_utc` is
    seconds since 1970. `rollback_of` names the counter of a release whose return to this older one is meant.
    """

    id: str
    model: str
    target: str
    sha256: str
    salt: str
    share: int
    select: dict[str, str] = {}
    not_before_utc: int = 0
    jitter_s: float = 900.0
    shadow: Window | None = None
    trial: Window = Window(600.0, 200, 86400.0)
    guards: Guards = Guards()
    paused: bool = False
    withdrawn: bool = False
    rollback_of: int | None = None


class RolloutDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rollouts; `counter` is the version of the role and never goes back. Later entries win."""

    schema: int
    counter: int
    issued_utc: int
    rollouts: tuple[Rollout, ...]


class RolloutError(ValueError):
    """A rollout document that is malformed, or would be."""


def parse_rollouts(raw: bytes) -> RolloutDocument:
    """Read a rollout document strictly.

    Raises:
        RolloutError: Not JSON of this schema, too large, or a value out of its range.
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise RolloutError(f"rollout document of {len(raw)} bytes; {MAX_DOCUMENT_BYTES} is the limit")
    return _decoded(raw)


def build_rollouts(document: RolloutDocument) -> bytes:
    """Write a rollout document; equal documents give equal bytes, and the bytes give the same document.

    Raises:
        RolloutError: Devices could not read it, or would read something else: NaN is no number in JSON.
    """
    try:
        raw = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    except (ValueError, OverflowError) as error:  # text that is no Unicode, numbers beyond 64 bit
        raise RolloutError(f"rollout document cannot be written as JSON: {error}") from error
    if _decoded(raw) != document:
        raise RolloutError("rollout document would be read as something else than it says")
    return raw


def bucket_of(salt: str, device_id: str) -> int:
    """A device's bucket for a rollout, 0..BUCKETS-1, from SHA-256 (casebook 62).

    The order of devices differs between salts, so that the same customers are not always first.
    """
    digest = hashlib.sha256(f"{salt}\0{device_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % BUCKETS


def concerns(rollout: Rollout, *, device_id: str, model: str, labels: dict[str, str]) -> bool:
    """Whether a rollout names this device and model; share 0 is nobody, BUCKETS is everybody.

    A device without an id is only in rollouts to everybody.
    """
    if rollout.model != model or any(labels.get(key) != value for key, value in rollout.select.items()):
        return False
    if rollout.share >= BUCKETS:
        return True
    return bool(device_id) and bucket_of(rollout.salt, device_id) < rollout.share


def _decoded(raw: bytes) -> RolloutDocument:
    try:
        document = msgspec.json.decode(raw, type=RolloutDocument)
    except msgspec.DecodeError as error:
        raise RolloutError(f"rollout document: {error}") from error
    if document.schema != 1:
        raise RolloutError(f"rollout document has schema {document.schema}; this agent reads 1")
    for rollout in document.rollouts:
        for what, value, low, high in _limits(rollout):
            if not low <= value <= high:
                raise RolloutError(f"rollout {rollout.id}: {what} {value} is not within {low:g}..{high:g}")
    return document


def _limits(rollout: Rollout) -> list[tuple[str, float, float, float]]:
    """Every number of a rollout with the least and the most that it may be."""
    guards = rollout.guards
    limits: list[tuple[str, float, float, float]] = [
        ("share", rollout.share, 0, BUCKETS),
        ("not_before_utc", rollout.not_before_utc, 0, _MAX_UTC),
        ("jitter_s", rollout.jitter_s, 0, MAX_WAIT_S),
        ("guards.latency_ratio", guards.latency_ratio, 0, MAX_LATENCY_RATIO),
        ("guards.error_rate", guards.error_rate, 0, 1),
    ]
    if guards.disagreement is not None:
        limits.append(("guards.disagreement", guards.disagreement, 0, 1))
    for what, window in (("shadow", rollout.shadow), ("trial", rollout.trial)):
        if window is not None:
            limits += [
                (f"{what}.max_s", window.max_s, 0, MAX_WAIT_S),
                (f"{what}.min_s", window.min_s, 0, window.max_s),
                (f"{what}.min_frames", window.min_frames, 0, MAX_FRAMES),
            ]
    return limits
