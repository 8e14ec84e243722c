"""`python -m tests.bench.telemetry`: what watching costs, how large reports are, how true merged figures are.

The bars: 20 us a frame for recording it, the meter's part included; 4 KiB for a report of eight cameras; 1 %
of error at p50, p95, p99 and p99.9 after merging 1,000 reports.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

from tests.bench.verdict import Verdict, options, table
from tests.unit.telemetry.recorded import (
    FIRST,
    head,
    lognormal_report,
    piece,
    recorded_report,
    sketch_of,
)

from vedette.telemetry.meter import Meter
from vedette.telemetry.sketch import Sketch
from vedette.telemetry.window import WindowRecorder
from vedette.wire.messages import LatencyMs
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE
from vedette.wire.report_split import split_report
from vedette.wire.telemetry import decode_report, encode_report, pieces_of, report_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.wire.telemetry import TelemetryReport

FRAMES = 2000
REPORTS = 1000
VALUES = 100  # in each report
BAR_RECORD_US = 20.0
BAR_REPORT_BYTES = 4096
BAR_ERROR = 0.01
QUANTILES = (0.5, 0.95, 0.99, 0.999)
DISTRIBUTIONS: dict[str, Callable[[random.Random], float]] = {
    "lognormal": lambda rng: rng.lognormvariate(1.5, 0.8),
    "two modes, 1 and 900 ms": lambda rng: rng.gauss(1, 0.05) if rng.random() < 0.97 else rng.gauss(900, 9),
    "heavy tail (Pareto 1.1)": lambda rng: rng.paretovariate(1.1),
    "uniform": lambda rng: rng.uniform(0.01, 50),
    "microseconds": lambda rng: rng.lognormvariate(-7, 0.5),
    "constant": lambda _: 4.2,
}


def main() -> int:
    """Measure, print, and say what was missed."""
    arguments = options("cost, size and truth of telemetry", rounds=15).parse_args()
    verdict = Verdict("telemetry")
    _recording(verdict, arguments.rounds)
    _sizes(verdict)
    _merging(verdict)
    return verdict.exit_status(strict=arguments.strict)


def _recording(verdict: Verdict, rounds: int) -> None:
    """One frame into the meter and the window, in turns; the quietest third of the rounds counts."""
    rng = random.Random(1)  # noqa: S311 - reproducible data, no secret
    frames = [LatencyMs(*(rng.lognormvariate(0, 0.5) for _ in range(6))) for _ in range(FRAMES)]
    meter, window = Meter(["front"]), WindowRecorder(0)
    contenders: dict[str, Callable[[LatencyMs], None]] = {
        "meter (summary)": lambda latency: meter.record("front", latency, 0.05),
        "window (reports, metrics)": lambda latency: window.record("front", FIRST, latency, 0.05),
    }
    takes_us: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, record in contenders.items():
            began_ns = time.perf_counter_ns()
            for latency in frames:
                record(latency)
            takes_us[name].append((time.perf_counter_ns() - began_ns) / FRAMES / 1e3)
        window.take(0)
    quiet_us = {
        name: statistics.mean(sorted(values)[: max(1, rounds // 3)]) for name, values in takes_us.items()
    }
    table(("recording one frame", "us"), [(name, f"{value:.2f}") for name, value in quiet_us.items()])
    verdict.at_most("recording one frame, meter and window", sum(quiet_us.values()), BAR_RECORD_US, " us")
    print()


def _sizes(verdict: Verdict) -> None:
    """Reports of eight cameras; the recorded one is of a busy virtual machine."""
    reports = {
        "recorded minute, 8 cameras at 30 fps": recorded_report(),
        "lognormal, sigma 0.1": lognormal_report(0.1),
        "lognormal, sigma 0.2": lognormal_report(0.2),
        "lognormal, sigma 0.3": lognormal_report(0.3),
    }
    rows = []
    for name, report in reports.items():
        encode_ms, decode_ms = _codec_ms(report)
        rows.append(
            (
                name,
                f"{len(encode_report(report)):,}",
                f"{len(report.sketches):,}",
                f"{len(encode_report(report, JSON_TYPE)):,}",
                f"{len(split_report(report, BAR_REPORT_BYTES, JSON_TYPE))}",
                f"{encode_ms:.0f}",
                f"{decode_ms:.0f}",
            )
        )
    table(("report", "bytes", "of them sketches", "JSON", "messages", "write ms", "read ms"), rows)
    for name, report in reports.items():
        largest = max(map(len, split_report(report, BAR_REPORT_BYTES, MSGPACK_TYPE)))
        verdict.equal(f"messages, {name}", len(split_report(report, BAR_REPORT_BYTES)), 1)
        verdict.at_most(f"bytes, {name}", largest, BAR_REPORT_BYTES)
    print()


def _codec_ms(report: TelemetryReport) -> tuple[float, float]:
    pieces = pieces_of(report)
    began_s = time.perf_counter()
    payload = encode_report(report_with(head(), pieces))
    written_s = time.perf_counter()
    pieces_of(decode_report(payload))
    return (written_s - began_s) * 1e3, (time.perf_counter() - written_s) * 1e3


def _merging(verdict: Verdict) -> None:
    """1,000 reports of one camera: read and merged, against all values sorted."""
    rows = []
    errors = {}
    for name, draw in DISTRIBUTIONS.items():
        rng = random.Random(name)  # noqa: S311 - reproducible data, no secret
        values: list[float] = []
        payloads = []
        for seq in range(REPORTS):
            part = [draw(rng) for _ in range(VALUES)]
            values += part
            histogram = sketch_of(part).histogram()
            payloads.append(encode_report(report_with(head(seq), [piece(0, *(histogram,) * 6)])))
        began_s = time.perf_counter()
        fleet = Sketch()
        for payload in payloads:
            for _, own in pieces_of(decode_report(payload)):
                for series in own:
                    fleet.merge(Sketch.of(series.stages[5]))
        took_s = time.perf_counter() - began_s
        values.sort()
        true = [values[int(q * (len(values) - 1))] for q in QUANTILES]
        found = [fleet.quantile(q) or 0.0 for q in QUANTILES]
        apart = [abs(answer - truth) / truth for answer, truth in zip(found, true, strict=True)]
        errors[name] = max(apart)
        rows.append((name, *(f"{error:.2%}" for error in apart), f"{took_s:.2f}"))
    table(("1,000 reports merged, error at", "p50", "p95", "p99", "p99.9", "s"), rows)
    for name, error in errors.items():
        verdict.at_most(f"error, {name}", 100 * error, 100 * BAR_ERROR, " %")


if __name__ == "__main__":
    raise SystemExit(main())
