"""What a daemon does when the things that updates need are not there: it serves, or says why not."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stubs.commands import Command, agent, write_config
from tests.stubs.running import stub_bundle

from vedette.api.control import ask
from vedette.api.messages import AgentStatus, StatusRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE: dict[str, dict[str, Any]] = {"one": {"input": "synthetic:32x32@30", "live": True}}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: a socket's may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    yield folder
    shutil.rmtree(folder)


def config(folder: Path, short: Path, *, root: bool = True, **sections: Any) -> Path:  # noqa: ANN401 - a YAML value is anything
    """A box over the stub engine whose repository is an empty folder."""
    folder.mkdir(exist_ok=True)
    if root:
        (folder / "root.json").write_text('{"signed": {"_type": "root"}}', encoding="utf-8")
    path = write_config(
        folder,
        stub_bundle(folder / "b"),
        LIVE,
        options={},
        **{
            "state_dir": str(folder / "state"),
            "control": {"socket": str(short / f"{folder.name}.sock")},
            "update": {"metadata": str(folder / "repo"), "root": str(folder / "root.json"), "poll_s": 1},
            **sections,
        },
    )
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("factory:", "name: tiny\n  factory:"), encoding="utf-8")
    return path


def test_a_state_folder_that_cannot_be_used_costs_updates_not_answers(tmp_path: Path, short: Path) -> None:
    """Casebook 36: the disk's fault is said, and frames are answered."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "state").touch()  # where a folder should be
    path = config(tmp_path / "box", short, state_dir=str(tmp_path / "kept"))
    with Command("run", "--config", path) as box:
        box.until_said("update: none can be had: ")
        box.until_lines(5)
        checked = agent("update", "check", "--config", path)
        assert checked.returncode == 69
        assert b"no updates: " in checked.stderr
        shown = agent("status", "--config", path)
        assert b"none can be had: " in shown.stdout


def test_a_factory_model_that_is_gone_does_not_keep_a_proven_one_from_serving(
    tmp_path: Path, short: Path
) -> None:
    """The store counts; without anything in it a missing factory is a fault of the configuration."""
    path = config(tmp_path / "box", short)
    (tmp_path / "box" / "b").rename(tmp_path / "elsewhere")
    done = agent("run", "--config", path)
    assert done.returncode == 78
    assert b"model.factory" in done.stderr
    (tmp_path / "box" / "state" / "store").mkdir(parents=True)
    with Command("run", "--config", path) as box:
        box.until_said("the factory's model is not usable")
        shown = agent("status", "--config", path)
        assert b"none answers just now" in shown.stdout


NO_ROOTS = (None, b"", b"\xff", b'{"signed": {"_type": "timestamp"}}')


def test_a_missing_root_is_a_fault_of_the_configuration(tmp_path: Path, short: Path) -> None:
    """Told by `check-config`, with exit code 78 and the cure; so is one that is no root."""
    path = config(tmp_path / "box", short, root=False)
    for content in NO_ROOTS:
        if content is not None:
            (tmp_path / "box" / "root.json").write_bytes(content)
        done = agent("check-config", path)
        assert done.returncode == 78
        assert b"update.root" in done.stdout
        assert b"1.root.json" in done.stdout


@pytest.mark.parametrize("content", NO_ROOTS, ids=["missing", "empty", "garbage", "another role"])
def test_a_missing_root_costs_updates_not_answers(tmp_path: Path, short: Path, content: bytes | None) -> None:
    """Frames are answered; the log, the status and whoever asks are told why there are no updates."""
    path = config(tmp_path / "box", short, root=False)
    if content is not None:
        (tmp_path / "box" / "root.json").write_bytes(content)
    with Command("run", "--config", path) as box:
        box.until_said("update: the look for updates failed: `update.root`")
        box.until_lines(5)
        checked = agent("update", "check", "--config", path)
        assert checked.returncode == 69
        assert b"update.root" in checked.stderr
        assert b"1.root.json" in checked.stderr
        assert b"`update.root`" in agent("status", "--config", path).stdout
        box.until_lines(box.lines() + 5)


def test_a_second_agent_on_the_same_state_is_refused(tmp_path: Path, short: Path) -> None:
    """One record has one writer; the first goes on."""
    first = config(tmp_path / "box", short)
    with Command("run", "--config", first) as box:
        box.until_lines(1)
        other = config(tmp_path / "other", short, state_dir=str(tmp_path / "box" / "state"))
        done = agent("run", "--config", other)
        assert done.returncode == 69
        assert b"another process updates" in done.stderr
        box.until_lines(box.lines() + 5)


def test_a_repository_that_is_away_or_nonsense_leaves_the_box_in_peace(tmp_path: Path, short: Path) -> None:
    """It is said once and shown by `status`; frames are answered, the record stays at rest."""
    path = config(tmp_path / "box", short)
    with Command("run", "--config", path) as box:
        box.until_said("update: the look for updates failed: ")
        box.until_lines(box.lines() + 30)
        status = msgspec.json.decode(ask(short / "box.sock", StatusRequest()), type=AgentStatus)
        assert status.update is not None
        assert status.update.phase.value == "idle"
        assert status.look_fault.startswith("bad_metadata: update repository: ")
        assert box.said.count("the look for updates failed") == 1


def test_without_an_update_section_the_commands_say_so(tmp_path: Path, short: Path) -> None:
    """`status` works all the same."""
    path = write_config(
        tmp_path, stub_bundle(tmp_path / "b"), LIVE, options={}, control={"socket": str(short / "c.sock")}
    )
    with Command("run", "--config", path) as box:
        box.until_lines(1)
        checked = agent("update", "check", "--config", path)
        assert checked.returncode == 78
        assert b"without an `update` section" in checked.stderr
        shown = agent("status", "--config", path)
        assert b"not configured" in shown.stdout
