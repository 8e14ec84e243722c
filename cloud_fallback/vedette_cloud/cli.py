"""The `vedette-cloud` command. What takes time is imported when it is needed."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from vedette import __version__
from vedette.errors import ConfigError, InternalError, UnavailableError, UsageError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette_cloud.server import Serving
    from vedette_cloud.settings import ServerSettings
    from vedette_cloud.tokens import Tokens

INTERRUPTED = 130
MAX_TOKEN_FILE_BYTES = 16 << 20
# OpenCV reads its limit once, when it is loaded: a file of some bytes may unpack to gigabytes.
PIXELS_VARIABLE = "OPENCV_IO_MAX_IMAGE_PIXELS"


class Ready(msgspec.Struct, frozen=True):
    """The line on standard output of `--json`, once the model answers."""

    ready: bool
    address: str
    model: str
    version: str
    sha256: str
    task: str
    accelerator: str
    engine: str
    processes: int
    batches: tuple[int, ...]
    pid: int


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vedette-cloud")
def cli() -> None:
    """Serve a large model to devices that are unsure.

    Exit codes: 0 fine, 2 usage, 65 bad bundle, 69 a needed thing is away, 70 our bug, 78 configuration.
    """


@cli.command()
@click.option("--model", "bundle", type=click.Path(path_type=Path), required=True, help="Folder of a bundle.")
@click.option("--listen", default="127.0.0.1:8500", show_default=True, help="HOST:PORT; port 0: a free one.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Processes of this machine, or replicas of Ray Serve.",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Or replicas, at most."
)
@click.option(
    "--least", type=click.IntRange(1, 256), default=1, show_default=True, help="Replicas, at least (ray)."
)
@click.option("--ray-address", help="Of a running Ray cluster, such as `auto`; default: start one here.")
@click.option(
    "--batch", type=click.IntRange(1, 128), default=8, show_default=True, help="Requests run together."
)
@click.option(
    "--batch-wait-ms",
    type=click.FloatRange(0, 1000),
    default=5.0,
    show_default=True,
    help="How long a request waits for others.",
)
@click.option("--tokens", "token_file", type=click.Path(path_type=Path), help="Lines `TOKEN DEVICE`.")
@click.option("--per-minute", type=click.IntRange(1), help="Requests of a device in any minute.")
@click.option("--per-day", type=click.IntRange(1), help="Requests of a device in any 24 hours.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain, PEM; needs --tls-key.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key, PEM.")
@click.option(
    "--timeout-s", type=click.FloatRange(0.1, 600), default=30.0, show_default=True, help="For an answer."
)
@click.option(
    "--max-body-mb", type=click.IntRange(1, 1024), default=32, show_default=True, help="Of a request."
)
@click.option(
    "--max-frame-mb", type=click.IntRange(1, 1024), default=64, show_default=True, help="Decoded picture."
)
@click.option(
    "--queue-mb", type=click.IntRange(1, 65536), default=256, show_default=True, help="Waiting frames."
)
@click.option(
    "--accelerator", "accelerators", multiple=True, default=("cpu",), show_default=True, help="By preference."
)
@click.option(
    "--on-fallback",
    type=click.Choice(["fail", "warn", "allow"]),
    default="warn",
    show_default=True,
    help="When the first accelerator cannot be had.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="Engine threads; default: by the CPUs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line on standard output when ready.")
def serve(**options: object) -> None:
    """Serve a bundle over the Open Inference Protocol, and classifications as OpenAI's chat too."""
    as_json = bool(options.pop("as_json"))
    settings = settings_from(msgspec.convert(options, Options, strict=False, dec_hook=_path))
    from vedette_cloud.server import run_server  # noqa: PLC0415 - loads OpenCV, whose limit is set now

    def ready(serving: Serving) -> None:
        _say(describe(settings, serving))
        if as_json:
            click.echo(msgspec.json.encode(_ready(settings, serving)).decode())

    run_server(settings, say=_say, ready=ready)


class Options(msgspec.Struct, frozen=True):
    """The options of `serve`, as click names them."""

    bundle: Path
    listen: str
    engine: str
    processes: int
    least: int
    ray_address: str | None
    batch: int
    batch_wait_ms: float
    token_file: Path | None
    per_minute: int | None
    per_day: int | None
    tls_cert: Path | None
    tls_key: Path | None
    timeout_s: float
    max_body_mb: int
    max_frame_mb: int
    queue_mb: int
    accelerators: tuple[str, ...]
    on_fallback: str
    threads: int | None


def settings_from(options: Options) -> ServerSettings:
    """Check what belongs together, and read the token file.

    Raises:
        UsageError: Options that exclude or need each other.
        ConfigError: The token file is wrong.
    """
    os.environ[PIXELS_VARIABLE] = str(options.max_frame_mb << 20)
    from vedette.engine.messages import WorkerSpec  # noqa: PLC0415 - slow to import
    from vedette.engine.port import OnFallback  # noqa: PLC0415 - as above
    from vedette.engine.threads import granted_threads  # noqa: PLC0415 - as above
    from vedette_cloud.batching import BatchLimits  # noqa: PLC0415 - as above
    from vedette_cloud.inference_service import RequestLimits  # noqa: PLC0415 - as above
    from vedette_cloud.listening import Certificate, parse_address  # noqa: PLC0415 - as above
    from vedette_cloud.messages import ChildSpec  # noqa: PLC0415 - as above
    from vedette_cloud.settings import ServerSettings  # noqa: PLC0415 - as above

    if (options.tls_cert is None) != (options.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", cure="give both, or neither")
    if options.least > options.processes:
        raise UsageError("--least is above --processes", cure="--processes is the most replicas")
    if options.ray_address is not None and options.engine != "ray":
        raise UsageError("--ray-address needs --engine ray", cure="add it, or leave the address out")
    address = parse_address(options.listen)
    tokens = None if options.token_file is None else read_tokens(options.token_file)
    if tokens is None and not address.is_private:
        raise UsageError(
            f"--listen {options.listen} is open to other machines, and nobody is asked who they are",
            cure="add --tokens FILE, or listen on 127.0.0.1",
        )
    worker = WorkerSpec(
        bundle=str(options.bundle.absolute()),
        accelerators=tuple(name.lower() for name in options.accelerators),
        on_fallback=OnFallback(options.on_fallback),
        threads=options.threads or granted_threads("auto"),
    )
    return ServerSettings(
        ChildSpec(worker, options.batch),
        address,
        BatchLimits(options.batch, round(options.batch_wait_ms * 1e6), options.queue_mb << 20),
        RequestLimits(options.max_body_mb << 20, options.max_frame_mb << 20, options.timeout_s),
        options.processes,
        options.least,
        tokens,
        options.per_minute,
        options.per_day,
        None
        if options.tls_cert is None or options.tls_key is None
        else Certificate(options.tls_cert, options.tls_key),
        with_ray=options.engine == "ray",
        ray_address=options.ray_address,
    )


def read_tokens(path: Path) -> Tokens:
    """Read a token file.

    Raises:
        ConfigError: It cannot be read, or says what makes no sense.
    """
    from vedette_cloud.tokens import parse_tokens  # noqa: PLC0415 - slow to import

    try:
        with path.open("rb") as file:
            content = file.read(MAX_TOKEN_FILE_BYTES + 1)
        if len(content) > MAX_TOKEN_FILE_BYTES:
            raise ConfigError(f"the token file {path} has over {MAX_TOKEN_FILE_BYTES} bytes")
        text = content.decode("ascii")
    except OSError as error:
        raise ConfigError(
            f"the token file {path} cannot be read: {error.strerror}", cure="correct --tokens, or its mode"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the token file {path} is no ASCII text") from error
    return parse_tokens(text, path.name)


def describe(settings: ServerSettings, serving: Serving) -> str:
    """For people: what is served where, to whom, and how an agent asks it."""
    described = serving.loaded.description
    model, report = described.model, described.engine
    name = "" if model is None else model.name
    runs = "" if report is None else f" on {report.effective} ({report.runtime}, threads {report.threads})"
    sizes = ", ".join(map(str, serving.loaded.sizes))
    together = f"{sizes} run as one, after {settings.batch.max_wait_ns / 1e6:g} ms at most"
    budget = [
        f"{limit:,} a {span}"
        for limit, span in ((settings.per_minute, "minute"), (settings.per_day, "day"))
        if limit is not None
    ]
    who = (
        "anybody on this machine, who share one budget"
        if settings.tokens is None
        else f"{len(settings.tokens.devices)} devices by their tokens"
    )
    lines = [
        f"{name} {'' if model is None else model.version} ({described.task}){runs}",
        f"  batches  {together if len(serving.loaded.sizes) > 1 else 'one request at a time'}",
        f"  for      {who}; {', '.join(budget) if budget else 'no budget'}",
        f"  at       {serving.address}/v2/models/{name}/infer   (Open Inference Protocol)",
        f"           {serving.address}/v1/chat/completions   (OpenAI's chat)",
        f"           {serving.address}/metrics, /healthz, /readyz",
        "  an agent asks it with, in its configuration:",
        "    escalation:",
        "      provider: oip",
        f"      url: {serving.address}",
        f"      model: {name}",
    ]
    if settings.tokens is not None:
        lines.append("      key_file: token-of-this-device")
    if serving.loaded.one_by_one:
        lines.insert(2, f"           {serving.loaded.one_by_one}")
    if settings.certificate is None and not settings.address.is_private:
        lines.insert(
            0, "WARNING: tokens and pictures cross the network unencrypted; give --tls-cert and --tls-key"
        )
    return "\n".join(lines)


def _ready(settings: ServerSettings, serving: Serving) -> Ready:
    described = serving.loaded.description
    model, report = described.model, described.engine
    if model is None or report is None:
        raise InternalError("a loaded model has no name or no accelerator")
    return Ready(
        ready=True,
        address=serving.address,
        model=model.name,
        version=model.version,
        sha256=model.sha256,
        task=described.task,
        accelerator=report.effective,
        engine="ray" if settings.with_ray else "local",
        processes=settings.processes,
        batches=serving.loaded.sizes,
        pid=os.getpid(),
    )


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, Path):
        return value
    raise NotImplementedError(kind)


def _say(text: str) -> None:
    click.echo(text, err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Errors become one clear message and the exit code of their family."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = cli.main(args=arguments, prog_name="vedette-cloud", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("vedette-cloud: interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code
        return _tell(error)
    return status if isinstance(status, int) else 0


def _tell(error: Exception) -> int:
    """Say what is wrong; what is none of the known families is our bug."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, VedetteError):
        _say(f"vedette-cloud: {error.diagnostics()}")
        return error.exit_code
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package and package not in {"vedette", "vedette_cloud"}:
        _say(f"vedette-cloud: needs the Python package {package}\n  cure: pip install 'vedette[cloud]'")
        return UnavailableError.exit_code
    traceback.print_exception(error)
    _say(f"vedette-cloud: this is a bug, please report it: {error!r}")
    return InternalError.exit_code
