"""What the server counts, as Prometheus reads it; the only file that names prometheus_client.

Labels are devices of the token file, paths of a fixed list, and statuses: their number is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from vedette.wire.messages import AcceleratorReport, ModelRef

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class PoolMeter(Protocol):
    """What a pool tells of its work."""

    def waiting(self, requests: int) -> None:
        """So many wait now."""
        ...

    def ran(self, size: int, run_ns: int) -> None:
        """A batch of that size was run."""
        ...

    def restarted(self) -> None:
        """A process died."""
        ...


class Metrics:
    """A registry of its own: nothing is global. One event loop owns it."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "vedette_cloud_requests",
            "Requests answered, by device, path and HTTP status.",
            ("device", "path", "status"),
            registry=registry,
        )
        self._durations = Histogram(
            "vedette_cloud_request_duration_seconds",
            "From a request's head to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._received = Counter(
            "vedette_cloud_received_bytes", "Bodies read, by device.", ("device",), registry=registry
        )
        self._refused = Counter(
            "vedette_cloud_refused",
            "Requests refused before the model, by cause.",
            ("cause",),
            registry=registry,
        )
        self._batches = Histogram(
            "vedette_cloud_batch_size", "Requests in a batch.", buckets=_SIZES, registry=registry
        )
        self._runs = Histogram(
            "vedette_cloud_run_duration_seconds",
            "What a batch took in the model's process.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._waiting = Gauge("vedette_cloud_waiting", "Requests in the queue.", registry=registry)
        self._restarts = Counter(
            "vedette_cloud_process_losses", "Processes of the model that died or hung.", registry=registry
        )
        self._model = Gauge(
            "vedette_cloud_model_info",
            "The model, and what it really runs on.",
            ("name", "version", "sha256", "accelerator"),
            registry=registry,
        )

    def serves(self, model: ModelRef, report: AcceleratorReport | None) -> None:
        """This model answers."""
        accelerator = "" if report is None else report.effective
        self._model.labels(model.name, model.version, model.sha256, accelerator).set(1)

    def answered(self, device: str, path: str, status: int, took_s: float) -> None:
        """A request had this answer."""
        self._requests.labels(device, path, str(status)).inc()
        self._durations.labels(path).observe(took_s)

    def received(self, device: str, size_bytes: int) -> None:
        """A body was read."""
        self._received.labels(device).inc(size_bytes)

    def refused(self, cause: str) -> None:
        """A request got no further, for want of a `token` or of `budget`."""
        self._refused.labels(cause).inc()

    def waiting(self, requests: int) -> None:
        """See `PoolMeter`."""
        self._waiting.set(requests)

    def ran(self, size: int, run_ns: int) -> None:
        """See `PoolMeter`."""
        self._batches.observe(size)
        self._runs.observe(run_ns / 1e9)

    def restarted(self) -> None:
        """See `PoolMeter`."""
        self._restarts.inc()

    def render(self) -> bytes:
        """The text format, version 0.0.4."""
        return generate_latest(self._registry)
