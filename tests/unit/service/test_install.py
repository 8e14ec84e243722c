"""The service's files: what is written where, what stays, and how closed the unit is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vedette.cli.install import install, uninstall
from vedette.config.agent import load_config
from vedette.runtime.devices import devices
from vedette.runtime.install_files import INSTANCES, UNIT, template

ROOT = Path(__file__).parents[3]
UNITS = (UNIT, INSTANCES)
ANALYZE = shutil.which("systemd-analyze") or ""
MOST_EXPOSED = 2.0


def run(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type] # click's own


def settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in template(unit).splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_an_image_gets_its_files_and_nothing_is_started(tmp_path: Path) -> None:
    done = run(install, "--prefix", str(tmp_path), "--model", str(ROOT / "models" / "person"))
    assert done.exit_code == 0, done.output
    unit = (tmp_path / "etc/systemd/system" / UNIT).read_text()
    start = re.search(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    assert start is not None
    assert re.fullmatch(r"/\S+/vedette-agent run --config /etc/vedette/agent.yaml", start[1])
    for name in ("usr/lib/sysusers.d/vedette.conf", "usr/lib/tmpfiles.d/vedette.conf"):
        assert "vedette" in (tmp_path / name).read_text()
    config = load_config(tmp_path / "etc/vedette/agent.yaml", {})
    assert config.model.factory == str(ROOT / "models" / "person")
    assert config.state_dir == "/var/lib/vedette"
    assert "enable --now vedette-agent" in done.output
    assert "skipped" not in done.output


def test_what_is_yours_stays_and_the_rest_goes(tmp_path: Path) -> None:
    run(install, "--prefix", str(tmp_path))
    config = tmp_path / "etc/vedette/agent.yaml"
    config.write_text("mine: true\n")
    again = run(install, "--prefix", str(tmp_path))
    assert f"kept     {config}, which is yours" in again.output
    gone = run(uninstall, "--prefix", str(tmp_path))
    assert gone.exit_code == 0
    assert f"kept     {config}, which was edited" in gone.output
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [config]
    assert "state stays in /var/lib/vedette" in gone.output


def test_a_configuration_that_nobody_edited_goes_too(tmp_path: Path) -> None:
    run(install, "--prefix", str(tmp_path))
    run(uninstall, "--prefix", str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert run(uninstall, "--prefix", str(tmp_path)).exit_code == 0, "twice is no error"


def test_a_user_gets_a_service_of_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run(install, "--user")
    assert done.exit_code == 0, done.output
    assert (tmp_path / ".config/systemd/user" / UNIT).is_file()
    config = tmp_path / ".config/vedette/agent.yaml"
    assert config.stat().st_mode & 0o777 == 0o600
    assert load_config(config, {}).state_dir == str(tmp_path / ".local/state/vedette")
    assert "systemctl --user daemon-reload" in done.output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_the_right_to_write_the_cure_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = CliRunner().invoke(install, ["--prefix", str(tmp_path / "x")])
    assert "run it as root" in str(done.exception)


def test_devices_are_named_with_who_may_use_them(tmp_path: Path) -> None:
    """Nodes are played by files; what counts are owner and mode."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/video0").touch(mode=0o600)
    (tmp_path / "dev/video0").chmod(0o600)
    (tmp_path / "dev/dri/renderD128").touch()
    (tmp_path / "dev/dri/renderD128").chmod(0o666)
    found = {one.path.name: one for one in devices(tmp_path)}
    assert found["video0"].kind == "camera"
    assert "let its group read and write it" in found["video0"].fault
    assert (found["renderD128"].kind, found["renderD128"].fault) == ("GPU", "")


@pytest.mark.parametrize("unit", UNITS)
def test_nothing_temporary_leaves_the_unit_dead(unit: str) -> None:
    """Case 35 and its kind: Restart=always, no limit of starts; only a wrong configuration is final."""
    found = settings(unit)
    assert found["Restart"] == ["always"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert found["RestartPreventExitStatus"] == ["78"]
    assert found["OOMPolicy"] == ["continue"]
    assert found["Type"] == ["notify"]
    assert int(found["WatchdogSec"][0]) >= 10


def test_instances_share_nothing() -> None:
    one, many = settings(UNIT), settings(INSTANCES)
    assert many["StateDirectory"] == ["vedette-%i"]
    assert many["RuntimeDirectory"] == ["vedette-%i"]
    assert many["ExecStart"][0].endswith("/etc/vedette/%i.yaml")
    differ = {name for name in one if one[name] != many[name]}
    assert differ == {"Description", "Documentation", "ExecStart", "StateDirectory", "RuntimeDirectory"}


@pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_is_as_closed_as_promised(unit: str, tmp_path: Path) -> None:
    name = unit.replace("@", "@gate")
    shutil.copy(ROOT / "systemd" / unit, tmp_path / name)
    done = subprocess.run(
        [ANALYZE, "security", "--offline=true", "--no-pager", tmp_path / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    exposure = re.search(r"exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert exposure is not None, done.stdout + done.stderr
    assert float(exposure[1]) <= MOST_EXPOSED
