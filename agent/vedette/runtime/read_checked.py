"""Reads a configuration and judges it on this box, every problem at once: form, sense, and what is here.

A file with a mistake in one camera is still asked whether the others' inputs exist: what is broken is taken
out, and the rest is judged as if that were all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from vedette.config.agent import parse_config, read_config_text
from vedette.config.document import DocumentError
from vedette.config.yaml_tree import parse_yaml
from vedette.errors import ConfigError
from vedette.runtime.preflight import faults_on_this_box, placed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vedette.config.agent import AgentConfig
    from vedette.config.yaml_tree import Path as KeyPath

# Each round takes at least one broken part out.
MAX_ROUNDS = 64
# What cannot be left out, and what stands for it while the rest is judged.
_STAND_INS: dict[str, Any] = {
    "model": {"factory": "/"},
    "cameras": {"stand-in": {"input": "synthetic:8x8"}},
}


def read_checked(file: Path, environ: Mapping[str, str]) -> AgentConfig:
    """The configuration of a file, fit for this box.

    Raises:
        ConfigError: It cannot be read, or is wrong; `problems` holds everything that was found.
    """
    text = read_config_text(file)
    try:
        config = parse_config(text, origin=file, environ=environ)
    except DocumentError as error:
        on_box = _faults_of_the_rest(text, error, file, environ)
        raise _together(file, [*error.problems, *on_box]) from error
    problems = placed(faults_on_this_box(config), text)
    if problems:
        raise _together(file, problems)
    return config


def _faults_of_the_rest(text: str, error: DocumentError, file: Path, environ: Mapping[str, str]) -> list[str]:
    """What is wrong on this box with the parts that are no problem by themselves."""
    tree: dict[str, Any] = parse_yaml(text, origin=str(file)).value
    taken_out: set[str] = set()
    paths = error.paths
    for _ in range(MAX_ROUNDS):
        for path in paths:
            _take_out(tree, path)
            taken_out.add(path[0] if path else "")
        for key, stand_in in _STAND_INS.items():
            if not tree.get(key):
                tree[key] = stand_in
                taken_out.add(key)
        try:
            config = parse_config(yaml.safe_dump(tree), origin=file, environ=environ)
        except DocumentError as next_error:
            paths = next_error.paths
            continue
        except ConfigError:
            return []
        known = {(*path[:2],) for path in error.paths}
        faults = [
            (path, what)
            for path, what in faults_on_this_box(config)
            if not (path[0] == "model" and "model" in taken_out) and path[:2] not in known
        ]
        return placed(faults, text)
    return []


def _take_out(tree: dict[str, Any], path: KeyPath) -> None:
    """Remove the deepest part that a problem's path leads to; that of a camera is the whole camera."""
    path = path[:2] if path[:1] == ("cameras",) else path[:1]
    here: Any = tree
    for key in path[:-1]:
        here = here.get(key) if isinstance(here, dict) else None
    if isinstance(here, dict) and path:
        here.pop(path[-1], None)


def _together(file: Path, problems: list[str]) -> ConfigError:
    ordered = sorted(dict.fromkeys(problems), key=_line_of)
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    return ConfigError(f"{file}: {count}", problems=tuple(ordered))


def _line_of(problem: str) -> int:
    number = problem.removeprefix("line ").partition(":")[0]
    return int(number) if number.isdecimal() else 0
