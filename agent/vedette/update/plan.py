"""What an update would take, decided before a byte of it is fetched. Pure.

First whether the release fits this box at all (casebook 5, 64), then whether now is the time, then the way to
each file (casebook 38), then the space (casebook 36).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from vedette.update.causes import Cause
from vedette.update.record import REUSE, FileProgress
from vedette.wire.release import Codec, EncodingKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from vedette.wire.release import Encoding, ReleaseFile, ReleaseManifest, ReleaseNeeds

DELTA_SHARE = 0.8  # a delta above this share of the full encoding is not worth its risk
MAX_BYTES_FACTOR = 2  # bytes over the wire, all attempts together, over the full encodings (invariant I5)
DAY_MIN = 24 * 60
HEAT_WAIT_S = 300.0
QUEUE_WAIT_S = 60.0
MAX_QUEUE_WAIT_S = 6 * 3600.0
CLOCK_WAIT_S = 900.0
MAX_CLOCK_WAIT_S = 24 * 3600.0
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")
_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}


class ClockWindow(msgspec.Struct, frozen=True):
    """A daily window in minutes of local time, [start, end); it may span midnight."""

    start_min: int
    end_min: int

    def wait_min(self, minute: int) -> int:
        """Minutes until it is open, 0 inside."""
        length_min = (self.end_min - self.start_min) % DAY_MIN
        since_min = (minute - self.start_min) % DAY_MIN
        return 0 if since_min < length_min else DAY_MIN - since_min


def parse_window(text: object) -> ClockWindow:
    """Parse `02:00-05:00`.

    Raises:
        ValueError: Anything else, or a window without length.
    """
    match = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("expected a window of local times such as `02:00-05:00`, in quotes")
    start_h, start_min, end_h, end_min = map(int, match.groups())
    window = ClockWindow(start_h * 60 + start_min, end_h * 60 + end_min)
    if window.start_min == window.end_min:
        raise ValueError("a window that ends when it starts is none; leave `window` out for any time")
    return window


class Box(msgspec.Struct, frozen=True):
    """What this box is. `arch` is `platform.machine()`.

    `runtimes` has the version of each engine's runtime that is installed, by engine; tflite-runtime counts as
    version 0 of `litert`, whose numbers began anew. `opsets` is the range of default-domain opsets that the
    ONNX runtime reads. `memory_mb` is all there is, not what is free now.
    """

    arch: str
    agent: str
    runtimes: dict[str, str]
    opsets: tuple[int, int] | None
    accelerators: tuple[str, ...]
    memory_mb: int


class Conditions(msgspec.Struct, frozen=True):
    """What speaks for or against this moment.

    `minute` is local time in minutes since midnight, None while the clock is not to be trusted; `waited_s` is
    monotonic time since the offer was first put off.
    """

    minute: int | None = None
    window: ClockWindow | None = None
    too_hot: bool = False
    queue_full: bool = False
    waited_s: float = 0.0


class FileStep(msgspec.Struct, frozen=True):
    """The way to one file: `encoding` and `full` index its encodings, REUSE copies it from the store."""

    path: str
    encoding: int
    full: int
    fetch_bytes: int


class Plan(msgspec.Struct, frozen=True):
    """The way to a release. `need_bytes`: outputs and blobs, beside the reserve."""

    steps: tuple[FileStep, ...]
    fetch_bytes: int
    need_bytes: int
    bytes_limit: int

    def progress(self) -> tuple[FileProgress, ...]:
        """The steps as the record keeps them."""
        return tuple(FileProgress(step.encoding, step.full) for step in self.steps)


class Deferred(msgspec.Struct, frozen=True):
    """Not now; ask again after `wait_s`, monotonic."""

    reason: str
    wait_s: float


class Refused(msgspec.Struct, frozen=True):
    """Not on this box. `space_wanted_bytes` must be free beside the reserve, when space is the cause."""

    cause: Cause
    detail: str
    space_wanted_bytes: int = 0


def make_plan(
    manifest: ReleaseManifest,
    *,
    box: Box,
    stored: Collection[str],
    free_bytes: int,
    conditions: Conditions,
    codecs: Collection[Codec] = frozenset(Codec),
) -> Plan | Deferred | Refused:
    """Decide how to get a release.

    Args:
        manifest: The release, verified.
        box: What it must fit.
        stored: SHA-256 of every file in the store's bundles.
        free_bytes: What an update may take of the disk, beside the reserve.
        conditions: Of this moment.
        codecs: What this agent can decode.
    """
    misfit = find_misfit(manifest.needs, box)
    if misfit is not None:
        return Refused(Cause.WRONG_DEVICE, misfit)
    later = not_now(conditions)
    if later is not None:
        return later
    steps: list[FileStep] = []
    for file in manifest.files:
        step = _step(file, stored, codecs)
        if step is None:
            return Refused(
                Cause.WRONG_DEVICE,
                f"{file.path}: no full encoding that agent {box.agent} can decode; update the agent",
            )
        steps.append(step)
    plan = _sum(manifest, steps)
    if plan.need_bytes > free_bytes:
        return Refused(
            Cause.NO_SPACE,
            f"needs {plan.need_bytes} bytes beside the reserve, {free_bytes} are free",
            space_wanted_bytes=plan.need_bytes,
        )
    return plan


def not_now(conditions: Conditions) -> Deferred | None:
    """What speaks against starting, or switching, at this moment; None when nothing does.

    While the clock is not to be trusted a window cannot be judged: it is waited for, but not for ever (I10).
    Nor for ever for a full queue: a quicker model may be what the box needs.
    """
    if conditions.too_hot:
        return Deferred("too hot", HEAT_WAIT_S)
    if conditions.queue_full and conditions.waited_s < MAX_QUEUE_WAIT_S:
        return Deferred("queue full", QUEUE_WAIT_S)
    if conditions.window is None:
        return None
    if conditions.minute is None:
        waited = conditions.waited_s >= MAX_CLOCK_WAIT_S
        return None if waited else Deferred("waiting for time", CLOCK_WAIT_S)
    wait_min = conditions.window.wait_min(conditions.minute)
    return Deferred("outside the update window", wait_min * 60.0) if wait_min else None


def find_misfit(needs: ReleaseNeeds, box: Box) -> str | None:
    """Why a release is not for this box, naming both sides; None when it is."""
    checks = (_missing, _agent_fault, _hardware_fault, _runtime_fault, _opset_fault)
    return next((fault for check in checks if (fault := check(needs, box)) is not None), None)


def _missing(needs: ReleaseNeeds, _box: Box) -> str | None:
    for name in ("engine", "runtime", "agent"):
        if not getattr(needs, name):
            return f"the release does not say what it needs: `{name}` is empty"
    if needs.engine == "onnx" and needs.opset is None:
        return "the release does not say what it needs: `opset` is missing for an ONNX model"
    return "the release asks for less than no memory" if needs.memory_mb < 0 else None


def _agent_fault(needs: ReleaseNeeds, box: Box) -> str | None:
    if _older(box.agent, needs.agent):
        return f"needs agent {needs.agent} or newer; this is {box.agent}"
    return None


def _hardware_fault(needs: ReleaseNeeds, box: Box) -> str | None:
    if needs.arch and _machine(box.arch) not in map(_machine, needs.arch):
        return f"is for {', '.join(needs.arch)}; this box is {box.arch}"
    if needs.accelerators and not set(needs.accelerators) & set(box.accelerators):
        has = ", ".join(box.accelerators) or "none"
        return f"needs one of the accelerators {', '.join(needs.accelerators)}; this box has {has}"
    if needs.memory_mb > box.memory_mb:
        return f"needs {needs.memory_mb} MB of memory; this box has {box.memory_mb}"
    return None


def _runtime_fault(needs: ReleaseNeeds, box: Box) -> str | None:
    installed = box.runtimes.get(needs.engine)
    if installed is None:
        return f"needs engine {needs.engine}, which is not installed"
    if _older(installed, needs.runtime):
        return f"needs {needs.engine} runtime {needs.runtime} or newer; {installed} is installed"
    return None


def _opset_fault(needs: ReleaseNeeds, box: Box) -> str | None:
    if needs.opset is None or box.opsets is None:
        return None if needs.opset is None else "needs an ONNX runtime whose opsets are known"
    lowest, highest = needs.opset
    if lowest < box.opsets[0] or highest > box.opsets[1]:
        return f"uses opsets {lowest} to {highest}; the runtime reads {box.opsets[0]} to {box.opsets[1]}"
    return None


def _machine(arch: str) -> str:
    name = arch.lower()
    return _MACHINES.get(name, name)


def _older(have: str, want: str) -> bool:
    """Whether a version is too old; one that is no version never counts as new enough."""
    have_numbers, want_numbers = _numbers(have), _numbers(want)
    return have_numbers is None or want_numbers is None or have_numbers < want_numbers


def _numbers(text: str) -> tuple[int, ...] | None:
    match = _VERSION.match(text)
    if match is None:
        return None
    numbers = [int(part) for part in match.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _step(file: ReleaseFile, stored: Collection[str], codecs: Collection[Codec]) -> FileStep | None:
    usable = [(index, encoding) for index, encoding in enumerate(file.encodings) if encoding.codec in codecs]
    full = _smallest(usable, EncodingKind.FULL)
    if full is None:
        return None
    if file.sha256 in stored:
        return FileStep(file.path, REUSE, full[0], 0)
    near = [(index, encoding) for index, encoding in usable if encoding.base_sha256 in stored]
    delta = _smallest(near, EncodingKind.DELTA)
    if delta is not None and delta[1].size_bytes <= DELTA_SHARE * full[1].size_bytes:
        return FileStep(file.path, delta[0], full[0], delta[1].size_bytes)
    return FileStep(file.path, full[0], full[0], full[1].size_bytes)


def _smallest(encodings: list[tuple[int, Encoding]], kind: EncodingKind) -> tuple[int, Encoding] | None:
    of_kind = [pair for pair in encodings if pair[1].kind is kind]
    return min(of_kind, key=lambda pair: (pair[1].size_bytes, pair[0]), default=None)


def _sum(manifest: ReleaseManifest, steps: list[FileStep]) -> Plan:
    fetch_bytes = sum(step.fetch_bytes for step in steps)
    pairs = list(zip(manifest.files, steps, strict=True))
    full_bytes = sum(file.encodings[step.full].size_bytes for file, step in pairs)
    return Plan(
        steps=tuple(steps),
        fetch_bytes=fetch_bytes,
        need_bytes=sum(file.size_bytes for file in manifest.files) + fetch_bytes,
        bytes_limit=MAX_BYTES_FACTOR * full_bytes,
    )
