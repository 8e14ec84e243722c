"""What arrives, understood or refused with a reason; nothing of it is believed. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeVar, get_args

import msgspec

from vedette.errors import BadInputError
from vedette.wire.plane import MAX_COMMAND_BYTES, Announcement, Command, CommandName
from vedette.wire.topics import ROOT

if TYPE_CHECKING:
    from vedette.mqtt.port import Arrived
    from vedette.wire.topics import DeviceTopics

MAX_DEPTH = 16
MAX_ID_LENGTH = 128
MAX_ANNOUNCEMENT_BYTES = 1024
MAX_SPREAD_S = 3600.0
_MAX_VERSION = 1 << 53
_Message = TypeVar("_Message", Command, Announcement)
_COMMANDS = frozenset(get_args(CommandName))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"


class BadMessageError(BadInputError):
    """A message that is not acted upon; `kind` is the stable word that it is counted under."""

    def __init__(self, cause: str, *, kind: str, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.kind = kind


class CommandRequest(msgspec.Struct, frozen=True):
    """A command as it came; `arrived_ns` is monotonic, since only the broker knows when it was sent."""

    name: str
    command: Command
    response_topic: str
    correlation: bytes
    arrived_ns: int


def parse_command(name: str, arrived: Arrived, topics: DeviceTopics, now_ns: int) -> CommandRequest:
    """A command that may be carried out.

    Raises:
        BadMessageError: It is the broker's memory, too large, broken, or nothing that we know.
    """
    if arrived.retained:
        raise BadMessageError(
            f"the command {name} was retained: it is the broker's memory, and maybe days old",
            kind="retained_command",
            cure="publish commands without the retain flag",
        )
    if len(arrived.payload) > MAX_COMMAND_BYTES:
        raise BadMessageError(
            f"{len(arrived.payload)} bytes of command, {MAX_COMMAND_BYTES} are the limit",
            kind="large_command",
        )
    if name not in _COMMANDS:
        raise BadMessageError(
            f"there is no command `{name[:64]}`",
            kind="unknown_command",
            cure=f"one of {', '.join(sorted(_COMMANDS))}",
        )
    command = _decode(arrived.payload, Command, "bad_command")
    if not 0 < len(command.id) <= MAX_ID_LENGTH:
        raise BadMessageError(
            f"the command's id has {len(command.id)} characters",
            kind="bad_command",
            cure=f"give each command its own id of 1 to {MAX_ID_LENGTH} characters",
        )
    return CommandRequest(name, command, response_topic(arrived, name, topics), arrived.correlation, now_ns)


def parse_announcement(payload: bytes) -> Announcement:
    """A hint that metadata changed, its numbers within reason.

    Raises:
        BadMessageError: It is broken.
    """
    if len(payload) > MAX_ANNOUNCEMENT_BYTES:
        raise BadMessageError(f"{len(payload)} bytes of announcement", kind="bad_announcement")
    said = _decode(payload, Announcement, "bad_announcement")
    versions = (said.timestamp_version, said.rollouts_version)
    if not all(0 <= version < _MAX_VERSION for version in versions):
        raise BadMessageError(f"versions {versions[0]:.6g}, {versions[1]:.6g}", kind="bad_announcement")
    if not math.isfinite(said.spread_s) or said.spread_s < 0:
        raise BadMessageError(f"a spread of {said.spread_s} s", kind="bad_announcement")
    # A hint may be late, but not for ever.
    return msgspec.structs.replace(said, spread_s=min(said.spread_s, MAX_SPREAD_S))


def response_topic(arrived: Arrived, name: str, topics: DeviceTopics) -> str:
    """Where an answer goes: where it is wanted, unless that is a topic that others act upon.

    Whoever may ask this device something must not speak to other devices through it.
    """
    wanted = arrived.response_topic
    own = wanted.startswith(f"{topics.branch}/rsp/")
    foreign = wanted.partition("/")[0] in {ROOT.partition("/")[0], "homeassistant"} or wanted.startswith("$")
    usable = 0 < len(wanted) <= 256 and not any(character in wanted for character in "+#\0")
    if usable and (own or not foreign):
        return wanted
    return topics.response(name if name in _COMMANDS else "unknown")


def depth_of(payload: bytes) -> int:
    """How deep JSON nests, were it valid; text in quotes does not count."""
    depth = deepest = 0
    for byte in _STRING.sub(b"", payload):
        if byte in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif byte in _CLOSING:
            depth -= 1
    return deepest


def _decode(payload: bytes, kind: type[_Message], word: str) -> _Message:
    """Decode JSON that may be anything.

    Raises:
        BadMessageError: It is not what it should be.
    """
    if depth_of(payload) > MAX_DEPTH:
        raise BadMessageError(f"it nests deeper than {MAX_DEPTH} levels", kind=word)
    try:
        return msgspec.json.decode(payload, type=kind)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadMessageError(
            f"it is no {kind.__name__}: {error}", kind=word, cure="send one object of JSON in UTF-8"
        ) from error
