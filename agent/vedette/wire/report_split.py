"""A report as messages that are small enough. Pure.

It is cut between cameras, and a camera between its models; nothing that fits is lost. One camera with one
model that is still too large has its bins joined until it fits, and says so in `accuracy`. The box's figures
lose their details in a fixed order, and `left_out` names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.errors import InternalError
from vedette.wire.plane import MSGPACK_TYPE
from vedette.wire.sketch_bits import MAX_ROWS, MAX_SCALE, MAX_SYMBOLS, symbols
from vedette.wire.telemetry import (
    MIN_REPORT_BYTES,
    CameraColumns,
    CameraFigures,
    ProcessFigures,
    TelemetryReport,
    encode_report,
    pieces_of,
    report_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vedette.wire.telemetry import BoxFigures, Piece, Series


_MAX_PARTS = 1 << 15  # as large as the numbers of parts get


def split_report(report: TelemetryReport, max_bytes: int, content_type: str = MSGPACK_TYPE) -> list[bytes]:
    """The report as messages of at most `max_bytes` each.

    Raises:
        InternalError: `max_bytes` is below MIN_REPORT_BYTES, or names are longer than they may be.
        BadInputError: The report's own sketches are damaged.
    """
    head = msgspec.structs.replace(report, cameras=CameraColumns(), models=(), sketches=b"")
    return [message.payload for message in split_pieces(head, pieces_of(report), max_bytes, content_type)]


class Message(NamedTuple):
    """A report of a part of the cameras, and its bytes."""

    report: TelemetryReport
    payload: bytes


def split_pieces(
    head: TelemetryReport, pieces: Sequence[Piece], max_bytes: int, content_type: str = MSGPACK_TYPE
) -> list[Message]:
    """As `split_report`, of a report that was not put together yet.

    Args:
        head: Everything but `models`, `cameras` and `sketches`.
        pieces: The cameras and their sketches.
        max_bytes: Of each message.
        content_type: Their form.

    Raises:
        InternalError: As `split_report`.
    """
    if max_bytes < MIN_REPORT_BYTES:
        raise InternalError(f"reports of {max_bytes} bytes; {MIN_REPORT_BYTES} is the least")
    reports = _Splitter(head, max_bytes, content_type).reports(pieces)
    numbered = [
        msgspec.structs.replace(report, part=part, parts=len(reports)) for part, report in enumerate(reports)
    ]
    return [Message(report, encode_report(report, content_type)) for report in numbered]


class _Splitter:
    """Halves what is too large, until it fits."""

    def __init__(self, head: TelemetryReport, max_bytes: int, content_type: str) -> None:
        self._head = msgspec.structs.replace(head, box=None)
        self._box = head.box
        self._left_out = head.left_out
        self._max_bytes = max_bytes
        self._type = content_type

    def reports(self, pieces: Sequence[Piece]) -> list[TelemetryReport]:
        return self._parts(self._box, pieces)

    def _fitting(self, box: BoxFigures | None, pieces: Sequence[Piece]) -> TelemetryReport | None:
        """A report of these, if it is small enough whatever its part's number."""
        rows = [entry.stages for _, own in pieces for entry in own]
        if len(rows) > MAX_ROWS or symbols(rows) > MAX_SYMBOLS:
            return None
        report = msgspec.structs.replace(report_with(self._head, pieces), box=box)
        return report if self._is_small(report) else None

    def _is_small(self, report: TelemetryReport) -> bool:
        numbered = msgspec.structs.replace(report, part=_MAX_PARTS, parts=_MAX_PARTS)
        return len(encode_report(numbered, self._type)) <= self._max_bytes

    def _parts(self, box: BoxFigures | None, pieces: Sequence[Piece]) -> list[TelemetryReport]:
        """Halves of halves; the box's figures stay with the first."""
        if box is None and not pieces:
            return []
        fitting = self._fitting(box, pieces)
        if fitting is not None:
            return [fitting]
        if len(pieces) > 1:
            middle = len(pieces) // 2
            return self._parts(box, pieces[:middle]) + self._parts(None, pieces[middle:])
        if box is not None:
            return [self._box_alone(box), *self._parts(None, pieces)]
        return self._one_camera(*pieces[0])

    def _one_camera(self, camera: CameraFigures, series: Sequence[Series]) -> list[TelemetryReport]:
        """Model by model; the counts stand in the first part only, since they would be added up."""
        if len(series) > 1:
            rest = CameraFigures(camera.name)
            return self._parts(None, [(rest if place else camera, [own]) for place, own in enumerate(series)])
        for scale in range(1, MAX_SCALE + 1):
            fitting = self._fitting(None, [(camera, [_coarse(own, scale) for own in series])])
            if fitting is not None:
                return [fitting]
        raise InternalError(f"camera {camera.name} does not fit in a report of {self._max_bytes} bytes")

    def _box_alone(self, box: BoxFigures) -> TelemetryReport:
        for left_out, smaller in _shrinking(box):
            report = msgspec.structs.replace(self._head, box=smaller, left_out=(*self._left_out, *left_out))
            if self._is_small(report):
                return report
        raise InternalError(f"the box's own figures do not fit in a report of {self._max_bytes} bytes")


def _coarse(series: Series, scale: int) -> Series:
    return series._replace(stages=tuple(stage.coarsened(scale) for stage in series.stages))


def _shrinking(box: BoxFigures) -> Iterator[tuple[tuple[str, ...], BoxFigures]]:
    """The box's figures with less and less detail."""
    left_out: tuple[str, ...] = ()
    yield left_out, box
    without_threads = {
        name: ProcessFigures(process.cpu_ms, process.rss_kib, process.pss_kib)
        for name, process in box.processes.items()
    }
    box, left_out = msgspec.structs.replace(box, processes=without_threads), (*left_out, "threads")
    yield left_out, box
    box, left_out = msgspec.structs.replace(box, processes={}), (*left_out, "processes")
    yield left_out, box
    box, left_out = msgspec.structs.replace(box, board=None), (*left_out, "board")
    yield left_out, box
    box, left_out = (
        msgspec.structs.replace(box, link=None, escalation=None),
        (*left_out, "link", "escalation"),
    )
    yield left_out, box
