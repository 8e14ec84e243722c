"""A frame sink over a list, for tests of sources."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.source.port import Source
    from vedette.wire.causes import DropCause
    from vedette.wire.pixels import FrameFormat


class ListSink:
    """Keeps every published frame; stops after `stop_after` frames, or once `stop_when` says so."""

    def __init__(
        self, *, stop_after: int | None = None, stop_when: Callable[[ListSink], bool] | None = None
    ) -> None:
        self.frames: list[tuple[FrameFormat, bytes, int]] = []
        self.drops: Counter[DropCause] = Counter()
        self.files: list[str] = []
        self.remarks: list[str] = []
        self.alive_calls = 0
        self._stop_after = stop_after
        self._stop_when = stop_when
        self._lent: tuple[FrameFormat, bytearray] | None = None

    def acquire(self, frame_format: FrameFormat) -> memoryview | None:
        """Lend fresh memory, filled with a pattern so that unwritten bytes show."""
        if self.stopping:
            return None
        memory = bytearray(b"\xa5" * frame_format.frame_bytes)
        self._lent = (frame_format, memory)
        return memoryview(memory)

    def publish(self, captured_ns: int, file: str = "") -> None:
        """Keep the frame."""
        assert self._lent is not None, "publish without acquire"
        frame_format, memory = self._lent
        self._lent = None
        self.files.append(file)
        self.frames.append((frame_format, bytes(memory), captured_ns))

    def drop(self, cause: DropCause, count: int = 1) -> None:
        """Count."""
        self.drops[cause] += count

    def remark(self, text: str) -> None:
        """Keep it."""
        self.remarks.append(text)

    def alive(self) -> None:
        """Count."""
        self.alive_calls += 1

    @property
    def stopping(self) -> bool:
        """Whether the wished end is reached."""
        if self._stop_after is not None and len(self.frames) >= self._stop_after:
            return True
        return self._stop_when is not None and self._stop_when(self)

    @property
    def pixels(self) -> list[bytes]:
        """Bytes of the frames, in order."""
        return [pixels for _, pixels, _ in self.frames]


def drain(source: Source, sink: ListSink, *, max_reads: int = 100_000) -> ListSink:
    """Read to the end of the input; a source that never ends fails the test."""
    for _ in range(max_reads):
        if not source.read(sink):
            return sink
    raise AssertionError(f"the source did not end within {max_reads} reads")
