"""What the fleet may ask of this box over MQTT: a table of commands. Called on the link's command thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

import vedette
from vedette.errors import BadInputError, UnavailableError, VedetteError
from vedette.runtime.commands_bodies import shrink
from vedette.runtime.log import Level, LogLine
from vedette.wire.plane import CommandReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus
    from vedette.clock import Clock
    from vedette.runtime.commands_diagnosis import Diagnosis
    from vedette.runtime.commands_snapshot import Snapshots
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.log import Log
    from vedette.runtime.paused_cameras import PausedCameras
    from vedette.runtime.status import StatusDesk
    from vedette.runtime.updating import Updates
    from vedette.wire.plane import Command

    T = TypeVar("T", bound=msgspec.Struct)

# What a status does without first, where the broker takes small packets only.
STATUS_CUTS = (
    ("releases",),
    ("update", "blacklist"),
    ("update", "notes"),
    ("link",),
    ("engine",),
    ("cameras",),
)


_KINDS = {"str": "text", "int": "whole number"}


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command without arguments."""


class CameraArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which camera."""

    camera: str


class SnapshotArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which camera, and how wide the picture may be in pixels."""

    camera: str
    max_width: int | None = None


class LevelArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is to be said."""

    level: Literal["error", "warning", "info", "debug"]


class _Entry(NamedTuple):
    arguments: type[Any]
    carry_out: Callable[[Any], Any]


class AgentCommands:
    """Implements `link.port.Commands` over a daemon."""

    def __init__(
        self,
        daemon: Daemon,
        desk: StatusDesk,
        *,
        clock: Clock,
        log: Log,
        complete: Callable[[AgentStatus], AgentStatus],
        room_bytes: Callable[[], int],
        snapshots: Snapshots,
        diagnosis: Diagnosis,
        paused: PausedCameras,
        updates: Updates | None,
    ) -> None:
        """Prepare to carry commands out.

        Args:
            daemon: Of whom they are asked.
            desk: Where the supervisor does what it alone may do.
            clock: The monotonic one.
            log: Whose level can be set.
            complete: Adds what others than the daemon know to its status.
            room_bytes: How large the body of a reply may be just now.
            snapshots: Makes pictures.
            diagnosis: Puts together what helps to find a fault.
            paused: Remembers which cameras are.
            updates: None where none are configured.
        """
        self._daemon = daemon
        self._desk = desk
        self._clock = clock
        self._log = log
        self._complete = complete
        self._room_bytes = room_bytes
        self._snapshots = snapshots
        self._diagnosis = diagnosis
        self._paused = paused
        self._updates = updates
        self._table: dict[str, _Entry] = {
            "ping": _Entry(Nothing, self._ping),
            "status": _Entry(Nothing, self._status),
            "snapshot": _Entry(SnapshotArguments, self._snapshot),
            "diagnose": _Entry(Nothing, self._diagnose),
            "set-log-level": _Entry(LevelArguments, self._set_level),
            "pause-camera": _Entry(CameraArguments, self._pause),
            "resume-camera": _Entry(CameraArguments, self._resume),
            "check-updates": _Entry(Nothing, self._check),
        }

    def carry_out(self, name: str, command: Command) -> CommandReply:
        """Do it.

        Raises:
            BadInputError: There is no such command, or its arguments are wrong.
            VedetteError: Why it cannot be done.
        """
        entry = self._table.get(name)
        if entry is None:
            raise BadInputError(
                f"there is no command `{name[:64]}`", cure=f"one of {', '.join(sorted(self._table))}"
            )
        arguments = parse_arguments(name, command.arguments, entry.arguments)
        try:
            body = entry.carry_out(arguments)
        except VedetteError as error:
            self._log.say(LogLine(Level.INFO, f"command {name}: {error.cause}"))
            raise
        self._log.say(LogLine(Level.DEBUG, f"command {name}: done"))
        return CommandReply(id=command.id, ok=True, body=body)

    def _ping(self, _arguments: Nothing) -> dict[str, Any]:
        uptime_s = (self._clock.monotonic_ns() - self._daemon.started_ns) / 1e9
        return {"agent": vedette.__version__, "uptime_s": round(uptime_s, 3)}

    def _status(self, _arguments: Nothing) -> dict[str, Any]:
        status = self._complete(self._desk.ask(self._daemon))
        return shrink(msgspec.to_builtins(status), STATUS_CUTS, self._room_bytes())

    def _snapshot(self, arguments: SnapshotArguments) -> dict[str, Any]:
        if arguments.max_width is not None and not 16 <= arguments.max_width <= 16384:
            raise BadInputError(f"max_width: {arguments.max_width} pixels", cure="give 16 to 16384")
        return self._snapshots.take(arguments.camera, arguments.max_width, room_bytes=self._room_bytes())

    def _diagnose(self, _arguments: Nothing) -> dict[str, Any]:
        return self._diagnosis.put_together(room_bytes=self._room_bytes())

    def _set_level(self, arguments: LevelArguments) -> dict[str, Any]:
        before, self._log.level = self._log.level, Level(arguments.level)
        return {"level": arguments.level, "before": before.value, "until": "the agent's next start"}

    def _pause(self, arguments: CameraArguments) -> dict[str, Any]:
        return self._change_camera(arguments.camera, paused=True)

    def _resume(self, arguments: CameraArguments) -> dict[str, Any]:
        return self._change_camera(arguments.camera, paused=False)

    def _change_camera(self, name: str, *, paused: bool) -> dict[str, Any]:
        """The disk first: a camera that was paused stays so over a power cut."""
        fault = self._desk.look(self._daemon, lambda daemon, _now_ns: _pause_fault(daemon, name))
        if fault:
            raise BadInputError(fault, cure="`status` names the cameras; files and pipes cannot be paused")
        news = (name in self._paused.names) != paused
        self._paused.change(name, paused=paused)

        def change(daemon: Daemon, _now_ns: int) -> str:
            for camera in daemon.cameras:
                if camera.name == name:
                    (camera.pause if paused else camera.resume)()
            return "done"

        self._desk.look(self._daemon, change)
        if news:
            self._log.say(f"{name}: {'paused' if paused else 'resumed'}, as the fleet asks")
        return {"camera": name, "paused": paused}

    def _check(self, _arguments: Nothing) -> dict[str, Any]:
        if self._updates is None:
            raise UnavailableError(
                "this agent runs without an `update` section", cure="add one to its configuration"
            )
        return {"said": self._updates.check()}


def parse_arguments(name: str, given: dict[str, Any], wanted: type[T]) -> T:
    """The arguments of a command.

    Raises:
        BadInputError: One is unknown, missing, or of the wrong type.
    """
    try:
        return msgspec.convert(given, type=wanted)
    except msgspec.ValidationError as error:
        known = ", ".join(f"{field.name} ({_kind(field)})" for field in msgspec.structs.fields(wanted))
        cure = f"`{name}` takes {known}" if known else f"`{name}` takes no arguments"
        raise BadInputError(f"arguments of `{name}`: {error}", cure=cure) from error


def _kind(field: msgspec.structs.FieldInfo) -> str:
    words = [str(word) for word in get_args(field.type) if isinstance(word, str)]
    kinds = [kind.__name__ for kind in get_args(field.type) or (field.type,) if isinstance(kind, type)]
    named = ", ".join(words) or next(_KINDS[kind] for kind in kinds if kind in _KINDS)
    return named if field.required else f"{named}; may be left out"


def _pause_fault(daemon: Daemon, name: str) -> str:
    """Why this camera cannot be paused; on the supervisor's thread. Empty when it can."""
    camera = next((camera for camera in daemon.cameras if camera.name == name), None)
    if camera is None or camera.plan.door is not None:
        return f"there is no camera `{name[:64]}`"
    if camera.over:
        return f"camera {name} has ended"
    return "" if camera.pausable else f"camera {name} is no live camera: a pause would lose or repeat frames"
