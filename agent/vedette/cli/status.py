"""`vedette-agent status`: how a running daemon and its updates are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from vedette.api.control import ask
from vedette.api.messages import AgentStatus, CameraStatus, StatusRequest
from vedette.cli.control_options import control_options, socket_of
from vedette.cli.status_escalation import escalation_rows
from vedette.runtime.narration import progress_text, result_text, size_text
from vedette.telemetry.summary import duration_text
from vedette.update.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vedette.link.port import LinkStatus
    from vedette.update.status import UpdateStatus
    from vedette.update.watched import Watched

_LABEL_COLUMNS = 10


@click.command()
@control_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def status(config_path: Path | None, socket_path: Path | None, *, as_json: bool) -> None:
    """Show what answers frames, how the cameras do, and how updates stand."""
    body = ask(socket_of(config_path, socket_path), StatusRequest())
    if as_json:
        click.echo(body.decode())
        return
    for line in screen(msgspec.json.decode(body, type=AgentStatus)):
        click.echo(line)


def screen(found: AgentStatus) -> Iterator[str]:
    """The status for people, line by line."""
    yield _row("agent", f"{found.device}, version {found.agent}, up {duration_text(found.uptime_s)}")
    if found.model is None:
        yield _row("model", "none answers just now")
    else:
        yield _row("model", f"{found.model.name} {found.model.version}  {found.model.sha256[:12]}…")
    if found.engine is not None:
        degraded = f", not {found.engine.asked[0]}" if found.engine.degraded else ""
        yield _row("engine", f"{found.engine.runtime} on {found.engine.effective}{degraded}")
    if found.worker_restarts:
        yield _row("", f"! the engine worker was started again {found.worker_restarts} times")
    for number, camera in enumerate(found.cameras):
        yield _row("" if number else "cameras", _camera(camera))
    yield ""
    if found.update is not None:
        yield from update_rows(found.update, found.releases)
        if found.look_fault:
            yield _row("", f"! the last look failed: {found.look_fault}")
        if found.clock_doubt:
            yield _row("", f"! the clock is not believed: {found.clock_doubt}")
    else:
        yield _row("update", f"none can be had: {found.no_update}" if found.no_update else "not configured")
    if found.link is not None:
        yield ""
        yield from _link(found.link)
    if found.escalation is not None:
        yield ""
        yield from escalation_rows(found.escalation)


def _link(found: LinkStatus) -> Iterator[str]:
    """The broker, what waits for it, and what did not get there."""
    since = duration_text(found.since_s)
    if found.connected:
        version = "5" if found.protocol >= 5 else "3.1.1"
        yield _row("link", f"connected to {found.broker} for {since}, MQTT {version}")
    else:
        yield _row("link", f"no connection to {found.broker} for {since}")
        if found.last_loss:
            yield _row("", f"! {found.last_loss}")
    if found.waiting_events or found.waiting_reports:
        size = size_text(found.waiting_bytes)
        yield _row("waiting", f"{found.waiting_events:,} events, {found.waiting_reports:,} reports, {size}")
    lost = {
        "reports dropped, the disk's share was full": found.dropped_reports,
        "answers not sent": found.dropped_results,
        "messages set aside, the broker does not take them": found.set_aside,
        f"messages not understood ({', '.join(found.bad_messages)})": sum(found.bad_messages.values()),
        f"faults of the link ({', '.join(found.faults)})": sum(found.faults.values()),
    }
    for what, count in lost.items():
        if count:
            yield _row("", f"{count:,} {what}; since the start")


def _camera(camera: CameraStatus) -> str:
    losses = "".join(
        f", {sum(counts.values()):,} {word} ({', '.join(counts)})"
        for word, counts in (("dropped", camera.dropped), ("failed", camera.failed))
        if counts
    )
    answered = f"{camera.ok:,} of {camera.frames_in:,} answered"
    again = ""
    if camera.reused or camera.checks:
        wrong = f"{camera.checks_wrong:,} of {camera.checks:,} checks found another answer"
        again = f", {camera.reused:,} given again ({wrong})"
    return f"{camera.camera}: {camera.state}, {camera.fps:.1f} fps, {answered}{losses}{again}"


def update_rows(found: UpdateStatus, releases: dict[str, str]) -> Iterator[str]:
    """The part of the screen that is about updates; `releases` has names by digest."""

    def name(sha256: str) -> str:
        return releases.get(sha256, f"{sha256[:12]}…")

    yield _row("update", found.phase.value.replace("_", " "))
    if found.trouble:
        yield _row("", f"! {found.trouble}")
    if found.looking_s is not None:
        yield _row("", f"looking for {duration_text(found.looking_s)}")
    for label, model in (("active", found.active), ("previous", found.previous)):
        if model is not None:
            yield _row(label, f"{name(model.sha256)}  {model.sha256[:12]}…")
    yield from _candidate(found, name)
    if found.last_result is not None:
        yield _row("last", result_text(found.last_result, name))
    for number, entry in enumerate(found.blacklist):
        yield _row("" if number else "refused", f"{name(entry.sha256)} ({entry.cause.value})")
    if found.next_look_s is not None:
        yield _row("next look", f"in {duration_text(found.next_look_s)}")
    for note in found.notes:
        yield _row("note", note)


def _candidate(found: UpdateStatus, name: Callable[[str], str]) -> Iterator[str]:
    if found.candidate is None:
        return
    yield _row("candidate", f"{name(found.candidate.sha256)} by rollout {found.candidate.rollout}")
    if found.changes:
        yield _row("", f"! {found.changes}")
    if found.bytes_needed:
        yield _row("fetched", progress_text(found))
    if found.watched is not None:
        yield from _watched(found.watched)
    if found.cause is not None:
        yield _row("cause", f"{found.cause.value}{': ' if found.detail else ''}{found.detail}")
    elif found.detail and found.phase is Phase.DEFERRED:
        yield _row("put off", found.detail)
    if found.next_try_s is not None:
        yield _row("next try", f"in {duration_text(found.next_try_s)}")


def _watched(found: Watched) -> Iterator[str]:
    """A window that is open: how far it is, the figures beside their limits, and what it still waits for."""
    seconds = f"{found.elapsed_s:.0f} of {found.min_s:.0f} s"
    yield _row("judged", f"{found.frames:,} of {found.min_frames:,} frames, {seconds}")
    figures = []
    if found.failed_share is not None:
        figures.append(f"{found.failed_share:.1%} failed (at most {found.failed_limit:.1%})")
    if found.p95_ms is not None:
        before = "nothing known of before"
        if found.p95_before_ms:
            ratio = found.p95_ms / found.p95_before_ms
            limit = f"{found.latency_ratio_limit:.2f} times"
            before = f"{ratio:.2f} times the {found.p95_before_ms:.1f} ms of before, at most {limit}"
        figures.append(f"p95 {found.p95_ms:.1f} ms ({before})")
    if found.disagreed_share is not None and found.disagreed_limit is not None:
        figures.append(f"{found.disagreed_share:.1%} disagree (at most {found.disagreed_limit:.1%})")
    if found.answers_vary is not None:
        figures.append("answers vary" if found.answers_vary else "! the same answer to everything")
    if found.reached is not None:
        figures.append(f"update server {'reached' if found.reached else 'not reached'}")
    for figure in figures:
        yield _row("", figure)
    for number, what in enumerate(found.lacking):
        yield _row("" if number else "lacking", what)


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_COLUMNS}} {text}"
