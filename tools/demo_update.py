"""The demo's last act: a box that has nothing but MQTT is watched and updated while frames flow."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from demo_broker import embedded_broker
from demo_children import Child, installed, shown, typed
from demo_fleet import TUNED_SHARE, Fleet, tuned_copy
from demo_runs import CHECKOUT, CLIPS, bundle_text
from demo_scenes import Scenes
from demo_watch import OperatorView
from vedette.errors import InternalError, UnavailableError
from vedette.telemetry.summary import RunSummary
from vedette.wire.messages import Result
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from demo_fleet import Offer
    from vedette.telemetry.summary import CameraSummary
    from vedette_fleet.fleet_figures import Latency

FOLDER = "over-mqtt"
BUNDLE = "person"
CLIP = "bikes.mp4"
CAMERA = "street"
DEVICE = DeviceTopics.of("demo", "demo-box")

CONFIG = """\
# Written by tools/demo.py: a box with no way in or out but MQTT. The broker lived as long as the demo.
device:
  id: {device}
  site: {site}
state_dir: box
model:
  name: {bundle}
  factory: {factory}
cameras:
  {camera}:
    input: {clip}
    live: true          # at its own speed, newest frame wins
    loop: true
mqtt:
  host: 127.0.0.1
  port: {port}
telemetry:
  interval_s: 2         # a minute, by default
update:
  via: [mqtt]           # no HTTP at all
  root: repo/metadata/1.root.json
"""


class Answers(NamedTuple):
    """How many frames a version answered, and their first and last number."""

    version: str
    frames: int
    first: int
    last: int


class Journey(NamedTuple):
    """What was seen of the update: bytes that came over MQTT, latencies by version from all reports."""

    camera: CameraSummary
    answers: tuple[Answers, ...]
    offer: Offer
    model_bytes: int
    metadata_bytes: int
    reports: int
    latencies: dict[str, Latency]

    @property
    def lost_between(self) -> int:
        """Frames between the last answer of the old model and the first of the new."""
        old, new = self.answers
        return new.first - old.last - 1


def clear_update_folder(out: Path) -> None:
    """Take away what an earlier demo left there.

    Raises:
        UnavailableError: Something else lies there, or it cannot be removed.
    """
    folder = out / FOLDER
    if folder.exists() and not (folder / "agent.yaml").exists():
        raise UnavailableError(
            f"{folder} is in the way, and was not made by the demo", cure="move it, or choose another --out"
        )
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        (folder / "agent.yaml").touch()
    except OSError as error:
        raise UnavailableError(
            f"cannot write to {folder}: {error.strerror}", cure="choose another folder with --out"
        ) from error


def update_over_mqtt(out: Path, say: Callable[[str], None]) -> Journey:
    """Run broker, block server, agent and operator; publish a new release; watch it arrive and prove itself.

    Raises:
        UnavailableError: Something that was promised did not happen in time, or a process failed.
        InternalError: What was left behind does not add up.
    """
    folder = out / FOLDER
    fleet = Fleet(folder, say)
    factory = CHECKOUT / "models" / BUNDLE
    fleet.release(factory)
    with embedded_broker(folder) as port, OperatorView(port, DEVICE) as view:
        limits = view.connected()
        say(f"broker: rumqttd (from the package iotcore), MQTT {limits.protocol}, on 127.0.0.1:{port}")
        config = folder / "agent.yaml"
        config.write_text(config_text(config, port), encoding="utf-8")
        with fleet.serve_blocks(port) as blocks, start_agent(folder, config, say) as agent:
            scenes = Scenes(view, BUNDLE, (blocks, agent), say)
            scenes.birth()
            scenes.telemetry("1")
            say(f"{BUNDLE} 2 is {BUNDLE} 1 with {TUNED_SHARE:.0%} of the weights of two layers one step off")
            offer = fleet.release(tuned_copy(factory, folder / f"{BUNDLE}-2"))
            fleet.roll_out(f"{BUNDLE}@2")
            scenes.announcement()
            scenes.delta(offer)
            scenes.trial()
            scenes.confirmation()
            scenes.telemetry("2")
            agent.finish()
            scenes.goodbye()
            blocks.finish()
    camera, answers = read_back(folder)
    return Journey(
        camera,
        answers,
        offer,
        model_bytes=view.bytes_of("blobs"),
        metadata_bytes=view.bytes_of("metadata") + view.bytes_of("targets"),
        reports=view.reports,
        latencies={row.version: row.latency for row in view.models()},
    )


def config_text(config: Path, port: int) -> str:
    """The box's configuration."""
    return CONFIG.format(
        device=DEVICE.device,
        site=DEVICE.site,
        bundle=BUNDLE,
        factory=bundle_text(BUNDLE, config),
        camera=CAMERA,
        clip=f"{CLIPS}/{CLIP}",
        port=port,
    )


def start_agent(folder: Path, config: Path, say: Callable[[str], None]) -> Child:
    """The daemon, which goes on until it is ended."""
    command: list[str | Path] = [*installed("vedette-agent"), "run", "--config", config]
    lines = folder / "results.jsonl"
    say(f"$ {typed(command)} > {shown(lines)}")
    command += ["--summary-json", folder / "summary.json"]
    return Child(command, log=folder / "agent.log", stdout=lines)


def read_back(folder: Path) -> tuple[CameraSummary, tuple[Answers, ...]]:
    """Figures, and answers by version.

    Raises:
        InternalError: What the agent wrote does not add up, or a frame was lost or answered twice.
    """
    decoder = msgspec.json.Decoder(Result)
    try:
        results = [decoder.decode(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]
        summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=RunSummary)
    except (OSError, msgspec.MsgspecError) as error:
        raise InternalError(f"{folder}: what the agent wrote cannot be read: {error}") from error
    if summary.imbalance or len(summary.cameras) != 1:
        raise InternalError(f"{folder}/summary.json: frames do not add up: {summary.imbalance}")
    (camera,) = summary.cameras
    check_frames([result.seq for result in results], camera)
    answers = tuple(
        Answers(version, len(numbers), numbers[0], numbers[-1])
        for version, group in itertools.groupby(results, lambda result: result.model.version)
        if (numbers := [result.seq for result in group])
    )
    if [entry.version for entry in answers] != ["1", "2"]:
        raise InternalError(f"{folder}/results.jsonl: {answers}; expected answers of version 1, then of 2")
    return camera, answers


def check_frames(numbers: Sequence[int], camera: CameraSummary) -> None:
    """Hold the numbers of the results against the figures.

    Raises:
        InternalError: A frame failed, has two results, or has none and was not dropped for a reason.
    """
    if any(one >= other for one, other in itertools.pairwise(numbers)):
        raise InternalError("results are out of order, or a frame has two")
    if camera.failed:
        raise InternalError(f"frames failed: {camera.failed}")
    missing = max(numbers, default=0) - len(numbers)
    if missing > sum(camera.dropped.values()):
        raise InternalError(f"{missing} frames have no result, and of these were dropped: {camera.dropped}")
