"""The real process, a real ring, real HTTP: every frame that goes in comes out once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.escalate.asking_daemon import PATIENCE_S, SLOTS, AskingDaemon
from tests.stubs.asked_cases import escalation_config
from tests.stubs.cloud_scripts import ScriptedCloud, mute, says
from tests.stubs.running import stub_bundle

from vedette.config.escalation import AuditConfig, TrainingConfig
from vedette.escalate.training_shard import read_shard

if TYPE_CHECKING:
    from vedette.config.escalation import EscalationConfig

pytestmark = pytest.mark.engine


def oip(label: str) -> bytes:
    outputs = [
        {"name": "labels", "datatype": "BYTES", "shape": [1], "data": [label]},
        {"name": "scores", "datatype": "FP32", "shape": [1], "data": [0.9]},
    ]
    return json.dumps({"outputs": outputs}).encode()


def config(url: str, **changes: Any) -> EscalationConfig:  # noqa: ANN401 - fields of any kind
    return escalation_config(**{"url": url, "deadline_ms": 5000.0, **changes})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def test_frames_go_in_by_the_ring_and_answers_come_out_by_the_channel(bundle: Path, tmp_path: Path) -> None:
    with ScriptedCloud(says(oip("blue"))) as cloud:
        settings = config(cloud.url, key="sk-secret", training=TrainingConfig(disk=10**6))
        with AskingDaemon(settings, tmp_path) as daemon:
            daemon.hear(lambda: daemon.ready)
            assert b"sk-secret" not in Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
            writer = daemon.feed(bundle)
            for seq in range(1, 7):
                assert daemon.ask(writer, seq, audit=seq == 6)
                daemon.hear(lambda: len(daemon.results) == seq)  # noqa: B023 - called at once
            assert daemon.words() == dict.fromkeys(range(1, 7), "answered")
            assert daemon.results[0].top is not None
            assert {one.source for one in daemon.results} == {"cloud"}
            daemon.hear(lambda: bool(daemon.figures) and daemon.figures[-1].outcomes == {"answered": 6})
            figures = daemon.figures[-1]
            assert (figures.asked, figures.audits, figures.breaker, figures.fault) == (6, 1, "closed", "")
            assert daemon.settings[-1].setting.model_sha256 == daemon.case(1).model_sha256
            assert daemon.stop() < 2.0
    assert all(b"authorization: bearer sk-secret" in request.lower() for request in cloud.requests)
    state = tmp_path / "escalation"
    shards = {path.name: read_shard(path.read_bytes()) for path in (state / "training").iterdir()}
    assert sorted(shards) == ["audit-000002.tar", "unsure-000001.tar"]
    assert len(shards["unsure-000001.tar"]) == 10
    assert all(
        content[:2] == b"\xff\xd8" for name, content in shards["audit-000002.tar"].items() if "jpg" in name
    )


def test_a_mute_cloud_costs_the_deadline_and_the_end_waits_for_nothing(bundle: Path) -> None:
    """Case 50: every escalation ends in exactly one outcome; stopping is quick all the same."""
    with ScriptedCloud(mute) as cloud, AskingDaemon(config(cloud.url, deadline_ms=400.0)) as daemon:
        writer = daemon.feed(bundle)
        daemon.hear(lambda: bool(daemon.settings))
        offered = [seq for seq in range(1, 6) if daemon.ask(writer, seq)]
        daemon.hear(lambda: len(daemon.results) == len(offered))
        assert sorted(daemon.words()) == offered
        assert set(daemon.words().values()) <= {"expired", "declined", "failed"}
        assert all(
            one.escalation is not None and (one.escalation.took_ms or 0) < 1400 for one in daemon.results
        )
        assert daemon.ask(writer, 9)
        assert daemon.stop() < 2.0
        assert sorted(daemon.words()) == [*offered, 9]
        assert len(daemon.results) == len(offered) + 1


def test_nobody_ever_waits_for_it(bundle: Path) -> None:
    """A process that is stopped in the middle takes nothing: the worker keeps its frames, and goes on."""
    with ScriptedCloud(says(oip("red"))) as cloud, AskingDaemon(config(cloud.url)) as daemon:
        writer = daemon.feed(bundle)
        daemon.hear(lambda: bool(daemon.settings))
        os.kill(daemon.process.pid, signal.SIGSTOP)
        offered = [seq for seq in range(1, 30) if daemon.ask(writer, seq)]
        assert len(offered) == SLOTS
        os.kill(daemon.process.pid, signal.SIGCONT)
        daemon.hear(lambda: len(daemon.results) == SLOTS)
        assert sorted(daemon.words()) == offered
        assert set(daemon.words().values()) == {"agreed"}


def test_from_one_worker_to_the_next_no_case_is_lost(bundle: Path, tmp_path: Path) -> None:
    other = stub_bundle(tmp_path / "other", name="other")
    with ScriptedCloud(says(oip("red"))) as cloud, AskingDaemon(config(cloud.url)) as daemon:
        before = daemon.feed(bundle)
        daemon.hear(lambda: bool(daemon.settings))
        offered = [seq for seq in range(1, 5) if daemon.ask(before, seq)]
        after = daemon.feed(other)
        offered += [seq for seq in range(5, 8) if daemon.ask(before, seq)]  # it had frames in hand
        offered += [seq for seq in range(8, 12) if daemon.ask(after, seq)]
        daemon.hear(lambda: len(daemon.results) >= len(offered))
        assert sorted(daemon.words()) == offered
        assert len(daemon.results) == len(offered)
        assert set(daemon.words().values()) == {"agreed"}


def test_a_key_that_cannot_be_read_ends_it_with_cause_and_cure(tmp_path: Path) -> None:
    with AskingDaemon(config("http://127.0.0.1:9", key_file=str(tmp_path / "none"))) as daemon:
        assert daemon.process.wait(PATIENCE_S) == 78
        assert daemon.process.stderr is not None
        said = daemon.process.stderr.read().decode()
    assert "escalation.key_file" in said
    assert "let the agent's user read it" in said


def test_a_daemon_that_is_gone_ends_it() -> None:
    with AskingDaemon(config("http://127.0.0.1:9")) as daemon:
        daemon.hear(lambda: daemon.ready)
        daemon.channel.close()
        assert daemon.process.wait(PATIENCE_S) == 0


def test_what_was_spent_outlives_a_kill(bundle: Path, tmp_path: Path) -> None:
    """Case 51: budget of 20 a day, restart half-way."""
    limits = AuditConfig(share=0.02, per_day=3)
    made = 0
    for start in range(3):
        with (
            ScriptedCloud(says(oip("red"))) as cloud,
            AskingDaemon(config(cloud.url, audit=limits), tmp_path) as daemon,
        ):
            writer = daemon.feed(bundle)
            daemon.hear(lambda: bool(daemon.settings))
            for seq in range(1, 4):
                assert daemon.ask(writer, 10 * start + seq, audit=True)
            daemon.hear(lambda: len(daemon.results) == 3)
            made += list(daemon.words().values()).count("agreed")
    assert 1 <= made <= 3
