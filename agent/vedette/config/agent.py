"""The configuration of `vedette-agent run`: its schema, its rules, and reading it from a file."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.document import parse_document
from vedette.config.notation import ByteSize, PictureSize, expand_variables, has_written_password
from vedette.config.yaml_tree import MAX_DOCUMENT_BYTES
from vedette.config.yaml_tree import Path as KeyPath
from vedette.errors import ConfigError

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Problems = Iterator[tuple[KeyPath, str]]
MIN_RING_BYTES = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NAME_RULE = "use 1 to 63 letters, digits, `_`, `-` and `.`, the first a letter or a digit"
_ACCELERATOR = re.compile(r"[a-z][a-z0-9_-]*")
_PLUGIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def is_name(text: str) -> bool:
    """Whether a name is safe in file names, labels and as one level of an MQTT topic."""
    return _NAME.fullmatch(text) is not None


def _at(key: str, problems: Iterator[str]) -> Problems:
    return (((key,), problem) for problem in problems)


def _home_problem(path: str | None) -> Iterator[str]:
    if path is not None and path.startswith("~"):
        yield "`~` is not filled in here; write the whole path, or `${HOME}`"


def is_path(camera_input: str) -> bool:
    """Whether an input is a path: not `-`, and no URL or other `scheme:`."""
    return camera_input != "-" and _SCHEME.match(camera_input) is None


class DeviceConfig(msgspec.Struct, frozen=True):
    """Who this box is, in results, telemetry and topics."""

    id: str = "vedette"
    site: str = ""
    labels: dict[str, str] = {}

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """Names that could not stand in a topic."""
        for key in ("id", "site"):
            value = fields.get(key, "")
            if value != "" and not is_name(value):
                yield (key,), f"`{value}` is no usable name: {_NAME_RULE}"
        if fields.get("id") == "":
            yield ("id",), f"must not be empty: {_NAME_RULE}"
        for label in fields.get("labels", {}):
            if not is_name(label):
                yield ("labels", label), f"is no usable name: {_NAME_RULE}"


class ModelConfig(msgspec.Struct, frozen=True):
    """The model to run; `factory` is the bundle folder that came with the box."""

    factory: Annotated[str, Meta(min_length=1)]
    name: str | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """A name that could not stand in a topic."""
        name = fields.get("name")
        if name is not None and not is_name(name):
            yield ("name",), f"`{name}` is no usable name: {_NAME_RULE}"
        yield from _at("factory", _home_problem(fields.get("factory")))


class RestartConfig(msgspec.Struct, frozen=True):
    """How often the engine worker may be restarted: `budget` times in `window_s`, with growing pauses."""

    window_s: Seconds = 60.0
    budget: Annotated[int, Meta(ge=1, le=1000)] = 5
    backoff_min_s: Seconds = 0.2
    backoff_max_s: Seconds = 30.0

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
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
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
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


class CameraConfig(msgspec.Struct, frozen=True):
    """One camera. `fps` caps the rate, null is no cap.

    `max_age_ms`: older frames are dropped; null never drops, `auto` is 500 for live sources and null for files.
    """

    input: Annotated[str, Meta(min_length=1)]
    format: Literal["y4m", "rawvideo", "mjpeg"] | None = None
    size: PictureSize | None = None
    pix_fmt: (
        Literal[
            "bgr24", "rgb24", "bgra", "gray8", "gray16le", "yuv420p", "yuv422p", "yuv444p", "nv12", "yuyv422"
        ]
        | None
    ) = None
    strides: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    padded_height: Annotated[int, Meta(ge=1)] | None = None
    matrix: Literal["bt601", "bt709"] | None = None
    range: Literal["limited", "full"] | None = None
    fps: Annotated[float, Meta(gt=0, le=1000)] | None = None
    priority: Annotated[int, Meta(ge=0, le=1000)] = 1
    max_age_ms: Annotated[float, Meta(gt=0)] | Literal["auto"] | None = "auto"
    live: bool | Literal["auto"] = "auto"
    loop: bool = False
    stall_s: Seconds = 10.0
    slots: Annotated[int, Meta(ge=3, le=64)] = 4

    @property
    def reads_stdin(self) -> bool:
        """Whether the frames come from standard input."""
        return self.input in _STDIN

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """Keys that are missing for this kind of input, and keys that would do nothing."""
        source, container = fields.get("input"), fields.get("format")
        if container == "rawvideo":
            for key in ("size", "pix_fmt"):
                if key in fields and fields[key] is None:
                    yield (key,), "is missing: raw video carries no header that tells it"
        elif "format" in fields:
            yield from _only_for_raw_video(fields)
        if source is None:
            return
        yield from _at("input", _home_problem(source))
        if fields.get("loop") and (source in _STDIN or "://" in source or source.startswith("/dev/")):
            yield ("loop",), "only a file can be played again"


def _only_for_raw_video(fields: Mapping[str, Any]) -> Problems:
    device = str(fields.get("input", "")).startswith("/dev/") and fields["format"] is None
    for key in ("strides", "padded_height", *(() if device else ("size", "pix_fmt"))):
        if fields.get(key):
            yield (key,), "does nothing here: only `format: rawvideo` needs to be told"


class LimitsConfig(msgspec.Struct, frozen=True):
    """Upper bounds; `ring_memory` is for the frames of all cameras together."""

    ring_memory: ByteSize = ByteSize(256_000_000)

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """A bound that no frame fits in."""
        size = fields.get("ring_memory")
        if size is not None and size < MIN_RING_BYTES:
            yield ("ring_memory",), f"{size:,} bytes hold no frames; give at least 1MB"


class ResultsConfig(msgspec.Struct, frozen=True):
    """Where the result lines go: `stdout` or a file."""

    to: Annotated[str, Meta(min_length=1)] = "stdout"

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """A path that would not be found."""
        return _at("to", _home_problem(fields.get("to")))


class AgentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the file."""

    device: DeviceConfig = DeviceConfig()
    state_dir: Annotated[str, Meta(min_length=1)] | None = None
    model: ModelConfig
    engine: EngineConfig = EngineConfig()
    cameras: Annotated[dict[str, CameraConfig], Meta(min_length=1, max_length=64)]
    limits: LimitsConfig = LimitsConfig()
    results: ResultsConfig = ResultsConfig()

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Problems:
        """Unusable names, and inputs that only one camera can read."""
        yield from _at("state_dir", _home_problem(fields.get("state_dir")))
        cameras: dict[str, CameraConfig] = fields.get("cameras", {})
        readers: dict[str, str] = {}
        for name, camera in cameras.items():
            if not is_name(name):
                yield ("cameras", name), f"`{name}` is no usable camera name: {_NAME_RULE}"
            exclusive = camera.reads_stdin or camera.input.startswith("/dev/")
            key = "standard input" if camera.reads_stdin else camera.input
            first = readers.setdefault(key, name)
            if exclusive and first != name:
                yield ("cameras", name, "input"), f"{key} is already read by camera `{first}`"


class AgentConfig(AgentDocument, frozen=True, kw_only=True):
    """A checked configuration; paths are absolute. `notes` are remarks for a person, not errors."""

    origin: Path
    notes: tuple[str, ...] = ()


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
        return expand_variables(raw, environ)

    document = parse_document(text, AgentDocument, origin=str(origin), expand=expand)
    folder = origin.absolute().parent

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


def read_config_text(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: Missing, unreadable, not a regular file, too large, or not UTF-8.
    """
    try:
        # A FIFO would block for ever in open(), so the kind is looked at first.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a file", cure="give the path of a YAML file")
        with path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
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
