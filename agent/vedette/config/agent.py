"""The configuration of `vedette-agent run`: its schema, its rules, and reading it from a file."""

from __future__ import annotations

import math
import os
import re
import select
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.camera import CameraConfig, home_problems, is_path
from vedette.config.credentials import has_written_password
from vedette.config.document import parse_document
from vedette.config.escalation import EscalationConfig
from vedette.config.link import HttpConfig, MqttConfig, TelemetryConfig
from vedette.config.notation import Name, Seconds, SizeBytes, expand_variables
from vedette.config.updates import ControlConfig, UpdateConfig
from vedette.config.yaml_tree import MAX_DOCUMENT_BYTES
from vedette.config.yaml_tree import Path as KeyPath
from vedette.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vedette.config.yaml_tree import Problem

MIN_RING_BYTES = 1_000_000
PIPE_WAIT_S = 5.0
PIPE_SLICE_S = 0.1

_ACCELERATOR = re.compile(r"[a-z][a-z0-9_-]*")
_PLUGIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")


class DeviceConfig(msgspec.Struct, frozen=True):
    """Who this box is, in results, telemetry and topics."""

    id: Name = "vedette"
    site: Name | None = None
    labels: dict[Name, str] = {}


class ModelConfig(msgspec.Struct, frozen=True):
    """The model to run; `factory` is the bundle folder that came with the box."""

    factory: Annotated[str, Meta(min_length=1)]
    name: Name | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A path that would not be found."""
        return home_problems("factory", fields)


class RestartConfig(msgspec.Struct, frozen=True):
    """How often the engine worker may be restarted: `budget` times in `window_s`, with growing pauses."""

    window_s: Seconds = 60.0
    budget: Annotated[int, Meta(ge=1, le=1000)] = 5
    backoff_min_s: Seconds = 0.2
    backoff_max_s: Seconds = 30.0

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """Pauses that shrink."""
        low, high = fields.get("backoff_min_s"), fields.get("backoff_max_s")
        if low is not None and high is not None and low > high:
            yield ("backoff_min_s",), f"{low:g} is above `backoff_max_s` {high:g}"


class EngineConfig(msgspec.Struct, frozen=True):
    """Which accelerators are tried in which order, and when the worker counts as stuck."""

    accelerators: Annotated[tuple[str, ...], Meta(min_length=1)] = ("cpu",)
    on_fallback: Literal["fail", "warn", "allow"] = "warn"
    threads: Annotated[int, Meta(ge=1, le=1024)] | Literal["auto"] = "auto"
    plugins: dict[str, str] = {}
    options: dict[str, str] = {}
    load_timeout_s: Seconds = 600.0
    hang_timeout_s: Seconds = 10.0
    restart: RestartConfig = RestartConfig()

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """An odd ladder, and plugins that cannot be found."""
        ladder = fields.get("accelerators", ())
        for index, rung in enumerate(ladder):
            if not _ACCELERATOR.fullmatch(rung):
                yield (
                    ("accelerators", str(index)),
                    f"`{rung}` is no accelerator; write cpu, cuda, ...",
                )
            elif rung in ladder[:index]:
                yield ("accelerators", str(index)), f"`{rung}` is listed twice"
        for name, target in fields.get("plugins", {}).items():
            if not _PLUGIN.fullmatch(target):
                yield ("plugins", name), f"`{target}` is not `module:factory`"


class LimitsConfig(msgspec.Struct, frozen=True):
    """Upper bounds; `ring_memory` is for the frames of all cameras together."""

    ring_memory: SizeBytes = 256_000_000

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A bound that no frame fits in."""
        size = fields.get("ring_memory")
        if size is not None and size < MIN_RING_BYTES:
            yield ("ring_memory",), f"{size:,} bytes hold no frames; give at least 1MB"


class ResultsConfig(msgspec.Struct, frozen=True):
    """Where the result lines go: `stdout` or a file."""

    to: Annotated[str, Meta(min_length=1)] = "stdout"

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A path that would not be found."""
        return home_problems("to", fields)


class AgentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the file."""

    device: DeviceConfig = DeviceConfig()
    state_dir: Annotated[str, Meta(min_length=1)] | None = None
    model: ModelConfig
    engine: EngineConfig = EngineConfig()
    cameras: Annotated[dict[Name, CameraConfig], Meta(max_length=64)]
    limits: LimitsConfig = LimitsConfig()
    results: ResultsConfig = ResultsConfig()
    update: UpdateConfig | None = None
    mqtt: MqttConfig | None = None
    telemetry: TelemetryConfig = TelemetryConfig()
    http: HttpConfig | None = None
    control: ControlConfig = ControlConfig()
    escalation: EscalationConfig | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """Inputs that only one camera can read; updates without a place to keep them."""
        yield from _missing_neighbours(fields)
        yield from home_problems("state_dir", fields)
        if fields.get("update") is not None:
            if "state_dir" in fields and fields["state_dir"] is None:
                yield ("update",), "needs `state_dir`: models and the update record are kept there"
            model = fields.get("model")
            if model is not None and model.name is None:
                yield ("update",), "needs `model.name`: the repository knows models by name"
        cameras: dict[str, CameraConfig] = fields.get("cameras", {})
        readers: dict[str, str] = {}
        for name, camera in cameras.items():
            exclusive = camera.reads_stdin or camera.input.startswith("/dev/")
            key = "standard input" if camera.reads_stdin else camera.input
            first = readers.setdefault(key, name)
            if exclusive and first != name:
                yield ("cameras", name, "input"), f"{key} is already read by camera `{first}`"


def _missing_neighbours(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Sections that make no sense without another one."""
    without_state = "state_dir" in fields and fields["state_dir"] is None
    if fields.get("mqtt") is not None and without_state:
        yield ("mqtt",), "needs `state_dir`: what waits to be sent is kept there"
    if fields.get("http") is not None and without_state and fields.get("control") == ControlConfig():
        yield ("http",), "needs `state_dir` or `control.socket`: the door asks the daemon over its socket"
    if "cameras" in fields and not fields["cameras"] and "http" in fields and fields["http"] is None:
        yield ("cameras",), "names none; only with an `http` section others may bring the frames"
    if fields.get("http") is not None and "http" in fields.get("cameras", {}):
        yield ("cameras", "http"), "is the name of the HTTP door's own frames; choose another"
    yield from _door_problems(fields)
    yield from _escalation_problems(fields)
    update = fields.get("update")
    if update is not None and "mqtt" in update.via and "mqtt" in fields and fields["mqtt"] is None:
        yield ("update", "via"), "names mqtt, and there is no `mqtt` section"


def _escalation_problems(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """Cameras that there are none of; a queue or a training set without a place."""
    asked: EscalationConfig | None = fields.get("escalation")
    if asked is None:
        return
    cameras: dict[str, CameraConfig] | None = fields.get("cameras")
    for key in ("quiet", "urgent"):
        for index, name in enumerate(getattr(asked, key)):
            if cameras is not None and name not in cameras:
                yield ("escalation", key, str(index)), f"there is no camera `{name}`"
    if asked.training is not None and "state_dir" in fields and fields["state_dir"] is None:
        yield ("escalation", "training"), "needs `state_dir`: samples are kept there"


def _door_problems(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """More memory for waiting requests than there is for all frames."""
    http, limits = fields.get("http"), fields.get("limits")
    if http is None or limits is None:
        return
    needed_bytes = http.waiting * http.max_picture
    if needed_bytes > limits.ring_memory:
        fault = (
            f"{http.waiting} waiting requests of {http.max_picture:,} bytes are {needed_bytes:,} bytes, "
            f"`limits.ring_memory` is {limits.ring_memory:,}; lower `waiting` or `max_picture`, or raise it"
        )
        yield ("http",), fault


class AgentConfig(AgentDocument, frozen=True, kw_only=True):
    """A checked configuration; paths are absolute. `notes` are remarks for a person, not errors."""

    origin: Path
    notes: tuple[str, ...] = ()

    @property
    def control_socket(self) -> Path | None:
        """Where the daemon answers; None when it has neither a socket nor a state folder."""
        if self.control.socket is not None:
            return Path(self.control.socket)
        return None if self.state_dir is None else Path(self.state_dir) / "control.sock"


def parse_config(text: str, *, origin: Path, environ: Mapping[str, str]) -> AgentConfig:
    """Check a configuration and resolve its paths against the folder of `origin`. Touches no file.

    Raises:
        ConfigError: `problems` lists everything that is wrong, with line and key path.
    """
    notes: list[str] = []

    def expand(path: KeyPath, raw: str) -> str:
        if path[:1] == ("cameras",) and path[-1] == "input" and has_written_password(raw):
            notes.append(
                f"{'.'.join(path)}: the password stands in the file; "
                "write ${NAME} there and set the variable in the environment of the service"
            )
        if path == ("escalation", "key") and raw and "${" not in raw:
            notes.append(
                "escalation.key: the key stands in the file; write it into a file of its own and name that "
                "as `key_file`, or write ${NAME} and set the variable in the environment of the service"
            )
        return expand_variables(raw, environ)

    document = parse_document(text, AgentDocument, origin=str(origin), expand=expand)
    # What a shell hands over as /dev/fd/63 lies in no folder that anybody means.
    folder = Path.cwd() if str(origin).startswith(("/dev/", "/proc/")) else origin.absolute().parent

    def rooted(path: str) -> str:
        return str(folder / path)

    return AgentConfig(
        device=document.device,
        state_dir=None if document.state_dir is None else rooted(document.state_dir),
        model=msgspec.structs.replace(document.model, factory=rooted(document.model.factory)),
        engine=document.engine,
        cameras={
            name: msgspec.structs.replace(camera, input=rooted(camera.input))
            if is_path(camera.input)
            else camera
            for name, camera in document.cameras.items()
        },
        limits=document.limits,
        results=document.results
        if document.results.to == "stdout"
        else ResultsConfig(to=rooted(document.results.to)),
        update=None if document.update is None else document.update.rooted(rooted),
        mqtt=None if document.mqtt is None else document.mqtt.rooted(rooted),
        telemetry=document.telemetry,
        http=document.http,
        control=ControlConfig(None if document.control.socket is None else rooted(document.control.socket)),
        escalation=None if document.escalation is None else document.escalation.rooted(rooted),
        origin=origin,
        notes=tuple(notes),
    )


def load_config(path: Path, environ: Mapping[str, str]) -> AgentConfig:
    """Read and check a configuration file.

    Args:
        path: The YAML file; relative paths in it count from its folder.
        environ: Where `${NAME}` is looked up, normally `os.environ`.

    Raises:
        ConfigError: The file cannot be read, or is wrong.
    """
    return parse_config(read_config_text(path), origin=path, environ=environ)


def read_config_text(path: Path, *, pipe_wait_s: float = PIPE_WAIT_S) -> str:
    """The text of a configuration file, or of a pipe that ends within `pipe_wait_s`.

    Raises:
        ConfigError: Missing, unreadable, neither file nor pipe, too large, or not UTF-8.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode):
            raw = _read_pipe(path, pipe_wait_s)
        elif stat.S_ISREG(mode):
            with path.open("rb") as file:
                raw = file.read(MAX_DOCUMENT_BYTES + 1)
        else:
            raise ConfigError(f"{path} is not a file", cure="give the path of a YAML file")
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist", cure="check the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{path} cannot be read: {reason}", cure="check the path and its permissions"
        ) from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} is not UTF-8 text",
            problems=(f"line {line}: byte 0x{raw[error.start]:02x} does not belong there",),
            cure="save the file as UTF-8",
        ) from error


def _read_pipe(path: Path, wait_s: float) -> bytes:
    """What a pipe gives until its writer closes it, such as the shell's `<(...)`.

    Raises:
        ConfigError: Nothing came, or no end, within `wait_s`.
        OSError: It cannot be opened or read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        raw = b""
        for _ in range(math.ceil(wait_s / PIPE_SLICE_S)):
            came = waiting.poll(PIPE_SLICE_S * 1000)
            try:
                piece = os.read(fd, MAX_DOCUMENT_BYTES)
            except BlockingIOError:
                continue  # its writer thinks
            raw += piece
            if len(raw) > MAX_DOCUMENT_BYTES or (not piece and (raw or came)):
                return raw
    finally:
        os.close(fd)
    raise ConfigError(
        f"{path} did not come to an end within {wait_s:g} s", cure="see what became of its writer"
    )
