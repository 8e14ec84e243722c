"""The demo's fifth act: a small model that asks a large one where it is unsure, and what that buys."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from demo_children import Child, installed, shown, typed
from demo_runs import CHECKOUT, CLIPS, RUN_TIMEOUT_S, agent_text, bundle_text
from vedette.errors import InternalError, UnavailableError
from vedette.telemetry.summary import RunSummary
from vedette.vision.annotate import Caption, draw_captions, enlarge
from vedette.wire.messages import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from vedette.wire.messages import Escalation
    from vedette.wire.telemetry import EscalationFigures

    Pixels = NDArray[np.uint8]

SMALL, LARGE, CLIP, CAMERA = "imagenet", "imagenet-large", "bikes.mp4", "street"
NAME = "escalate"
READY_WITHIN_S = 90.0
LOOK_S = 0.1
TOLD = 5
PICTURE_PX = 640

CONFIG = """\
# Written by tools/demo.py. Run it again with
#   {cloud} &
#   {agent} run --config {config}
model:
  factory: {factory}
cameras:
  {camera}:
    input: {clip}
    live: true            # at its own speed; no frame waits for the large model
escalation:
  provider: oip           # the Open Inference Protocol: vedette-cloud, Triton, KServe; or openai
  url: {url}
  model: {large}
  policy:
    threshold: 0.4        # ask below this; `target: 98% of cloud` makes it a promise, once audits tell
  audit:
    share: 8%             # of all answers, drawn before anybody looks how sure they are
  budget:
    per_minute: 240
  cool_down_s: 0          # a film of a minute has few scenes; the default asks about a still scene every 5 s
"""


class Told(NamedTuple):
    """One answer of the large model, beside the local one."""

    local: Result
    final: Result
    outcome: Escalation


class Asked(NamedTuple):
    """What the run left behind."""

    lines: tuple[Result, ...]
    told: tuple[Told, ...]
    figures: EscalationFigures
    summary: RunSummary

    def of(self, reason: str) -> list[Told]:
        """Answers that were asked for because of this."""
        return [one for one in self.told if one.outcome.reason == reason]


def outputs() -> tuple[str, ...]:
    """The files that this act leaves."""
    return tuple(f"{NAME}{suffix}" for suffix in (".yaml", ".jsonl", ".summary.json", ".log", "-cloud.log"))


def ask_a_large_model(out: Path, say: Callable[[str], None]) -> Asked:
    """Start the server, run the agent beside it, and read back what became of each question.

    Raises:
        UnavailableError: Server or agent failed, or took too long.
        InternalError: What was written does not add up.
    """
    config, lines, figures, log, cloud_log = (out / name for name in outputs())
    ready = cloud_log.with_suffix(".json")
    serve = [*installed("vedette-cloud"), "serve", "--model", CHECKOUT / "models" / LARGE, "--batch", "1"]
    with Child([*serve, "--listen", "127.0.0.1:0", "--json"], log=cloud_log, stdout=ready) as cloud:
        say(f"$ {typed(serve)}")
        began_s = time.monotonic()
        url = _ready(cloud, ready)
        say(f"{LARGE} answers at {url}, after {time.monotonic() - began_s:.0f} s of loading")
        text = CONFIG.format(
            cloud=f"{typed(serve)} --listen {url.removeprefix('http://')}",
            agent=agent_text(),
            config=shown(config),
            factory=bundle_text(SMALL, config),
            camera=CAMERA,
            clip=f"{CLIPS}/{CLIP}",
            url=url,
            large=LARGE,
        )
        config.write_text(text, encoding="utf-8")
        command = [*installed("vedette-agent"), "run", "--config", config, "--summary-json", figures]
        say(f"$ {agent_text()} run --config {shown(config)} > {shown(lines)}")
        with Child(command, log=log, stdout=lines) as agent:
            teller = _Teller(lines, say)
            agent.wait(RUN_TIMEOUT_S, teller.look)
        cloud.finish()
    ready.unlink(missing_ok=True)
    return read_back(lines, figures)


def _ready(cloud: Child, line: Path) -> str:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        cloud.check_alive()
        text = line.read_bytes()
        if text.endswith(b"\n"):
            address: str = msgspec.json.decode(text)["address"]
            return address
        time.sleep(LOOK_S)
    raise UnavailableError(f"the server was not ready within {READY_WITHIN_S:.0f} s", cure="see its log")


class _Teller:
    """Says the first few corrections as they come."""

    def __init__(self, lines: Path, say: Callable[[str], None]) -> None:
        self._lines = lines
        self._say = say
        self._told = 0

    def look(self) -> None:
        """Look at what was written since."""
        if self._told >= TOLD:
            return
        whole = self._lines.read_bytes().rpartition(b"\n")[0]
        for one in list(pair(msgspec.json.decode(line, type=Result) for line in whole.splitlines()))[
            self._told :
        ]:
            if self._told < TOLD:
                self._say(_told_text(one))
                self._told += 1


def pair(lines: Iterator[Result] | Sequence[Result]) -> Iterator[Told]:
    """Each line with an answer of the large model, with the frame's own line that came before it."""
    local: dict[int, Result] = {}
    for line in lines:
        outcome = line.escalation
        if line.seq not in local:
            local[line.seq] = line
        elif outcome is not None and line.source == "cloud":
            yield Told(local[line.seq], line, outcome)


def read_back(lines: Path, figures: Path) -> Asked:
    """Decode strictly, and hold lines against figures.

    Raises:
        InternalError: They do not add up.
    """
    try:
        decoded = tuple(msgspec.json.decode(line, type=Result) for line in lines.read_bytes().splitlines())
        summary = msgspec.json.decode(figures.read_bytes(), type=RunSummary)
    except (OSError, msgspec.MsgspecError) as error:
        raise InternalError(f"{NAME}: what the agent wrote cannot be read: {error}") from error
    if summary.escalation is None or summary.imbalance:
        raise InternalError(f"{NAME}: the figures know of no large model, or do not add up")
    words = Counter(
        f"{one.escalation.outcome}_{one.escalation.cause}" if one.escalation.cause else one.escalation.outcome
        for one in decoded
        if one.escalation is not None
    )
    counted = {word: count[1] for word, count in summary.escalation.outcomes.items()}
    if counted != dict(words):
        raise InternalError(f"{NAME}: {counted} was counted, and the lines say {dict(words)}")
    return Asked(decoded, tuple(pair(decoded)), summary.escalation, summary)


def _told_text(one: Told) -> str:
    took_ms = one.outcome.took_ms or 0.0
    why = "drawn at random" if one.outcome.reason == "audit" else "unsure"
    local = _best(one.local)
    said = "agrees" if one.outcome.outcome == "agreed" else f"says {_best(one.final)}"
    return f"frame {one.local.seq:>3}, {why}: {local}; the large model {said}, {took_ms:.0f} ms later"


def _best(result: Result) -> str:
    if not result.top:
        return "nothing"
    return f"{result.top[0].label} {result.top[0].score:.0%}"


def correction_picture(asked: Asked, frames: Sequence[Pixels]) -> tuple[str, Pixels] | None:
    """The correction of which the large model is surest, drawn on its frame; None without any."""
    found = [
        one for one in asked.told if one.outcome.outcome == "answered" and one.final.top and one.local.top
    ]
    found = [one for one in found if one.local.seq <= len(frames)]
    if not found:
        return None
    best = max(found, key=lambda one: one.final.top[0].score if one.final.top else 0.0)
    captions = [
        Caption(name, tuple(result.top or ())[:3])
        for name, result in ((SMALL, best.local), (LARGE, best.final))
    ]
    picture = draw_captions(enlarge(frames[best.local.seq - 1], PICTURE_PX), captions)
    return f"escalation-{best.local.seq:04}.png", picture


def asked_lines(asked: Asked) -> Iterator[RenderableType]:
    """What it cost, what it bought, and what the same calls would have bought without a gate."""
    figures, camera = asked.figures, asked.summary.cameras[0]
    unsure, random = asked.of("uncertain"), asked.of("audit")
    yield "[bold]A large model for the unsure answers[/bold]"
    p95_ms = camera.latency["total"].p95_ms or 0.0
    yield f"  {'frames':<16} {camera.ok} answered at once, p95 {p95_ms:.0f} ms; none waited"
    yield (
        f"  {'asked':<16} {figures.escalated[1]} unsure and {figures.audits[1]} at random: "
        f"{figures.calls[1]} calls, {figures.sent_bytes[1] / 1e6:.2f} MB"
    )
    others = [
        f"{count[1]} {word.replace('_', ': ', 1).replace('_', ' ')}"
        for word, count in figures.outcomes.items()
    ]
    yield f"  {'outcomes':<16} {', '.join(others)}"
    yield f"  {'an unsure one':<16} {_bought(unsure)}"
    yield f"  {'one at random':<16} {_bought(random)}"
    if figures.local_agreement is not None:
        share, low, high = figures.local_agreement
        interval = f"95 % interval {low:.0%} to {high:.0%}"
        yield f"  {'agreement':<16} {share:.0%} of all local answers, by those drawn at random ({interval})"
    yield "  The large model's word counts as right here. It is a threshold and no promise:"
    yield "  a promise (`target: 98% of cloud`) takes some hundred audits, which a box has after a day."


def _bought(told: Sequence[Told]) -> str:
    """Of every ten calls so many corrected an answer."""
    if not told:
        return "no answer came"
    corrected = sum(one.outcome.outcome == "answered" for one in told)
    return f"{corrected} of {len(told)} answers corrected: {corrected / len(told):.2f} right answers a call"
