"""A picture of what a camera sees now, made by a child: pixels never enter the daemon."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.errors import BadInputError, UnavailableError, rebuild_error
from vedette.runtime.child import Child, describe_exit

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.status import StatusDesk

SNAPSHOT_MODULE = "vedette.runtime.snapshot_child"
TIMEOUT_S = 15.0
# Around the picture in the reply: names, sizes, the rest of the body.
AROUND_BYTES = 512
MAX_JPEG_BYTES = 700_000


class SnapshotSpec(msgspec.Struct, frozen=True):
    """What the child is to do: read the ring behind `fds`, write into the memory behind `into`."""

    fds: tuple[int, ...]
    into: int
    max_bytes: int
    max_width: int | None = None


class SnapshotHead(msgspec.Struct, frozen=True):
    """What the child writes before the JPEG, as one line of JSON; `captured_ns` is monotonic."""

    seq: int
    captured_ns: int
    width: int
    height: int
    quality: int


class _Ring(msgspec.Struct, frozen=True):
    fds: tuple[int, ...] = ()
    fault: str = ""
    unknown: bool = False


class Snapshots:
    """Takes one at a time."""

    def __init__(self, daemon: Daemon, desk: StatusDesk, clock: Clock) -> None:
        self._daemon = daemon
        self._desk = desk
        self._clock = clock

    def take(self, camera: str, max_width: int | None, *, room_bytes: int) -> dict[str, Any]:
        """The body of the reply: the newest frame as JPEG in base64, and what it is.

        Raises:
            BadInputError: There is no such camera, or its frames cannot be read.
            UnavailableError: It gave no frame yet, the picture does not fit, or the child failed.
        """
        max_bytes = min(MAX_JPEG_BYTES, (room_bytes - AROUND_BYTES) * 3 // 4)
        ring = self._desk.look(self._daemon, lambda daemon, _now_ns: _borrow(daemon, camera))
        if ring.fault:
            raise (BadInputError if ring.unknown else UnavailableError)(ring.fault)
        try:
            head, jpeg = self._in_child(ring.fds, max_bytes, max_width)
        finally:
            for fd in ring.fds:
                os.close(fd)
        age_s = (self._clock.monotonic_ns() - head.captured_ns) / 1e9
        return {
            "camera": camera,
            **msgspec.structs.asdict(head),
            "age_s": round(age_s, 3),
            "media_type": "image/jpeg",
            "picture": base64.b64encode(jpeg).decode("ascii"),
        }

    def _in_child(
        self, fds: tuple[int, ...], max_bytes: int, max_width: int | None
    ) -> tuple[SnapshotHead, bytes]:
        into = os.memfd_create("vedette-snapshot", os.MFD_CLOEXEC)
        try:
            spec = SnapshotSpec(fds, into, max_bytes, max_width)
            _run(spec)
            return _parse(os.pread(into, os.fstat(into).st_size, 0), max_bytes)
        finally:
            os.close(into)


def _run(spec: SnapshotSpec) -> None:
    arguments = [str(os.getpid()), msgspec.json.encode(spec).decode()]
    try:
        child = Child(SNAPSHOT_MODULE, arguments, pass_fds=(*spec.fds, spec.into))
    except OSError as error:
        raise UnavailableError(f"no process could be started for it: {error.strerror}") from error
    try:
        ended = child.wait(TIMEOUT_S)
        words, status = child.last_words(), child.exited()
    finally:
        child.close()
    if not ended or status is None:
        raise UnavailableError(f"the picture was not made within {TIMEOUT_S:g} s")
    if status:
        cause = words or f"the process that makes the picture ended: {describe_exit(status)}"
        raise rebuild_error(status if status > 0 else UnavailableError.exit_code, cause, None)


def _parse(content: bytes, max_bytes: int) -> tuple[SnapshotHead, bytes]:
    head, _, jpeg = content.partition(b"\n")
    if not 0 < len(jpeg) <= max_bytes:
        raise UnavailableError(f"the picture has {len(jpeg)} bytes, and {max_bytes} have room")
    return msgspec.json.decode(head, type=SnapshotHead), jpeg


def _borrow(daemon: Daemon, name: str) -> _Ring:
    """Descriptors of a camera's ring that are ours to close; on the supervisor's thread."""
    camera = next((camera for camera in daemon.cameras if camera.name == name), None)
    if camera is None or camera.plan.door is not None:
        return _Ring(fault=f"there is no camera `{name[:64]}`; `status` names them", unknown=True)
    if camera.ring is None or camera.ring.head == 0:
        return _Ring(fault=f"camera {name} gave no frame yet")
    fds: list[int] = []
    try:
        for fd in camera.ring.handles.fds:
            fds.append(os.dup(fd))  # noqa: PERF401 - kept for the undo
    except OSError as error:
        for fd in fds:
            os.close(fd)
        return _Ring(fault=f"no descriptor is left for it: {error.strerror}")
    return _Ring(tuple(fds))
