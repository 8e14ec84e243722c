"""What the demo shows: pictures of some frames, tables, and where to go from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vedette.errors import InternalError
from vedette.telemetry.summary import ms_text
from vedette.vision.annotate import Caption, dim_outside, draw_captions, draw_detections, draw_note, enlarge
from vedette.vision.geometry import place
from vedette.vision.orientation import Rect
from vedette.wire.bundle import ResizeMode
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from rich.console import RenderableType

    from demo_runs import Outcome
    from demo_update import Journey
    from vedette.telemetry.summary import CameraSummary
    from vedette.wire.messages import Label, LatencyMs, Result

    Pixels = NDArray[np.uint8]

PICTURE_PX = 640
TOP = 3
SURE = 0.5
# models/imagenet*/model.yaml: a square cut from the middle.
SCENE_INPUT = (224, 224)


def face_pictures(face: Outcome, frames: Sequence[Pixels], count: int) -> Iterator[tuple[str, Pixels]]:
    """File names and pictures of `count` frames at equal distances.

    Raises:
        InternalError: No face in any frame, though there is one in each.
    """
    if not any(result.detections for result in face.results):
        raise InternalError(f"no face was found in {face.act.clip}, where there is one all the time")
    for index in ((2 * part + 1) * len(frames) // (2 * count) for part in range(count)):
        result = face.results[index]
        picture = enlarge(frames[index], PICTURE_PX)
        scale = PICTURE_PX / frames[index].shape[1]
        drawn = draw_detections(picture, result.detections or (), scale=scale)
        note = f"frame {result.seq}: {face.act.bundle} {result.model.version} with {face.act.engine}"
        if result.latency_ms:
            note += f", {work_ms(result.latency_ms):.1f} ms"
        yield f"face-{result.seq:04}.png", draw_note(drawn, note)


def scene_pictures(
    litert: Outcome, onnx: Outcome, frames: Sequence[Pixels], count: int
) -> Iterator[tuple[str, Pixels]]:
    """File names and pictures of the frame in each of `count` parts of the clip that LiteRT is surest of.

    What the model does not see, because it takes a square from the middle, is darker.
    """
    height, width = frames[0].shape[:2]
    crop = place(describe(width, height, PixelFormat.BGR24), SCENE_INPUT, ResizeMode.CENTER_CROP).crop
    scale = PICTURE_PX / width
    seen = Rect(*(round(side * scale) for side in crop))
    for part in np.array_split(np.arange(len(frames)), count):
        index = max(
            (int(number) for number in part), key=lambda number: top_of(litert.results[number])[0].score
        )
        captions = [
            Caption(outcome.act.engine, top_of(outcome.results[index])[:TOP]) for outcome in (litert, onnx)
        ]
        picture = dim_outside(enlarge(frames[index], PICTURE_PX), seen)
        yield f"scene-{index + 1:04}.png", draw_captions(picture, captions)


def top_of(result: Result) -> tuple[Label, ...]:
    """The labels of a classification.

    Raises:
        InternalError: There are none.
    """
    if not result.top:
        raise InternalError(f"frame {result.seq} has no labels")
    return result.top


def work_ms(latency: LatencyMs) -> float:
    """The time that was really spent on a frame, without waiting in line."""
    return latency.preprocess + latency.infer + latency.postprocess


class Agreement(NamedTuple):
    """On how many frames two runs name the same class first, and of those where the first run is sure."""

    same: int
    frames: int
    same_sure: int
    sure: int


def agreement(one: Outcome, other: Outcome) -> Agreement:
    """Compare two runs over the same frames."""
    pairs = [
        (top_of(left)[0], top_of(right)[0]) for left, right in zip(one.results, other.results, strict=True)
    ]
    sure = [(left, right) for left, right in pairs if left.score >= SURE]
    return Agreement(
        sum(left.index == right.index for left, right in pairs),
        len(pairs),
        sum(left.index == right.index for left, right in sure),
        len(sure),
    )


def findings(face: Outcome, litert: Outcome, onnx: Outcome) -> Iterator[RenderableType]:
    """Accounting, accelerators, and the two engines side by side."""
    outcomes = (face, litert, onnx)
    yield "[bold]Every frame is accounted for[/bold]"
    for outcome in outcomes:
        yield f"  {outcome.act.name:<16} {accounting(outcome.camera)}"
    yield ""
    yield "[bold]What it really ran on[/bold]"
    for outcome in outcomes:
        engine = outcome.engine
        nodes = ", ".join(f"{name} {count}" for name, count in engine.nodes.items())
        yield (
            f"  {outcome.act.name:<16} asked for {', '.join(engine.asked)}, runs on {engine.effective}: "
            f"{engine.runtime}, {'1 thread' if engine.threads == 1 else f'{engine.threads} threads'}"
        )
        yield f"  {'':<16} known by: {engine.evidence}"
        if nodes:
            yield f"  {'':<16} graph nodes: {nodes}"
    yield ""
    yield "[bold]The same model, the same frames, two engines[/bold]  (milliseconds)"
    yield stage_table(litert, onnx)
    yield from agreement_lines(agreement(litert, onnx))


def accounting(camera: CameraSummary) -> str:
    """The equation in = ok + dropped + failed, in figures."""
    dropped, failed = sum(camera.dropped.values()), sum(camera.failed.values())
    return f"in {camera.frames_in} = ok {camera.ok} + dropped {dropped} + failed {failed}"


def agreement_lines(found: Agreement) -> Iterator[str]:
    """How far the engines agree, and why not everywhere."""
    yield f"  Same class first: {found.same} of {found.frames} frames ({found.same / found.frames:.0%})."
    if found.sure:
        yield (
            f"  Where LiteRT gives {SURE:.0%} or more: {found.same_sure} of {found.sure} "
            f"({found.same_sure / found.sure:.0%})."
        )
    yield "  The two files hold the same weights, rounded to 8 bits in two ways. They part"
    yield "  where the model is unsure: it was trained on photographs of single things, and"
    yield "  this is a film of a street."


def stage_table(litert: Outcome, onnx: Outcome) -> RenderableType:
    """p50 and p95 of every stage for both engines, over all frames."""
    from rich import box  # noqa: PLC0415 - slow to import, needed at the end only
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("stage", ""):
        table.add_column(heading, no_wrap=True)
    for outcome in (litert, onnx):
        table.add_column(f"{outcome.act.engine}\np50", justify="right", no_wrap=True)
        table.add_column("\np95", justify="right", no_wrap=True)
    for name, meaning, style, values in stage_rows(litert, onnx):
        figures = [ms_text(float(np.percentile(side, share))) for side in values for share in (50, 95)]
        table.add_row(name, meaning, *figures, style=style)
    rates = [figure for outcome in (litert, onnx) for figure in (f"{outcome.summary.fps:.0f}/s", "")]
    table.add_row("rate", "start included", *rates)
    return table


def stage_rows(litert: Outcome, onnx: Outcome) -> Iterator[tuple[str, str, str | None, list[list[float]]]]:
    """Name, meaning, style, and the values in milliseconds of both runs."""
    times = [[r.latency_ms for r in outcome.results if r.latency_ms] for outcome in (litert, onnx)]
    yield "preprocess", "pixels to tensor", None, [[t.preprocess for t in run] for run in times]
    yield "infer", "the engine", None, [[t.infer for t in run] for run in times]
    yield "postprocess", "tensor to answer", None, [[t.postprocess for t in run] for run in times]
    yield "one frame", "the three together", "bold", [[work_ms(t) for t in run] for run in times]
    yield "waiting", "a file is read ahead", "dim", [[t.transport + t.queue for t in run] for run in times]
    yield "total", "arrival to answer", "dim", [[t.total for t in run] for run in times]


def journey_lines(journey: Journey) -> Iterator[RenderableType]:
    """What the operator saw of the update, and what became of the frames meanwhile."""
    camera, offer = journey.camera, journey.offer
    old, new = journey.answers
    causes = ", ".join(f"{cause} {count}" for cause, count in camera.dropped.items() if count)
    if camera.dropped == {"no_worker": old.first - 1}:
        causes = "before its model was loaded"
    yield "[bold]A new model over MQTT, while frames flowed[/bold]"
    yield f"  {'frames':<16} {accounting(camera)}{f' ({causes})' if causes else ''}"
    yield f"  {'answers':<16} {old.frames} by version 1, up to frame {old.last}"
    yield f"  {'':<16} {new.frames} by version 2, from frame {new.first} on"
    yield f"  {'lost in between':<16} {journey.lost_between}"
    yield (
        f"  {'the model':<16} {journey.model_bytes:,} bytes came as a delta, "
        f"in full it is {offer.full_bytes:,}"
    )
    yield f"  {'its signatures':<16} {journey.metadata_bytes:,} bytes of signed metadata, by the same way"
    yield f"  {'latency':<16} from the sketches of {journey.reports} reports, merged  (milliseconds)"
    for version, latency in journey.latencies.items():
        p50, p95 = ms_text(latency.p50_ms), ms_text(latency.p95_ms)
        yield f"  {'':<16} version {version}: p50 {p50}, p95 {p95}, over {latency.count} answers"


def next_steps(agent: str, fleet: str, folder: str) -> Iterator[str]:
    """Where the files are, and some commands."""
    yield "[bold]Look at[/bold]"
    width = len(folder) + 11
    yield f"  {f'{folder}/demo.png':<{width}}  six frames and what was found in them; each also on its own."
    yield f"  {'':<{width}}  Street: the model looks at the bright square in the middle."
    yield f"  {f'{folder}/*.jsonl':<{width}}  the results, one line of JSON for each frame"
    yield f"  {f'{folder}/*.yaml':<{width}}  the configurations that were run"
    yield f"  {f'{folder}/over-mqtt':<{width}}  the box that was updated, and its operator's repository"
    yield ""
    yield "[bold]Try next[/bold]"
    yield "  Two cameras at their own speed, one model, newest frame wins:"
    yield f"    {agent} run --config agent/examples/two-cameras.yaml"
    yield "  What a model really runs on, and how fast it is here:"
    yield f"    {agent} probe models/imagenet"
    yield "  The devices on a broker of yours, live:"
    yield f"    {fleet} top --broker HOST"
    yield "  A film of your own:"
    yield f"    ffmpeg -i FILM -f yuv4mpegpipe - | {agent} pipe --model models/person --format y4m"
