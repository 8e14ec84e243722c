"""SIGHUP: the installed daemon takes over what it can, names what it cannot; other cameras lose nothing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stubs.commands import Command, agent, write_config
from tests.stubs.running import stub_bundle
from tests.stubs.waiting import until

from vedette.wire.messages import Result

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.system]

LIVE = {"input": "synthetic:32x32@20", "live": True}
FILE = {"input": "synthetic:32x32?frames=100000", "live": False}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return stub_bundle(tmp_path / "bundle")


def written(folder: Path, bundle: Path, cameras: dict[str, Any], **more: Any) -> Path:  # noqa: ANN401 - YAML
    return write_config(folder, bundle, cameras, options={}, state_dir=str(folder / "state"), **more)


def results(run: Command, camera: str) -> list[Result]:
    whole = bytes(run.stdout).rpartition(b"\n")[0]
    lines = (msgspec.json.decode(line, type=Result) for line in whole.splitlines())
    return [line for line in lines if line.camera == camera]


def reload(run: Command, words: str) -> None:
    before = run.said.count("read anew") + run.said.count("not taken over")
    run.signal(signal.SIGHUP)
    until(
        lambda: run.said.count("read anew") + run.said.count("not taken over") > before,
        f"an end of the reload; said: {run.said}",
    )
    assert words in run.said, run.said


def test_cameras_come_change_and_go_and_the_others_notice_nothing(tmp_path: Path, bundle: Path) -> None:
    config = written(tmp_path, bundle, {"steady": FILE, "moody": LIVE, "old": LIVE})
    with Command("run", "--config", config) as run:
        until(lambda: all(results(run, name) for name in ("steady", "moody", "old")), "all answer")
        moody = {**LIVE, "input": "synthetic:64x48@10", "priority": 5}
        written(tmp_path, bundle, {"steady": FILE, "moody": moody, "new": LIVE})
        reload(run, "cameras added: new; cameras changed: moody; cameras removed: old")
        until(lambda: results(run, "new"), "the new one answers")
        seen = len(results(run, "moody"))
        until(lambda: len(results(run, "moody")) > seen + 5, "the changed one goes on")
        gone = len(results(run, "old"))
        steady = len(results(run, "steady"))
        until(lambda: len(results(run, "steady")) > steady + 50, "the steady one goes on")
        assert len(results(run, "old")) <= gone + 2
        written(tmp_path, bundle, {"steady": FILE, "moody": moody, "new": LIVE, "old": LIVE})
        reload(run, "cameras added: old")
        until(lambda: len(results(run, "old")) > gone + 5, "it is back")
        run.signal(signal.SIGTERM)
        assert run.end(within_s=30) == 0, run.said
    for name in ("steady", "moody", "new", "old"):
        seqs = [one.seq for one in results(run, name)]
        assert seqs == sorted(set(seqs)), f"{name}: in order, none twice, also across a change"
    seqs = [one.seq for one in results(run, "steady")]
    assert seqs == list(range(1, len(seqs) + 1)), "a camera that stayed lost nothing"


def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path, bundle: Path) -> None:
    config = written(tmp_path, bundle, {"one": LIVE})
    with Command("run", "--config", config) as run:
        run.until_lines(3)
        good = config.read_text()
        config.write_text(good.replace("cameras:", "camreas:"))
        reload(run, "did you mean `cameras`?")
        assert "nothing has changed" in run.said
        before = run.lines()
        run.until_lines(before + 5)
        config.write_text(good)
        reload(run, "read anew: nothing has changed")
        run.signal(signal.SIGTERM)
        assert run.end(within_s=30) == 0


def test_what_waits_for_a_restart_is_named_and_named_again(tmp_path: Path, bundle: Path) -> None:
    config = written(tmp_path, bundle, {"one": LIVE})
    with Command("run", "--config", config) as run:
        run.until_lines(3)
        for _ in range(2):
            written(tmp_path, bundle, {"one": LIVE}, limits={"ring_memory": "32MB"})
            reload(run, "waits for a restart: `limits.ring_memory`")
        run.signal(signal.SIGTERM)
        assert run.end(within_s=30) == 0
    assert run.said.count("waits for a restart: `limits.ring_memory`") == 2


def test_another_policy_reaches_the_asking_process(tmp_path: Path, bundle: Path) -> None:
    def asks(threshold: float) -> dict[str, Any]:
        return {
            "provider": "oip",
            "url": "http://127.0.0.1:9",
            "model": "large",
            "policy": {"threshold": threshold},
        }

    config = written(tmp_path, bundle, {"one": LIVE}, escalation=asks(0.5))
    with Command("run", "--config", config) as run:

        def screen() -> str:
            return agent("status", "--config", config).stdout.decode()

        until(lambda: "threshold 0.5" in screen(), "the first policy", every_s=0.3)
        written(tmp_path, bundle, {"one": LIVE}, escalation=asks(0.75))
        reload(run, "`escalation` taken over")
        until(lambda: "threshold 0.75" in screen(), "the second policy", every_s=0.3)
        assert "asking process ended" not in run.said
        run.signal(signal.SIGTERM)
        assert run.end(within_s=30) == 0
