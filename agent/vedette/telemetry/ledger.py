"""The frame ledger: every frame that came in ends in exactly one of ok, dropped(cause), failed(cause).

Two sources feed it. The ring's counters are absolute and tell what came in: frames captured into the ring,
and frames that the source counted as dropped before. Outcome events tell how captured frames ended. The
difference is in flight; whether those frames really are somewhere is `imbalance`'s question.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError
from vedette.wire.causes import DropCause, FailCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CameraCounts(msgspec.Struct, frozen=True):
    """Counts since the start; all but `in_flight` only ever grow. Causes that never occurred are absent."""

    frames_in: int = 0
    ok: int = 0
    dropped: dict[str, int] = {}
    failed: dict[str, int] = {}

    @property
    def dropped_total(self) -> int:
        """Frames dropped, whatever the cause."""
        return sum(self.dropped.values())

    @property
    def failed_total(self) -> int:
        """Frames failed, whatever the cause."""
        return sum(self.failed.values())

    @property
    def in_flight(self) -> int:
        """Frames that came in and have not ended; negative only if something was counted twice."""
        return self.frames_in - self.ok - self.dropped_total - self.failed_total


class LedgerSnapshot(msgspec.Struct, frozen=True):
    """All cameras at one moment."""

    cameras: dict[str, CameraCounts]

    def imbalance(self, in_flight: Mapping[str, int] | None = None) -> dict[str, int]:
        """Check in = ok + dropped + failed + in_flight.

        Args:
            in_flight: Frames that are known to be on the way, per camera (waiting in the ring, held by the
                worker). None, or a camera left out: there are none, as after a drained end.

        Returns:
            Empty when the books balance. Otherwise, for each camera that does not: how many frames vanished
            without an outcome (positive) or were given more outcomes than frames (negative).
        """
        known = in_flight or {}
        gaps = {name: counts.in_flight - known.get(name, 0) for name, counts in self.cameras.items()}
        return {name: gap for name, gap in gaps.items() if gap}


class _Account:
    """One camera's running counts."""

    def __init__(self) -> None:
        self.captured = 0
        self.source_drops: dict[DropCause, int] = {}
        self.ok = 0
        self.drops: dict[DropCause, int] = {}
        self.fails: dict[FailCause, int] = {}

    def counts(self) -> CameraCounts:
        dropped = {
            cause.value: total
            for cause in DropCause
            if (total := self.source_drops.get(cause, 0) + self.drops.get(cause, 0))
        }
        return CameraCounts(
            frames_in=self.captured + sum(self.source_drops.values()),
            ok=self.ok,
            dropped=dropped,
            failed={cause.value: self.fails[cause] for cause in FailCause if cause in self.fails},
        )


class Ledger:
    """Counts for a fixed set of cameras; any thread may call it.

    Read the outcomes before the ring (`observe_ring` just before `snapshot`): then no frame has an outcome
    before it has come in.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._accounts = {camera: _Account() for camera in cameras}

    def add(self, camera: str) -> None:
        """Keep the books of one more camera; one that is known goes on from its counts."""
        with self._lock:
            self._accounts.setdefault(camera, _Account())

    def observe_ring(self, camera: str, captured: int, source_drops: Mapping[DropCause, int]) -> None:
        """Take over a ring's absolute counters; a ring that replaces another must go on from its counts.

        Args:
            camera: Which camera.
            captured: Frames published into the ring so far.
            source_drops: Frames that never got into the ring, by cause, so far.

        Raises:
            InternalError: A counter went back, or an unknown camera; nothing is changed.
        """
        account = self._of(camera)
        with self._lock:
            if captured < account.captured:
                raise InternalError(
                    f"camera {camera}: captured went back from {account.captured} to {captured}"
                )
            for cause, before in account.source_drops.items():
                if source_drops.get(cause, 0) < before:
                    raise InternalError(
                        f"camera {camera}: dropped({cause.value}) went back from {before} "
                        f"to {source_drops.get(cause, 0)}"
                    )
            if any(count < 0 for count in source_drops.values()):
                raise InternalError(f"camera {camera}: a drop counter is negative")
            account.captured = captured
            account.source_drops = dict(source_drops)

    def ok(self, camera: str) -> None:
        """A captured frame was answered.

        Raises:
            InternalError: An unknown camera.
        """
        account = self._of(camera)
        with self._lock:
            account.ok += 1

    def dropped(self, camera: str, cause: DropCause, count: int = 1) -> None:
        """Captured frames were dropped on purpose; those that the source dropped come by `observe_ring`.

        Raises:
            InternalError: An unknown camera, or a negative count.
        """
        account = self._of(camera)
        if count < 0:
            raise InternalError(f"camera {camera}: {count} dropped frames")
        with self._lock:
            account.drops[cause] = account.drops.get(cause, 0) + count

    def failed(self, camera: str, cause: FailCause) -> None:
        """A captured frame was taken for inference and got no answer.

        Raises:
            InternalError: An unknown camera.
        """
        account = self._of(camera)
        with self._lock:
            account.fails[cause] = account.fails.get(cause, 0) + 1

    def snapshot(self) -> LedgerSnapshot:
        """The counts of all cameras at one moment."""
        with self._lock:
            return LedgerSnapshot({name: account.counts() for name, account in self._accounts.items()})

    def imbalance(self, in_flight: Mapping[str, int] | None = None) -> dict[str, int]:
        """`LedgerSnapshot.imbalance` of this moment."""
        return self.snapshot().imbalance(in_flight)

    def _of(self, camera: str) -> _Account:
        try:
            return self._accounts[camera]
        except KeyError:
            raise InternalError(f"the ledger knows no camera `{camera}`") from None
