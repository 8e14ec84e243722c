"""`plumbing diff` and `plumbing patch` write over nothing that they read, and name a wrong base."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.codecs import pairs

from vedette.cli.main import main as agent
from vedette_fleet.cli.main import main as fleet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD, NEW = pairs.STORIES["fine-tune int8"]


class Shell:
    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def __call__(self, tool: Callable[[list[str]], None], *arguments: str) -> tuple[int, str]:
        typed = [
            item
            if item.startswith("--") or item in {"plumbing", "diff", "patch", "tensor"}
            else self.path(item)
            for item in arguments
        ]
        with pytest.raises(SystemExit) as caught:
            tool(typed)
        assert isinstance(caught.value.code, int)
        return caught.value.code, self._capture.readouterr().err

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "new").write_bytes(NEW)
    (tmp_path / "link").symlink_to("old")
    made = Shell(tmp_path, capsys)
    assert made(fleet, "plumbing", "diff", "old", "new", "p", "--codec", "tensor")[0] == 0
    return made


@pytest.mark.parametrize("output", ["old", "new", "link"])
@pytest.mark.parametrize("more", [(), ("--force",)])
def test_diff_never_writes_over_its_input(shell: Shell, output: str, more: tuple[str, ...]) -> None:
    code, said = shell(fleet, "plumbing", "diff", "old", "new", output, *more)
    assert (code, "while it is read" in said) == (2, True)
    assert (shell.folder / "old").read_bytes() == OLD
    assert (shell.folder / "new").read_bytes() == NEW


def test_diff_replaces_a_file_only_when_it_is_told_to(shell: Shell) -> None:
    (shell.folder / "p").write_bytes(b"something else")
    code, said = shell(fleet, "plumbing", "diff", "old", "new", "p", "--codec", "tensor")
    assert (code, "--force" in said) == (2, True)
    assert (shell.folder / "p").read_bytes() == b"something else"
    assert shell(fleet, "plumbing", "diff", "old", "new", "p", "--codec", "tensor", "--force")[0] == 0
    assert shell(agent, "plumbing", "patch", "old", "p", "made")[0] == 0
    assert (shell.folder / "made").read_bytes() == NEW


@pytest.mark.parametrize("output", ["old", "p", "link"])
def test_patch_never_writes_over_its_input(shell: Shell, output: str) -> None:
    patch = (shell.folder / "p").read_bytes()
    code, said = shell(agent, "plumbing", "patch", "old", "p", output)
    assert (code, "while it is read" in said) == (2, True)
    assert (shell.folder / "old").read_bytes() == OLD
    assert (shell.folder / "p").read_bytes() == patch


@pytest.mark.parametrize(
    "base",
    [bytes(byte ^ 3 for byte in OLD), OLD[:-100], OLD + b"more", b""],
    ids=["of the same size", "shorter", "longer", "empty"],
)
def test_a_wrong_base_is_called_that_and_no_damaged_patch(shell: Shell, base: bytes) -> None:
    """Case 38."""
    (shell.folder / "other").write_bytes(base)
    code, said = shell(agent, "plumbing", "patch", "other", "p", "made")
    assert code == 65
    assert "other: wrong base" in said
    assert "damaged" not in said
    assert not (shell.folder / "made").exists()


def test_a_damaged_patch_is_still_called_that(shell: Shell) -> None:
    patch = bytearray((shell.folder / "p").read_bytes())
    patch[-1] ^= 1
    (shell.folder / "p").write_bytes(patch)
    code, said = shell(agent, "plumbing", "patch", "old", "p", "made")
    assert (code, "damaged patch" in said, "wrong base" in said) == (65, True, False)


@pytest.mark.parametrize("names", [(".", "p", "made"), ("old", ".", "made"), ("old", "p", ".")])
def test_a_directory_is_called_that(shell: Shell, names: tuple[str, str, str]) -> None:
    code, said = shell(agent, "plumbing", "patch", *names)
    assert code in {2, 65}
    assert "is a directory" in said
