"""What the update driver is made of: put together once, from ports that the runtime or a test gives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedette.frame.ring import available_bytes
from vedette.update.background import in_thread
from vedette.update.box_facts import boot_id
from vedette.update.effects_fetching import Fetching
from vedette.update.effects_making import Making
from vedette.update.effects_serving import Serving
from vedette.update.interruption import Interruption
from vedette.update.kept_offer import KeptOffer
from vedette.update.limited_child import ChildProcesses
from vedette.update.looking import Looking
from vedette.update.outbox import Outbox
from vedette.update.planning import Planning
from vedette.update.preflight import Preflight
from vedette.update.reach import Reach
from vedette.update.replies import Replies
from vedette.update.settings import UpdateSettings
from vedette.update.space import DiskSpace
from vedette.update.startup import OUTBOX_NAME
from vedette.update.veto import Moment, no_objection

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.engine.messages import WorkerSpec
    from vedette.trust.wall_clock import WallClock
    from vedette.update.jobs import RunChild
    from vedette.update.looking import Road
    from vedette.update.plan import Box
    from vedette.update.ports import Background, Live
    from vedette.update.startup import OpenedState
    from vedette.update.veto import Objections


def _draw() -> Callable[[], float]:
    return random.Random().random  # noqa: S311 - jitter, not secrets


@dataclass(frozen=True, kw_only=True)
class DriverPorts:
    """The world as the driver sees it.

    `booted` is the bundle that the data plane began to load by itself, if `live` does that. `production` says
    which accelerator the serving model runs on; `draw` gives random numbers in [0, 1). `interruption` is the
    one that the fetchers listen to. `reach` asks whether the update server answers; without it nobody judges
    that in a trial. `background` is where looks, and questions of `reach`, wait for their network.
    `linked`: somebody takes results out of the outbox.
    """

    road: Road
    live: Live
    worker: WorkerSpec
    box: Box
    clock: Clock
    wall: WallClock
    settings: UpdateSettings = field(default_factory=UpdateSettings)
    veto: Callable[[], Objections] = no_objection
    draw: Callable[[], float] = field(default_factory=_draw)
    run_child: RunChild | None = None
    available_bytes: Callable[[], int] = available_bytes
    production: Callable[[], str | None] = lambda: None
    reach: Callable[[], bool] | None = None
    boot_id: str = field(default_factory=boot_id)
    space: DiskSpace | None = None
    interruption: Interruption = field(default_factory=Interruption)
    background: Background = in_thread
    linked: bool = True


def _reach(ask: Callable[[], bool], ports: DriverPorts) -> Reach:
    return Reach(ask, ports.clock, ports.draw, background=ports.background)


class DriverParts:
    """The parts, ready to be driven."""

    def __init__(self, opened: OpenedState, ports: DriverPorts) -> None:
        settings = ports.settings
        run_child = ports.run_child or ChildProcesses(ports.clock)
        self.opened = opened
        self.ports = ports
        self.outbox = Outbox(opened.state / OUTBOX_NAME, linked=ports.linked)
        kept = KeptOffer(opened.state / f"{opened.name}.offer")
        space = ports.space or DiskSpace(opened.root)
        self.replies = Replies()
        self.looking = Looking(
            ports.road,
            space=space,
            kept=kept,
            replies=self.replies,
            clock=ports.clock,
            background=ports.background,
        )
        self.serving = Serving(
            ports.live,
            opened.store,
            name=opened.name,
            factory_sha256=opened.factory_sha256,
            clock=ports.clock,
            settings=settings,
            booted=opened.first_bundle,
            reach=None if ports.reach is None else _reach(ports.reach, ports),
        )
        self.fetching = Fetching(opened.store, draw=ports.draw)
        self.making = Making(opened.store, run_child=run_child, timeout_s=settings.apply_timeout_s)
        self.preflight = Preflight(
            ports.worker,
            run_child=run_child,
            timeout_s=settings.preflight_timeout_s,
            available_bytes=ports.available_bytes,
            production=ports.production,
        )
        self.planning = Planning(
            self.making,
            self.serving,
            box=ports.box,
            space=space,
            moment=Moment(ports.wall, window=settings.window, veto=ports.veto),
            kept=kept,
            clock=ports.clock,
            draw=ports.draw,
        )
