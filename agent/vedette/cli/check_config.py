"""`vedette-agent check-config`: every problem of a configuration at once, or what would run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vedette.config.agent import AgentConfig, parse_config, read_config_text
from vedette.config.camera import is_path
from vedette.errors import ConfigError
from vedette.runtime.preflight import check_on_this_box, shown
from vedette.runtime.root_file import read_root
from vedette.source.urls import redact_url
from vedette.telemetry.summary import duration_text

if TYPE_CHECKING:
    from vedette.config.camera import CameraConfig
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
        shown = _as_builtins(config)
        verdict = _Verdict(v=1, file=str(file), ok=True, problems=(), notes=notes, config=shown)
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
    text = read_config_text(file)
    config = parse_config(text, origin=file, environ=os.environ)
    check_on_this_box(config, text)
    if config.update is not None:
        read_root(Path(config.update.root))  # without it `run` serves, and gets no updates
    return config, config.notes


def _as_builtins(config: AgentConfig) -> dict[str, Any]:
    """The configuration with every default filled in, fit for a screen: without credentials."""
    shown: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    for key in ("origin", "notes"):
        del shown[key]
    for camera in shown["cameras"].values():
        camera["input"] = redact_url(camera["input"])
    return shown


def _summary(config: AgentConfig) -> list[str]:
    engine = config.engine
    width = max(len(name) for name in config.cameras)
    cameras = (f"{name:<{width}}  {_camera_line(camera)}" for name, camera in config.cameras.items())
    rows = {
        "device": config.device.id + (f" at {config.device.site}" if config.device.site else ""),
        "model": (f"{config.model.name} from " if config.model.name else "") + shown(config.model.factory),
        "engine": ", then ".join(engine.accelerators)
        + f"; threads: {engine.threads}; if the first is not in effect: {engine.on_fallback}",
        "cameras": f"\n{'':<10}".join(cameras),
        "memory": f"at most {config.limits.ring_memory / 1e6:,.0f} MB for frames",
        "results": config.results.to if config.results.to == "stdout" else shown(config.results.to),
        "state": shown(config.state_dir) if config.state_dir else "none: nothing is kept between runs",
        "updates": "none" if config.update is None else _update_line(config.update),
    }
    return [f"{config.origin} is good. It would run:", "", *(f"{key:<10}{row}" for key, row in rows.items())]


def _update_line(update: UpdateConfig) -> str:
    parts = [f"from {redact_url(update.metadata)}", f"looked for every {duration_text(update.poll_s)}"]
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
