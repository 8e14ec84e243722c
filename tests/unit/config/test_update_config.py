"""The `update` section: what it needs, and what is no repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.config.agent import AgentConfig, parse_config
from vedette.errors import ConfigError

BASE = """
state_dir: state
model: {name: traffic, factory: models/traffic}
cameras: {front: {input: clip.mp4}}
"""


def parse(update: str, base: str = BASE) -> AgentConfig:
    return parse_config(f"{base}update: {update}\n", origin=Path("/etc/vedette.yaml"), environ={})


def test_a_folder_and_a_root_become_absolute() -> None:
    """Relative paths count from the file's folder, here as everywhere."""
    update = parse('{metadata: repo, root: root.json, window: "02:00-05:00"}').update
    assert update is not None
    assert (update.metadata, update.root) == ("/etc/repo", "/etc/root.json")
    assert update.window == "02:00-05:00"


def test_a_url_stays_a_url() -> None:
    """Only paths are rooted."""
    config = parse("{metadata: 'https://models.example/repo/', root: root.json}")
    assert config.update is not None
    assert config.update.metadata == "https://models.example/repo/"
    assert config.control_socket == Path("/etc/state/control.sock")


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ("{metadata: 'ftp://x/', root: r}", "neither an http"),
        ("{metadata: repo}", "`root` is missing"),
        ("{metadata: repo, root: r, window: 2-5}", "in quotes"),
        ("{metadata: repo, root: r, window: '25:00-26:00'}", "in quotes"),
        ("{metadata: repo, root: r, via: [carrier-pigeon]}", "none of: http, mqtt"),
    ],
)
def test_what_is_no_update_section_is_said(update: str, words: str) -> None:
    """With line and key."""
    with pytest.raises(ConfigError) as refused:
        parse(update)
    assert any(words in problem and "update" in problem for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (BASE.replace("state_dir: state\n", ""), "state_dir"),
        (BASE.replace("name: traffic, ", ""), "model.name"),
    ],
)
def test_updates_need_a_place_and_a_name(base: str, words: str) -> None:
    """Without them an update could be neither kept nor found."""
    with pytest.raises(ConfigError) as refused:
        parse("{metadata: repo, root: r}", base)
    assert any(words in problem for problem in refused.value.problems)
