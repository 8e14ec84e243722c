"""Engines are found by name, on use, and what is wrong with one does not touch another."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.stubs.engines import open_stub

from vedette.engine.registry import ENGINES, resolve
from vedette.errors import ConfigError, EngineUnavailableError
from vedette.wire.bundle import EngineName

if TYPE_CHECKING:
    from pathlib import Path


def test_every_engine_of_the_wire_contract_has_an_adapter() -> None:
    """What a bundle may ask for is what the registry knows."""
    assert set(ENGINES) == {name.value for name in EngineName}
    for name in EngineName:
        assert callable(resolve(name))


def test_the_configuration_may_override_and_add() -> None:
    """A plug-in takes a known name's place, or brings a new one, or is written out in full."""
    target = "tests.stubs.engines:open_stub"
    assert resolve("litert", {"litert": target}) is open_stub
    assert resolve("my-npu", {"my-npu": target}) is open_stub
    assert resolve(target) is open_stub


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A typing mistake is a configuration error."""
    with pytest.raises(ConfigError, match="'onxx'; known: litert, onnx"):
        resolve("onxx")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("module-only", "not of the form"),
        ("json:nothing", "no callable 'nothing'"),
        ("json:__doc__", "no callable"),
    ],
)
def test_a_plugin_that_is_no_factory_is_a_configuration_error(target: str, words: str) -> None:
    """Named with what it points at."""
    with pytest.raises(ConfigError, match=words):
        resolve("npu", {"npu": target})


def test_a_plugin_that_is_not_installed_names_its_module() -> None:
    """Retrying makes sense after an installation, so it is not a configuration error."""
    with pytest.raises(EngineUnavailableError, match="acme_npu cannot be imported") as caught:
        resolve("npu", {"npu": "acme_npu:open"})
    assert caught.value.cure is not None
    assert "acme_npu" in caught.value.cure


@pytest.mark.parametrize(
    "fault", ["raise AttributeError('_ARRAY_API not found')", "1 / 0", "import nowhere_at_all"]
)
def test_a_plugin_that_breaks_on_import_leaves_the_others(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 9: whatever it raises is one engine's error, not the agent's end."""
    (tmp_path / "broken_plugin.py").write_text(fault, encoding="ascii")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    with pytest.raises(EngineUnavailableError, match="broken_plugin"):
        resolve("npu", {"npu": "broken_plugin:open"})
    assert callable(resolve("onnx"))
