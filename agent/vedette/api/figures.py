"""The agent's status as text that Prometheus reads. Pure.

Labels are camera, stage of the life of a frame and cause, all from closed sets (casebook 44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.api.messages import AgentStatus, CameraStatus


def render(status: AgentStatus) -> bytes:
    """All figures of a status."""
    lines = [
        *_family("vedette_uptime_seconds", "gauge", "Seconds since the agent started."),
        f"vedette_uptime_seconds {status.uptime_s:.3f}",
        *_family("vedette_worker_restarts_total", "counter", "Engine workers that had to be replaced."),
        f"vedette_worker_restarts_total {status.worker_restarts}",
        *_family("vedette_model_ready", "gauge", "Whether a model answers frames."),
        f"vedette_model_ready {int(status.model is not None)}",
        *_family("vedette_frames_in_total", "counter", "Frames that came in."),
        *(f"vedette_frames_in_total{{{_camera(c)}}} {c.frames_in}" for c in status.cameras),
        *_family("vedette_frames_ok_total", "counter", "Frames that were answered."),
        *(f"vedette_frames_ok_total{{{_camera(c)}}} {c.ok}" for c in status.cameras),
        *_family("vedette_frames_in_flight", "gauge", "Frames that came in and have no outcome yet."),
        *(f"vedette_frames_in_flight{{{_camera(c)}}} {c.in_flight}" for c in status.cameras),
        *_family("vedette_frames_dropped_total", "counter", "Frames dropped on purpose, by cause."),
        *_causes("vedette_frames_dropped_total", {c.camera: c.dropped for c in status.cameras}),
        *_family("vedette_frames_failed_total", "counter", "Frames taken and not answered, by cause."),
        *_causes("vedette_frames_failed_total", {c.camera: c.failed for c in status.cameras}),
        *_family("vedette_source_restarts_total", "counter", "Camera processes that had to be replaced."),
        *(f"vedette_source_restarts_total{{{_camera(c)}}} {c.source_restarts}" for c in status.cameras),
    ]
    return ("\n".join(lines) + "\n").encode()


def _family(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _camera(camera: CameraStatus) -> str:
    return f'camera="{_escaped(camera.camera)}"'


def _causes(name: str, counts: dict[str, dict[str, int]]) -> Iterator[str]:
    for camera, by_cause in counts.items():
        for cause, count in by_cause.items():
            yield f'{name}{{camera="{_escaped(camera)}",cause="{_escaped(cause)}"}} {count}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
