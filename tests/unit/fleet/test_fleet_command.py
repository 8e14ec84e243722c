"""The command line: what operators type, what comes back, and with which exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bundle.workshop import write_bundle
from tests.unit.fleet.stand import Device, bundle, weights

from vedette_fleet.cli.main import COMMANDS, main

REPOSITORY = Path(__file__).resolve().parents[3]


class Operator:
    """Types commands in a folder, as README says, and reads what comes back."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.said = ""
        self._capture = capture

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        out, self.said = self._capture.readouterr()
        assert caught.value.code == code, self.said
        return out

    def json(self, *arguments: str | Path, code: int = 0) -> Any:  # noqa: ANN401 - any document
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Operator:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VEDETTE_REPO", raising=False)
    monkeypatch.delenv("VEDETTE_KEYS", raising=False)
    return Operator(tmp_path, capsys)


def test_from_nothing_to_a_rollout_of_a_delta(fleet: Operator) -> None:
    fleet("init", "repo")
    assert "devices need repo/metadata/1.root.json" in fleet.said
    fleet("release", bundle(fleet.folder, "1"), "--owner", "demo")
    table = fleet("release", bundle(fleet.folder, "2", weights(tuned=0.02)), "--owner", "demo")
    assert "demo/tiny@2 from 1" in table
    again = fleet.json("release", fleet.folder / "tiny-2", "--owner", "demo")
    assert again["outcome"] is None
    new, from_first = again["fetched"]
    assert from_first["bytes"] < 0.1 * new["bytes"]
    shown = fleet.json(
        "rollout", "start", "summer", "--release", "tiny@2", "--waves", "1%,10%,100%",
        "--select", "class=orin-nano", "--shadow-min-s", "60", "--trial-min-s", "30",
        "--latency-ratio", "1.2",
    )  # fmt: skip
    assert shown["outcome"]["published"]
    fleet("rollout", "advance", "summer")
    [entry] = fleet.json("rollout", "status")["rollouts"]
    assert (entry["share"], entry["waves"], entry["state"]) == (1000, [100, 1000, 10_000], "running")
    device = Device(fleet.folder / "repo", (fleet.folder / "repo/metadata/1.root.json").read_bytes())
    [rollout] = device.rollouts().rollouts
    assert rollout.select == {"class": "orin-nano"}
    assert rollout.shadow is not None
    assert (rollout.shadow.min_s, rollout.trial.min_s, rollout.guards.latency_ratio) == (60, 30, 1.2)


def test_a_bad_release_is_stopped_and_taken_back(fleet: Operator) -> None:
    fleet("init", "repo", "--owner", "demo")
    for number in (1, 2):
        fleet("release", bundle(fleet.folder, str(number), weights(tuned=number / 100)))
    fleet("rollout", "start", "one", "--release", "tiny@1")
    fleet("rollout", "start", "two", "--release", "tiny@2", "--waves", "50%,100%")
    fleet("rollout", "pause", "two")
    fleet("rollout", "advance", "two", code=2)
    assert "cure: vedette-fleet rollout resume two" in fleet.said
    fleet("rollout", "resume", "two")
    fleet("rollout", "revert", "two")
    states = {entry["name"]: entry for entry in fleet.json("rollout", "status")["rollouts"]}
    assert states["two"]["state"] == "withdrawn"
    assert (states["two-revert"]["rollback_of"], states["two-revert"]["share"]) == (2, 5000)
    fleet("rollout", "withdraw", "tiny@2")
    fleet("rollout", "start", "three", "--release", "tiny@2", code=2)
    assert "never offered again" in fleet.said


def test_a_ceremony_of_two_machines(fleet: Operator) -> None:
    fleet("init", "repo", "--owner", "demo")
    away = fleet.folder / "away"
    away.mkdir()
    for number in (2, 3):
        (fleet.folder / f"repo-keys/root-{number}.pem").rename(away / f"root-{number}.pem")
    assert not fleet.json("keys", "rotate", "timestamp", code=69)["published"]
    assert "root 2 waits for signatures" in fleet.said
    assert "lacks 1 signature" in fleet.said
    staged = fleet.folder / "repo/staged/2.root.json"
    fleet("keys", "publish", code=69)
    assert "not published yet" in fleet.said
    fleet("keys", "sign", staged, "--key", away / "root-3.pem")
    assert "timestamp: 1 of" in fleet.said
    fleet("keys", "publish")
    assert "published root 2" in fleet.said
    keys = fleet.json("keys", "list")
    elsewhere = [entry["role"] for entry in keys["keys"] if entry["file"] is None]
    assert elsewhere == ["root", "root"]
    assert keys["unused"] == ["timestamp-1.pem"]


def test_an_owner_elsewhere_is_admitted_by_his_public_key(fleet: Operator) -> None:
    fleet("init", "repo")
    made = fleet.json("keys", "new", fleet.folder / "acme.pem")
    fleet("keys", "add-owner", "acme", "--public", made["public"], code=69)
    assert "1.models-acme.json lacks 1 signature" in fleet.said
    fleet("keys", "drop")
    fleet("keys", "drop")
    assert "nothing waits" in fleet.said


def test_check_tells_what_is_wrong_and_release_repairs_it(fleet: Operator) -> None:
    fleet("init", "repo", "--owner", "demo")
    fleet("release", bundle(fleet.folder, "1"))
    assert "everything is signed, in time and whole" in fleet("check", "repo")
    assert fleet.json("check")["whole"]
    blob = max((fleet.folder / "repo/blobs").iterdir(), key=lambda path: path.stat().st_size)
    blob.write_bytes(b"\0" * blob.stat().st_size)
    answer = fleet("check", code=65)
    assert "WRONG  demo/tiny@1 tiny.onnx (full): blob " in answer
    assert "cure: release its bundle again" in fleet.said
    [problem] = fleet.json("check", code=65)["problems"]
    assert problem["where"] == "demo/tiny@1 tiny.onnx (full)"
    fleet("release", fleet.folder / "tiny-1")
    assert "repaired tiny.onnx (full): has other bytes" in fleet.said
    assert "its blobs are whole again" in fleet.said
    fleet("check")


def test_release_warns_of_changed_labels(fleet: Operator) -> None:
    fleet("init", "repo", "--owner", "demo")
    fleet("release", bundle(fleet.folder, "1"))
    folder = write_bundle(fleet.folder / "two", {"labels.txt": b"dog\ncat\nowl\n"}, version="2")
    changes = fleet.json("release", folder)["changes"]
    assert len(changes) == 1
    assert "warning: 2 labels changed since 1" in fleet.said


def test_refresh_tells_when_everything_expires(fleet: Operator) -> None:
    fleet("init", "repo", "--owner", "demo")
    answer = fleet.json("refresh")
    assert answer["published"]
    assert {entry["role"]: entry["version"] for entry in answer["roles"]}["timestamp"] == 2
    assert "models-demo" in fleet("refresh")


def test_revoke_takes_a_key_from_its_role(fleet: Operator) -> None:
    fleet("init", "repo")
    first = next(entry for entry in fleet.json("keys", "list")["keys"] if entry["role"] == "root")
    fleet("keys", "revoke", first["keyid"][:12])
    assert "root needs all the keys it has left" in fleet.said
    assert sum(entry["role"] == "root" for entry in fleet.json("keys", "list")["keys"]) == 2
    fleet("keys", "add", "root")
    assert "root: key " in fleet.said
    assert sum(entry["role"] == "root" for entry in fleet.json("keys", "list")["keys"]) == 3


def test_scripts_can_tell_that_an_edit_waits(fleet: Operator) -> None:
    """Exit code 69 for whatever was staged, as for every needed thing that is away."""
    fleet("init", "repo", "--owner", "demo")
    away = fleet.folder / "away"
    (fleet.folder / "repo-keys").rename(away)
    (fleet.folder / "repo-keys").mkdir()
    for name in ("snapshot-1.pem", "timestamp-1.pem"):
        (away / name).rename(fleet.folder / "repo-keys" / name)
    answer = fleet.json("release", bundle(fleet.folder, "1"), code=69)
    assert answer["outcome"]["waiting"] == ["models-demo"]
    assert "models-demo 2 waits for signatures" in fleet.said
    fleet("keys", "publish", code=69)
    fleet("init", "repo", "--owner", "acme", code=69)
    fleet("refresh", "--role", "root", code=69)
    fleet("refresh", code=0)
    fleet(
        "keys", "sign", fleet.folder / "repo/staged/2.models-demo.json", "--key", away / "models-demo-1.pem"
    )
    fleet("keys", "publish", code=69)
    assert "published models-demo 2" in fleet.said
    assert "2.root.json lacks 2 signatures" in fleet.said


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (["release", "nowhere", "--owner", "demo"], 65, "no bundle at nowhere"),
        (["release", "tiny-1", "--repo", "absent"], 65, "no update repository at absent"),
        (["release", "tiny-1", "--base", "9"], 2, "--base 9: no such release"),
        (["release", "tiny-1", "--base", "9", "--full-only"], 2, "exclude each other"),
        (["release", "tiny-1", "--min-agent", "new"], 2, "is no version"),
        (["release", "tiny-1", "--owner", "a/b"], 2, "cannot be used in paths"),
        (["rollout", "start", "x", "--release", "tiny@7"], 2, "no release tiny@7"),
        (["rollout", "start", "x", "--release", "tiny@7", "--waves", "9%,1%"], 2, "do not grow"),
        (["rollout", "start", "x", "--release", "tiny@7", "--select", "class"], 2, "is no label"),
        (["rollout", "start", "x", "--release", "t@1", "--not-before", "soon"], 2, "is no time"),
        (["rollout", "start", "x", "--release", "t@1", "--trial-max-s", "1"], 2, "shorter than"),
        (["rollout", "abort", "x"], 2, "no rollout 'x'"),
        (["rollout", "repair"], 2, "can be read"),
        (["rollout", "start", "x", "--release", "t@1", "--waves", "1e999999999%"], 2, "no percentage"),
        (["keys", "publish"], 2, "nothing waits"),
        (["keys", "sign", "repo/metadata/1.root.json", "--key", "k"], 2, "served already"),
        (["refresh", "--keys", "absent"], 65, "not in the keys folder"),
        (["serve-files", "absent"], 65, "no update repository"),
        (["init", "repo", "--keys", "repo/blobs/keys"], 2, "lies inside the repository"),
        (["init", "."], 2, "no repository and not empty: it holds repo"),
        (["check", "absent"], 65, "no update repository at absent"),
        (["keys", "drop", "root"], 2, "nothing of root waits"),
        (["keys", "add", "cook"], 2, "no role 'cook'"),
        (["bake"], 2, "No such command"),
    ],
)
def test_what_is_wrong_is_said_with_its_exit_code(
    fleet: Operator, arguments: list[str], code: int, cause: str
) -> None:
    fleet("init", "repo", "--owner", "demo")
    bundle(fleet.folder, "1")
    assert fleet(*arguments, code=code) == "", "standard output is for answers"
    assert cause in fleet.said


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
@pytest.mark.parametrize(
    "option",
    [
        "--jitter-s", "--shadow-min-s", "--shadow-max-s", "--trial-min-s", "--trial-max-s",
        "--latency-ratio", "--error-rate", "--disagreement",
    ],
)  # fmt: skip
def test_no_number_of_a_rollout_may_be_infinite_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, number: str
) -> None:
    """JSON cannot carry them: the document would be signed, and no device could read it."""
    operator = Operator(tmp_path, capsys)
    start = ["rollout", "start", "x", "--release", "tiny@1", "--repo", str(tmp_path)]
    assert operator(*start, option, number, code=2) == ""
    assert f"Invalid value for '{option}'" in operator.said
    assert "not a finite number" in operator.said


def test_the_commands_of_the_readme_run_as_they_stand(fleet: Operator) -> None:
    (fleet.folder / "models").symlink_to(REPOSITORY / "models")
    text = (REPOSITORY / "tools" / "README.md").read_text(encoding="utf-8")
    block = text.partition("## Publishing models")[2].split("```")[1]
    commands = [shlex.split(line, comments=True)[1:] for line in block.strip().splitlines()]
    assert [command[0] for command in commands] == [
        "init",
        "release",
        "rollout",
        "rollout",
        "serve-files",
        "refresh",
        "check",
    ]
    for command in commands:
        if command[0] != "serve-files":  # which runs until it is ended
            fleet(*command)
    [entry] = fleet.json("rollout", "status")["rollouts"]
    assert (entry["target"], entry["share"]) == ("models/demo/cifar/1.json", 1000)


def test_somebody_elses_lock_is_exit_69(fleet: Operator) -> None:
    from vedette_fleet.tuf_repository import TufRepository

    fleet("init", "repo")
    with TufRepository(fleet.folder / "repo").locked():
        fleet("refresh", code=69)
    assert "edits repo now" in fleet.said


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(fleet: Operator, command: str) -> None:
    assert "Usage: vedette-fleet" in fleet(command, "--help")


def test_help_is_quick_and_loads_no_library_and_no_engine() -> None:
    code = (
        "import sys; from vedette_fleet.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=30)
    loaded = set(json.loads(ran.stderr.decode().replace("'", '"')))
    assert not loaded & {"tuf", "cryptography", "numpy", "cv2", "onnxruntime", "requests", "rich"}
