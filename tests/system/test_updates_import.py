"""A box without a network, a USB stick, and the commands that ask a running daemon."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stubs.commands import agent
from tests.stubs.fleet import Operator
from tests.stubs.scene_models import NAME, scene_bundle
from tests.stubs.updated_box import CAMERA, UpdatedBox, check_order
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

# The discard port of this machine: connections are refused at once.
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: a socket's may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """A repository with release 1, and a stick with a copy of it."""
    operator = Operator(tmp_path)
    operator.release(scene_bundle(tmp_path / "v1", "1"))
    shutil.copytree(operator.repo, tmp_path / "old-stick")
    return operator


@pytest.fixture
def box(tmp_path: Path, short: Path, operator: Operator) -> Iterator[UpdatedBox]:
    """A running box whose repository nobody serves."""
    home = tmp_path / "box"
    home.mkdir()
    box = UpdatedBox(home, short, factory=tmp_path / "v1", repository=NOBODY, root=operator.root)
    box.start()
    yield box
    if box.boot.process.poll() is None:
        box.kill()


def test_a_stick_brings_what_no_network_does(box: UpdatedBox, operator: Operator, tmp_path: Path) -> None:
    """The same trust, shadow, trial and confirmation; an older stick afterwards is passed over in silence."""
    operator.release(scene_bundle(tmp_path / "v2", "2", tuned=0.02))
    shadow = ("--shadow-min-s", "1", "--shadow-min-frames", "30", "--disagreement", "0.5")
    operator.roll_out("second", f"{NAME}@2", "--latency-ratio", "5", *shadow)
    shutil.copytree(operator.repo, tmp_path / "stick")
    box.until_answers()

    found = box.command("update", "import", tmp_path / "stick")
    assert (found.returncode, found.stdout.decode().strip()) == (0, f"{NAME} 2: the update begins"), (
        found.stderr.decode()
    )
    assert box.until_result("2")["result"] == "success"
    assert "comparing it with the model that serves" in box.boot.said

    older = box.command("update", "import", tmp_path / "old-stick")
    assert older.returncode == 0, older.stderr.decode()
    refused = box.command("update", "abort")
    assert (refused.returncode, refused.stdout.decode().strip()) == (69, "rejected: already confirmed")
    until(lambda: box.status()["update"]["phase"] == "idle", "the look is over")
    update = box.status()["update"]
    assert (update["trouble"], update["blacklist"]) == ("", [])

    shown = box.command("status")
    assert shown.returncode == 0, shown.stderr.decode()
    screen = shown.stdout.decode()
    for line in (f"model      {NAME} 2", f"active     {NAME} 2", f"last       {NAME} 2: confirmed", CAMERA):
        assert line in screen
    answers, _ = box.stop()
    check_order(answers)
    assert {answer["model"]["version"] for answer in answers} == {"1", "2"}


def test_a_stick_of_somebody_else_changes_nothing(box: UpdatedBox, tmp_path: Path) -> None:
    """A repository with other keys is refused by its word; a folder that is none, at once."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    stranger = Operator(home)
    stranger.release(scene_bundle(home / "v9", "9"))
    stranger.roll_out("ninth", f"{NAME}@9")
    box.until_answers()
    refused = box.command("update", "import", stranger.repo)
    assert refused.returncode == 65
    assert "signed" in refused.stderr.decode() or "signature" in refused.stderr.decode()
    empty = box.command("update", "import", tmp_path / "v1")
    assert empty.returncode == 65
    assert "holds no update repository" in empty.stderr.decode()
    box.until_answers()
    assert box.status()["model"]["version"] == "1"


def test_the_configuration_leads_to_the_daemon(box: UpdatedBox) -> None:
    """`--config` names the socket; the status is JSON for machines; without a daemon the exit code is 69."""
    box.until_answers()
    found = agent("status", "--json", "--config", box.config)
    assert json.loads(found.stdout)["device"] == "box-1"
    looking = agent("update", "check", "--config", box.config)
    assert looking.returncode == 69, "nobody serves this box's repository"
    assert b"timestamp.json" in looking.stderr or b"root.json" in looking.stderr
    nothing = agent("update", "abort", "--config", box.config)
    assert (nothing.returncode, nothing.stdout) == (69, b"rejected: nothing to abort\n")
    box.stop()
    alone = agent("status", "--config", box.config)
    assert alone.returncode == 69
    assert b"no vedette-agent answers" in alone.stderr
    assert agent("status").returncode == 2


def test_a_lost_record_serves_the_newest_confirmed_model(
    box: UpdatedBox, operator: Operator, tmp_path: Path
) -> None:
    """Casebook 35: killed, both copies gone, no network. The store stays whole, also later."""
    for version in ("2", "3"):
        operator.release(scene_bundle(tmp_path / f"v{version}", version, tuned=0.02 * int(version)))
        operator.roll_out(f"to-{version}", f"{NAME}@{version}", "--latency-ratio", "5")
        box.until_answers()
        assert box.command("update", "import", operator.repo).returncode == 0
        assert box.until_result(version)["result"] == "success"
    store = box.config.parent / "state" / "store"
    stored = sorted(path.name for path in store.iterdir())
    for start in range(3):
        box.kill()
        if not start:
            for path in (store.parent / "state").glob(f"{NAME}.rec.*"):
                path.unlink()
        box.start()
        box.until_answers()
        status = box.until_status(lambda found: found["update"]["active"] is not None, "a model is active")
        assert status["model"]["version"] == "3"
        assert status["update"]["previous"] is not None
        assert sorted(path.name for path in store.iterdir()) == stored
    assert len(stored) == 2
