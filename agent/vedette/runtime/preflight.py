"""What can be known of a configuration on this box before anything is opened or started."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.bundle.folder import SPEC_NAME, parse_spec
from vedette.config.document import line_index
from vedette.errors import BadInputError, BundleError, ConfigError
from vedette.runtime.compose import camera_plan
from vedette.source.package_files import SCHEME as PACKAGE_SCHEME
from vedette.source.registry import check_spec, kind_of
from vedette.wire.bundle import Task
from vedette.wire.pixels import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vedette.config.agent import AgentConfig
    from vedette.config.camera import CameraConfig
    from vedette.config.escalation import EscalationConfig
    from vedette.config.yaml_tree import Path as KeyPath
    from vedette.source.port import SourceSpec

STORE_NAME = "store"
MAX_SPEC_BYTES = 1 << 20
FROM_FILES = frozenset({"rawvideo", "y4m", "mjpeg", "pictures", "file"})


def placed(faults: Iterable[tuple[KeyPath, str]], text: str) -> list[str]:
    """Faults as people read them, with their lines in `text`."""
    lines = line_index(text)
    return [f"line {lines.get(path, 1)}: {'.'.join(path)}: {fault}" for path, fault in sorted(faults)]


def prepare_state_dir(config: AgentConfig) -> None:
    """Make the folder for what is kept between runs.

    Raises:
        ConfigError: It cannot be made or written to.
    """
    if config.state_dir is None:
        return
    folder = Path(config.state_dir)
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fault = "" if os.access(folder, os.W_OK | os.X_OK) else "no right to write there"
    except OSError as error:
        fault = error.strerror or str(error)
    if fault:
        raise ConfigError(
            f"state_dir: {folder} cannot be used: {fault}",
            cure="name a folder that the agent may write to, such as /var/lib/vedette, or leave the key out",
        )


def faults_on_this_box(config: AgentConfig) -> Iterator[tuple[KeyPath, str]]:
    """Whether what the configuration names is here: where, and what is wrong."""
    if config.update is None or not (Path(config.state_dir or "") / STORE_NAME).is_dir():
        yield from _factory_faults(Path(config.model.factory))
    kept = None if config.state_dir is None else Path(config.state_dir)
    if kept is not None and kept.exists() and not kept.is_dir():
        yield ("state_dir",), f"{shown(kept)} is no folder"
    if config.results.to != "stdout":
        yield from ((("results", "to"), fault) for fault in _result_faults(Path(config.results.to)))
    for name, camera in config.cameras.items():
        yield from _camera_faults(name, camera)
    if config.escalation is not None:
        yield from _escalation_faults(config.escalation, Path(config.model.factory))


def _escalation_faults(escalation: EscalationConfig, factory: Path) -> Iterator[tuple[KeyPath, str]]:
    """A model whose answers nobody can judge, and a secret that is here and cannot be read."""
    for key in ("key_file", "ca"):
        path = getattr(escalation, key)
        if path is not None and Path(path).exists() and not os.access(path, os.R_OK):
            yield ("escalation", key), f"no right to read {shown(path)}"
    try:
        with (factory / SPEC_NAME).open("rb") as file:
            task = parse_spec(file.read(MAX_SPEC_BYTES)).task
    except (OSError, BundleError):
        return  # said of the model
    if task is Task.RAW:
        fault = f"a model of task `{task.value}` has no answer that a large model could judge"
        yield ("escalation",), f"{fault}: leave the section out, or use a classifier or a detector"


def _factory_faults(factory: Path) -> Iterator[tuple[KeyPath, str]]:
    """Of the only model that there is; where others are stored, it is the last resort."""
    if not factory.is_dir():
        yield ("model", "factory"), f"{shown(factory)} is {'no folder' if factory.exists() else 'not here'}"
    elif not (factory / SPEC_NAME).is_file():
        yield ("model", "factory"), f"{shown(factory)} is no model bundle: it holds no {SPEC_NAME}"


def _camera_faults(name: str, camera: CameraConfig) -> Iterator[tuple[KeyPath, str]]:
    try:
        judge(camera_plan(name, camera).source)
    except ConfigError as error:
        for what in error.problems or (error.cause,):
            yield ("cameras", name), what
    except BadInputError as error:
        yield ("cameras", name, "input"), error.cause


def _result_faults(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield f"{shown(path)} is a folder"
    elif not path.parent.is_dir():
        yield f"there is no folder {shown(path.parent)}"


def judge(spec: SourceSpec) -> None:
    """Everything that can be known of a source without opening it.

    Raises:
        ConfigError: It makes no sense.
        BadInputError: Its file is not on this machine, or may not be read.
    """
    check_spec(spec)
    if spec.container == "rawvideo" and spec.pixel is not None:
        try:
            describe(
                spec.width, spec.height, spec.pixel, strides=spec.strides, padded_height=spec.padded_height
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
    kind, where = kind_of(spec)
    if kind not in FROM_FILES or spec.input == "-" or spec.input.startswith(PACKAGE_SCHEME):
        return
    if not os.path.exists(where):  # noqa: PTH110 - it may be a pattern
        if kind == "pictures" and not glob.glob(where, recursive=True):  # noqa: PTH207 - absolute patterns
            raise BadInputError(f"{where} names no file")
    elif not os.access(where, os.R_OK):
        raise BadInputError(f"no right to read {where}")


def shown(path: Path | str) -> str:
    """A path as people write it: without `..` and `.`."""
    return str(Path(path).resolve())
