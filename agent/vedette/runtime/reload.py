"""A configuration that is read anew while the agent runs: what changes at once, and what waits for a restart.

The file is read and judged on a thread of its own, since an input may lie on a disk that hangs; the
supervisor takes over what came of it. A file that is wrong changes nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from vedette.errors import InternalError, VedetteError
from vedette.runtime.swap_table import SwapState

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.runtime.daemon import Daemon
    from vedette.runtime.plan import CameraPlan, EscalationPlan, RunPlan

# What a plan's field is called in the file.
_KEYS = {
    "worker": "`model` or `engine`",
    "restart": "`engine.restart`",
    "ring_memory_bytes": "`limits.ring_memory`",
    "load_timeout_s": "`engine.load_timeout_s`",
    "hang_timeout_s": "`engine.hang_timeout_s`",
    "results_to": "`results.to`",
    "outlives_model": "`update`",
    "device": "`device`",
    "control_socket": "`control` or `state_dir`",
    "update": "`update`",
    "link": "`mqtt` or `telemetry`",
}


class Differences(NamedTuple):
    """From one plan to the next; `restart` names the sections that are not taken over."""

    added: tuple[CameraPlan, ...]
    changed: tuple[CameraPlan, ...]
    removed: tuple[str, ...]
    escalation: EscalationPlan | None
    interval_s: float | None
    restart: tuple[str, ...]

    def words(self) -> str:
        """What was done, for the log and the status."""
        cameras = {
            "added": [plan.name for plan in self.added],
            "changed": [plan.name for plan in self.changed],
            "removed": [*self.removed],
        }
        parts = [f"cameras {what}: {', '.join(names)}" for what, names in cameras.items() if names]
        if self.escalation is not None:
            parts.append("`escalation` taken over")
        if self.interval_s is not None:
            parts.append(f"telemetry every {self.interval_s:g} s")
        if self.restart:
            parts.append(f"waits for a restart: {', '.join(self.restart)}")
        return "; ".join(parts) or "nothing has changed"


def differences(old: RunPlan, new: RunPlan) -> Differences:
    """Compare two plans. Pure."""
    before = {plan.name: plan for plan in old.cameras if plan.door is None}
    after = {plan.name: plan for plan in new.cameras if plan.door is None}
    restart = {key: None for field, key in _KEYS.items() if _plain(old, field) != _plain(new, field)}
    doors = [[plan for plan in one.cameras if plan.door is not None] for one in (old, new)]
    if doors[0] != doors[1]:
        restart["`http`"] = None
    escalation = new.escalation if new.escalation != old.escalation else None
    if (old.escalation is None) != (new.escalation is None):
        restart["`escalation`"], escalation = None, None
    interval_s = None
    if old.link is not None and new.link is not None:
        wanted_s = new.link.telemetry.interval_s
        interval_s = wanted_s if wanted_s != old.link.telemetry.interval_s else None
    return Differences(
        added=tuple(plan for name, plan in after.items() if name not in before),
        changed=tuple(plan for name, plan in after.items() if name in before and plan != before[name]),
        removed=tuple(name for name in before if name not in after),
        escalation=escalation,
        interval_s=interval_s,
        restart=tuple(restart),
    )


def running(old: RunPlan, new: RunPlan, changes: Differences) -> RunPlan:
    """What runs once `changes` are carried out; what waits for a restart is as it was. Pure."""
    link = old.link
    if link is not None and changes.interval_s is not None:
        link = replace(link, telemetry=replace(link.telemetry, interval_s=changes.interval_s))
    doors = (plan for plan in old.cameras if plan.door is not None)
    return replace(
        new,
        **{field: getattr(old, field) for field in _KEYS if field != "link"},
        cameras=(*(plan for plan in new.cameras if plan.door is None), *doors),
        escalation=old.escalation if changes.escalation is None else changes.escalation,
        link=link,
    )


def _plain(plan: RunPlan, field: str) -> object:
    """A field without what can be taken over."""
    value = getattr(plan, field)
    if field == "link" and value is not None:
        return replace(value, telemetry=replace(value.telemetry, interval_s=1.0))
    return value


class Reloader:
    """Asked by a signal, driven by the supervisor's ticks."""

    def __init__(
        self,
        plan: RunPlan,
        read: Callable[[], RunPlan],
        *,
        begins: Callable[[], None],
        ended: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            plan: What runs.
            read: Reads the file and judges it; on a thread of its own.
            begins: Told when it is asked.
            ended: Told what became of it.
            wake: Has the next tick soon; any thread.
        """
        self._plan = plan
        self._read = read
        self._begins = begins
        self._ended = ended
        self._wake = wake
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        self._found: RunPlan | VedetteError | None = None

    def ask(self) -> None:
        """Read it anew; any thread, and signal handlers."""
        self._asked.set()

    def tick(self, daemon: Daemon, *, interval: Callable[[float], None]) -> None:
        """Go on with what was asked; on the supervisor's thread."""
        if self._thread is None:
            if self._asked.is_set():
                self._asked.clear()
                self._begins()
                self._thread = threading.Thread(target=self._look, name="reload", daemon=True)
                self._thread.start()
            return
        found = self._found
        if found is None or daemon.swap.state is not SwapState.IDLE:  # cameras may be changing hands
            return
        self._thread, self._found = None, None
        if isinstance(found, VedetteError):
            self._ended(f"the configuration is not taken over, nothing has changed: {found.diagnostics()}")
            return
        changes = differences(self._plan, found)
        daemon.take_over(changes)
        if changes.interval_s is not None:
            interval(changes.interval_s)
        self._plan = running(self._plan, found, changes)
        self._ended(f"the configuration was read anew: {changes.words()}")

    def _look(self) -> None:
        try:
            self._found = self._read()
        except VedetteError as error:
            self._found = error
        except Exception as error:  # noqa: BLE001 - whatever it was, the agent must hear of an end
            self._found = InternalError(f"reading the configuration failed: {type(error).__name__}: {error}")
        self._wake()
