"""`vedette-agent check-config`: every problem of a configuration at once, or what would run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vedette.config.camera import is_path
from vedette.errors import ConfigError
from vedette.runtime.preflight import shown
from vedette.runtime.public_config import public_config
from vedette.runtime.read_checked import read_checked
from vedette.runtime.root_file import read_root
from vedette.source.urls import redact_url
from vedette.telemetry.summary import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.config.agent import AgentConfig
    from vedette.config.camera import CameraConfig
    from vedette.config.escalation import BudgetConfig, EscalationConfig
    from vedette.config.link import HttpConfig, MqttConfig, TelemetryConfig
    from vedette.config.updates import UpdateConfig


class _Verdict(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    v: int
    file: str
    ok: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    config: dict[str, Any] | None


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def check_config(context: click.Context, file: Path, *, as_json: bool) -> None:
    """Check a configuration FILE: report every problem at once, or show what would run.

    Files and folders that it names must be on this machine. Nothing is opened or started, neither cameras nor
    the model. The exit code is 0 for a good file, else 78.
    """
    try:
        config, notes = _checked(file)
    except ConfigError as error:
        problems = error.problems or (error.cause,)
        verdict = _Verdict(v=1, file=str(file), ok=False, problems=problems, notes=(), config=None)
        click.echo(msgspec.json.encode(verdict).decode() if as_json else error.diagnostics())
        context.exit(ConfigError.exit_code)
    if as_json:
        public = public_config(config)
        verdict = _Verdict(v=1, file=str(file), ok=True, problems=(), notes=notes, config=public)
        click.echo(msgspec.json.encode(verdict).decode())
        return
    click.echo("\n".join(_summary(config)))
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _checked(file: Path) -> tuple[AgentConfig, tuple[str, ...]]:
    """The configuration, judged as `run` would judge it and a little stricter, and its notes.

    Raises:
        ConfigError: With every problem.
    """
    config = read_checked(file, os.environ)
    if config.update is not None:
        read_root(Path(config.update.root))  # without it `run` serves, and gets no updates
    return config, (*config.notes, *_absent(config))


def _absent(config: AgentConfig) -> Iterator[str]:
    """Files that may come to the box later, such as keys and passwords."""
    named = {} if config.update is None else {"update.root": config.update.root}
    mqtt = config.mqtt
    if mqtt is not None:
        named["mqtt.password_file"] = mqtt.password_file or ""
        for key in ("ca", "cert", "key") if mqtt.tls is not None else ():
            named[f"mqtt.tls.{key}"] = getattr(mqtt.tls, key) or ""
    asked = config.escalation
    for key in ("key_file", "ca") if asked is not None else ():
        named[f"escalation.{key}"] = getattr(asked, key) or ""
    for key, path in named.items():
        if path and not Path(path).is_file():
            yield f"{key}: {shown(path)} is not on this machine"


def _summary(config: AgentConfig) -> list[str]:
    engine = config.engine
    width = max((len(name) for name in config.cameras), default=0)
    cameras = (f"{name:<{width}}  {_camera_line(camera)}" for name, camera in config.cameras.items())
    rows = {
        "device": config.device.id + (f" at {config.device.site}" if config.device.site else ""),
        "model": (f"{config.model.name} from " if config.model.name else "") + shown(config.model.factory),
        "engine": ", then ".join(engine.accelerators)
        + f"; threads: {engine.threads}; if the first is not in effect: {engine.on_fallback}",
        "cameras": f"\n{'':<12}".join(cameras) or "none",
        "memory": f"at most {config.limits.ring_memory / 1e6:,.0f} MB for frames",
        "results": config.results.to if config.results.to == "stdout" else shown(config.results.to),
        "state": shown(config.state_dir) if config.state_dir else "none: nothing is kept between runs",
        "http": "none" if config.http is None else _http_line(config.http),
        "mqtt": "none" if config.mqtt is None else _mqtt_line(config.mqtt),
        **({} if config.mqtt is None else {"telemetry": _telemetry_line(config.telemetry)}),
        "escalation": "none" if config.escalation is None else _escalation_line(config.escalation),
        "updates": "none" if config.update is None else _update_line(config.update),
    }
    return [f"{config.origin} is good. It would run:", "", *(f"{key:<12}{row}" for key, row in rows.items())]


def _http_line(http: HttpConfig) -> str:
    size_mb = http.max_picture / 1e6
    return f"on {http.listen}, up to {http.waiting} waiting requests of {size_mb:,.1f} MB"


def _mqtt_line(mqtt: MqttConfig) -> str:
    parts = [f"{mqtt.host}:{mqtt.effective_port}{' with TLS' if mqtt.tls is not None else ''}"]
    if mqtt.username is not None:
        parts.append(f"as {mqtt.username}")
    parts.append(f"up to {mqtt.outbox / 1e6:,.1f} MB wait on the disk")
    if mqtt.results.publish == "none":
        parts.append("no answers are sent")
    else:
        which = "each answer" if mqtt.results.publish == "all" else "answers that change"
        parts.append(f"{which}, up to {mqtt.results.max_per_s:g} a second and camera")
    if mqtt.home_assistant:
        parts.append("shown to Home Assistant")
    return ", ".join(parts)


def _telemetry_line(telemetry: TelemetryConfig) -> str:
    every = duration_text(telemetry.interval_s)
    return f"every {every}, in messages of up to {telemetry.max_report:,} bytes ({telemetry.format})"


def _escalation_line(asked: EscalationConfig) -> str:
    policy, privacy = asked.policy, asked.privacy
    if policy.target is not None:
        when = f"{policy.target:.4g} of what it gets right, with confidence {1 - policy.delta:g}"
    elif policy.selective is not None:
        when = f"at most {policy.selective:.4g} of kept answers differ, with confidence {1 - policy.delta:g}"
    else:
        when = f"asked below a confidence of {policy.threshold:g}, which promises nothing"
    parts = [f"{asked.model} at {redact_url(asked.url)} ({asked.provider})", when, _budget_text(asked.budget)]
    sent = {"frame": "whole frames", "crop": "what was detected", "never": "nothing"}[privacy.send]
    parts.append(f"{sent} may be sent" + (f", without {', '.join(privacy.blur)}" if privacy.blur else ""))
    within = duration_text(asked.deadline_ms / 1e3)
    parts.append(
        f"answers wait for it up to {within}" if asked.hold else f"corrections follow within {within}"
    )
    return f"\n{'':<12}".join(parts)


def _budget_text(budget: BudgetConfig) -> str:
    limits = {
        "calls a minute": budget.per_minute,
        "calls a day": budget.per_day,
        "bytes a day": budget.bytes_per_day,
        "of money a day": budget.money_per_day,
    }
    given = [f"{limit:,} {name}" for name, limit in limits.items() if limit is not None]
    return f"at most {', '.join(given)}" if given else "as often as it takes: no budget is set"


def _update_line(update: UpdateConfig) -> str:
    ways = {"http": redact_url(update.metadata or ""), "mqtt": "blocks over MQTT"}
    parts = [
        f"from {', then '.join(ways[way] for way in update.via)}",
        f"looked for every {duration_text(update.poll_s)}",
    ]
    if update.window is not None:
        parts.append(f"live within {update.window}")
    return ", ".join(parts)


def _camera_line(camera: CameraConfig) -> str:
    parts = [_input_text(camera)]
    if camera.format is not None:
        parts.append(camera.format)
    if camera.size is not None:
        parts.append(f"{camera.size.width}x{camera.size.height}")
    if camera.fps is not None:
        parts.append(f"at most {camera.fps:g} fps")
    if camera.live != "auto":
        parts.append("live" if camera.live else "every frame")
    if camera.loop:
        parts.append("in a loop")
    parts.append(f"priority {camera.priority}")
    if camera.reuse is not None:
        parts.append(
            f"answers given again for up to {duration_text(camera.reuse.max_age_s)} of a still scene"
        )
    if camera.max_age_ms is None:
        parts.append("no age limit")
    elif camera.max_age_ms != "auto":
        parts.append(f"at most {camera.max_age_ms:g} ms old")
    return ", ".join(parts)


def _input_text(camera: CameraConfig) -> str:
    if camera.reads_stdin:
        return "standard input"
    if is_path(camera.input) and not camera.input.startswith("/dev/"):
        return shown(camera.input)
    return redact_url(camera.input)
