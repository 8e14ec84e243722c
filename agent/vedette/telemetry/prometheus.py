"""A snapshot as text that Prometheus reads, by prometheus_client; nothing of it is global."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import UnavailableError
from vedette.telemetry.metrics import BOUNDS_S
from vedette.wire.telemetry import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from vedette.telemetry.metrics import MetricsSnapshot, StageBuckets

    Labels = tuple[str, ...]
    Values = dict[Labels, float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Label sets of one metric. A daemon of 64 cameras is far below it; what is beyond is OTHER (casebook 44).
MAX_LABEL_SETS = 2048
_CAMERA = ("camera",)
_CAUSE = ("camera", "cause")
_BOUNDS = ("estimate", "low", "high")
_SERIES = ("camera", "model", "version", "stage")


def render(snapshot: MetricsSnapshot) -> bytes:
    """The snapshot in the text format, version 0.0.4.

    Raises:
        UnavailableError: prometheus_client is not installed.
    """
    try:
        import prometheus_client.core  # noqa: PLC0415 - a package of the extra [http]
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "metrics need the Python package prometheus-client", cure="pip install 'vedette[http]'"
        ) from error
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot, prometheus_client.core))
    return prometheus_client.generate_latest(registry)


class _Snapshot:
    """A collector of one snapshot."""

    def __init__(self, snapshot: MetricsSnapshot, families: ModuleType) -> None:
        self._snapshot = snapshot
        self._families = families
        self._folded = 0

    def collect(self) -> Iterator[Metric]:
        yield self._gauge("vedette_uptime_seconds", "Since the agent started.", self._snapshot.uptime_s)
        yield from self._frames()
        yield from self._latencies()
        yield from self._engine()
        yield from self._processes()
        yield from self._board()
        yield from self._update_and_link()
        yield from self._escalation()
        yield self._gauge(
            "vedette_metrics_folded_label_sets",
            "Label sets of this scrape that were too many and stand under `other`.",
            self._folded,
        )

    def _frames(self) -> Iterator[Metric]:
        rows = self._snapshot.cameras.rows()
        yield self._counter(
            "vedette_frames_in",
            "Frames that came in.",
            _CAMERA,
            {(row.name,): row.frames_in[1] for row in rows},
        )
        yield self._counter(
            "vedette_frames_ok",
            "Frames that were answered.",
            _CAMERA,
            {(row.name,): row.ok[1] for row in rows},
        )
        yield self._counter(
            "vedette_frames_dropped",
            "Frames dropped on purpose, by cause.",
            _CAUSE,
            {(row.name, cause): count[1] for row in rows for cause, count in row.dropped.items()},
        )
        yield self._counter(
            "vedette_frames_failed",
            "Frames taken and not answered, by cause.",
            _CAUSE,
            {(row.name, cause): count[1] for row in rows for cause, count in row.failed.items()},
        )
        yield self._counter(
            "vedette_frames_reused",
            "Frames that got an earlier answer, since nothing had changed.",
            _CAMERA,
            {(row.name,): row.reused[1] for row in rows if row.reused[1] or row.checks[1]},
        )
        yield self._counter(
            "vedette_reuse_checks",
            "Such frames that were answered anew, and whether the answer was another one.",
            ("camera", "result"),
            {
                (row.name, result): count
                for row in rows
                if row.checks[1]
                for result, count in (
                    ("same", row.checks[1] - row.checks_wrong[1]),
                    ("other", row.checks_wrong[1]),
                )
            },
        )
        yield self._gauges(
            "vedette_frames_in_flight",
            "Frames that came in and have no outcome yet.",
            _CAMERA,
            {(row.name,): row.in_flight for row in rows},
        )
        yield self._counter(
            "vedette_source_restarts",
            "Camera processes that had to be replaced.",
            _CAMERA,
            {(row.name,): row.source_restarts for row in rows},
        )

    def _latencies(self) -> Iterator[Metric]:
        family = self._families.HistogramMetricFamily(
            "vedette_stage_duration_seconds", "Where the time of answered frames went.", labels=_SERIES
        )
        for series in self._snapshot.series:  # the recorder bounds how many there are
            for stage in series.stages:
                labels = (series.camera, series.model.name, series.model.version, stage.stage)
                family.add_metric(labels, *_buckets_of(stage))
        yield family
        deliver = self._families.HistogramMetricFamily(
            "vedette_deliver_duration_seconds", "From an answer to its line being written, all cameras."
        )
        if self._snapshot.deliver is not None:
            deliver.add_metric((), *_buckets_of(self._snapshot.deliver))
        yield deliver
        box = self._snapshot.box
        yield self._counter(
            "vedette_latencies_rejected", "Values that were no durations.", (), {(): box.rejected[1]}
        )
        yield self._counter(
            "vedette_latencies_overflow",
            "Frames whose camera and model stand under `other`.",
            (),
            {(): box.overflow[1]},
        )

    def _engine(self) -> Iterator[Metric]:
        box, engine = self._snapshot.box, self._snapshot.box.engine
        yield self._gauge("vedette_model_ready", "Whether a model answers frames.", float(engine is not None))
        yield self._counter(
            "vedette_worker_restarts",
            "Engine workers that had to be replaced.",
            (),
            {(): box.worker_restarts},
        )
        if engine is None:
            return
        yield self._gauges(
            "vedette_accelerator_info",
            "What the model really runs on.",
            ("runtime", "accelerator"),
            {(engine.runtime, engine.effective): 1},
        )
        yield self._gauge(
            "vedette_accelerator_degraded", "Whether it runs on less than was asked for.", engine.degraded
        )
        yield self._gauge(
            "vedette_model_load_seconds", "How long the model took to load.", engine.load_ms / 1e3
        )

    def _processes(self) -> Iterator[Metric]:
        yield self._gauge(
            "vedette_resident_memory_bytes",
            "Resident memory of the daemon and its workers, what they share counted in each.",
            1024 * sum(process.rss_kib for process in self._snapshot.box.processes.values()),
        )
        yield self._gauges(
            "vedette_source_resident_memory_bytes",
            "Resident memory of a camera's process.",
            _CAMERA,
            {(row.name,): 1024 * row.source.rss_kib for row in self._snapshot.cameras.rows()},
        )

    def _board(self) -> Iterator[Metric]:
        board = self._snapshot.box.board
        if board is None:
            return
        if board.temperatures_c:
            hottest = max(board.temperatures_c.values())
            yield self._gauge("vedette_board_temperature_celsius", "The hottest sensor.", hottest)
        if board.power_w:
            most = max(board.power_w.values())
            yield self._gauge("vedette_board_power_watts", "The rail that carries most.", most)
        if board.cpu_share is not None:
            yield self._gauge(
                "vedette_board_cpu_clock_limit_ratio",
                "Clock that is allowed, of the highest.",
                board.cpu_share,
            )
        if board.throttled is not None:
            yield self._gauge("vedette_board_throttled", "Whether it is slowed down now.", board.throttled)
            yield self._gauges(
                "vedette_board_throttle_info",
                "Why; `was_` is since the board's start.",
                ("cause",),
                dict.fromkeys(((cause,) for cause in board.throttle), 1.0),
            )

    def _update_and_link(self) -> Iterator[Metric]:
        update, link = self._snapshot.box.update, self._snapshot.box.link
        if update is not None:
            yield self._gauges(
                "vedette_update_phase_info", "Where an update stands.", ("phase",), {(update.phase,): 1}
            )
            yield self._gauge(
                "vedette_update_fetched_bytes", "Of the update under way.", update.bytes_fetched
            )
            yield self._gauge("vedette_update_needed_bytes", "Of the update under way.", update.bytes_needed)
        if link is not None:
            for name, text, value in (
                ("vedette_link_connects", "Connections to the broker.", link.connects),
                ("vedette_link_reports_dropped", "Reports there was no room for.", link.dropped_reports),
                ("vedette_link_results_dropped", "Answers that were not sent.", link.dropped_results),
                ("vedette_link_messages_refused", "Messages that made no sense.", link.bad_messages),
            ):
                yield self._counter(name, text, (), {(): value})
            yield self._gauge("vedette_link_events_waiting", "Events to be sent.", link.waiting_events)
            yield self._gauge("vedette_link_reports_waiting", "Reports to be sent.", link.waiting_reports)

    def _escalation(self) -> Iterator[Metric]:
        escalation = self._snapshot.box.escalation
        if escalation is None:
            return
        counters = {
            "vedette_escalated_frames": (
                "Frames handed over because they were unsure.",
                escalation.escalated,
            ),
            "vedette_escalation_audits": ("Frames handed over at random.", escalation.audits),
            "vedette_escalation_calls": ("Questions to the large model.", escalation.calls),
            "vedette_escalation_sent_bytes": ("What they took.", escalation.sent_bytes),
            "vedette_escalation_cache_hits": ("Answers that were known already.", escalation.cache_hits),
            "vedette_escalation_cache_misses": ("Answers that were not.", escalation.cache_misses),
        }
        for name, (text, count) in counters.items():
            yield self._counter(name, text, (), {(): count[1]})
        gauges = {
            "vedette_escalation_waiting_frames": ("Frames without an outcome yet.", escalation.waiting),
            "vedette_escalation_backlog_frames": ("Frames that wait on the disk.", escalation.backlog),
            "vedette_escalation_epsilon": ("What was promised.", escalation.epsilon),
            "vedette_escalation_held_epsilon": ("What holds.", escalation.held_epsilon),
            "vedette_escalation_money_today": ("Spent, in the configured currency.", escalation.money_day),
            "vedette_escalation_asking": (
                "Whether the breaker lets calls through.",
                escalation.breaker != "open",
            ),
            "vedette_escalation_calibrated": (
                "Whether the threshold keeps a promise.",
                escalation.mode == "calibrated",
            ),
        }
        for name, (text, value) in gauges.items():
            yield self._gauge(name, text, float(value))
        for name, whose, found in (
            ("vedette_escalation_agreement", "answers, corrections included,", escalation.agreement),
            ("vedette_escalation_local_agreement", "local answers", escalation.local_agreement),
        ):
            if found is not None:
                text = f"How often {whose} agree with the large model, and the interval's ends."
                values: Values = {(bound,): value for bound, value in zip(_BOUNDS, found, strict=True)}
                yield self._gauges(name, text, ("bound",), values)
        yield self._counter(
            "vedette_escalation_outcomes",
            "What became of them.",
            ("cause",),
            {(outcome,): count[1] for outcome, count in escalation.outcomes.items()},
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family: GaugeMetricFamily = self._families.GaugeMetricFamily(name, text, value=float(value))
        return family

    def _gauges(self, name: str, text: str, labels: Labels, values: Values) -> Metric:
        family: GaugeMetricFamily = self._families.GaugeMetricFamily(name, text, labels=labels)
        for label_set, value in self._capped(values).items():
            family.add_metric(label_set, value)
        return family

    def _counter(self, name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
        family: CounterMetricFamily = self._families.CounterMetricFamily(name, text, labels=labels)
        for label_set, value in self._capped(dict(values)).items():
            family.add_metric(label_set, value)
        return family

    def _capped(self, values: Values) -> Values:
        """No more label sets than there may be, the rest added up under OTHER."""
        if len(values) <= MAX_LABEL_SETS:
            return values
        kept = dict(list(values.items())[: MAX_LABEL_SETS - 1])
        other = (OTHER,) * len(next(iter(values)))
        self._folded += len(values) - len(kept)
        kept[other] = kept.get(other, 0) + sum(values.values()) - sum(kept.values())
        return kept


def _buckets_of(stage: StageBuckets) -> tuple[list[tuple[str, float]], float]:
    bounds = [(repr(bound_s), float(count)) for bound_s, count in zip(BOUNDS_S, stage.up_to, strict=True)]
    return [*bounds, ("+Inf", float(stage.count))], stage.sum_s
