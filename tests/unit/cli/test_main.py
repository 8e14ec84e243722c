"""The command's outer shell: exit codes by family, messages without tracebacks, a light `--help`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from vedette import errors
from vedette.cli import commands
from vedette.cli import main as shell

if TYPE_CHECKING:
    from pathlib import Path


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        shell.main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `run` fail in a given way."""

    def body() -> None:
        raise error

    def get_command(group: click.Group, context: click.Context, name: str) -> click.Command:
        del group, context, name
        return click.Command("run", callback=body)

    monkeypatch.setattr(commands.LazyGroup, "get_command", get_command)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("no"), 2),
        (errors.BadInputError("no"), 65),
        (errors.BundleError("no"), 65),
        (errors.FrameError("no", kind="cut"), 65),
        (errors.UnavailableError("no"), 69),
        (errors.EngineUnavailableError("no"), 69),
        (errors.SourceLostError("no"), 69),
        (errors.OutOfMemoryError("no"), 69),
        (errors.InternalError("no"), 70),
        (errors.ConfigError("no"), 78),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_family_of_errors_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    """Scripts and systemd decide by it."""
    fail_with(monkeypatch, error)
    assert exit_code("run") == code


def test_an_error_is_said_with_cause_and_cure_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on standard output, which belongs to the results."""
    fail_with(monkeypatch, errors.BundleError("the model is cut", cure="copy it again"))
    assert exit_code("run") == 65
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "vedette-agent: the model is cut\n  cure: copy it again\n"


def test_every_problem_of_a_configuration_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them at once."""
    fail_with(monkeypatch, errors.ConfigError("2 problems", problems=("line 3: a", "line 9: b")))
    assert exit_code("run") == 78
    assert capsys.readouterr().err.splitlines() == ["vedette-agent: 2 problems", "  line 3: a", "  line 9: b"]


def test_a_bug_of_ours_is_exit_70_and_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception of no family is our bug: the report needs the traceback, the script needs the code."""
    fail_with(monkeypatch, ZeroDivisionError("by nought"))
    assert exit_code("run") == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError: by nought" in said
    assert "bug" in said


@pytest.mark.parametrize(
    "arguments", [(), ("--nonsense",), ("nonsense",), ("run",), ("pipe", "--model", "x", "--format", "avi")]
)
def test_a_wrong_call_is_exit_2(arguments: tuple[str, ...]) -> None:
    """Usage errors come from click, with its own text."""
    assert exit_code(*arguments) == 2


def test_help_and_version_are_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    """And every command of the table is listed."""
    assert exit_code("--help") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in commands.COMMANDS)
    assert exit_code("--version") == 0


@pytest.mark.parametrize("name", list(commands.COMMANDS))
def test_every_command_of_the_table_exists_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table's target can be imported, and has a help text."""
    assert exit_code(name, "--help") == 0
    assert "Usage: vedette-agent" in capsys.readouterr().out


def test_a_missing_configuration_is_exit_78_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is the configuration: systemd must not restart on it."""
    assert exit_code("run", "--config", str(tmp_path / "none.yaml")) == 78
    assert "none.yaml" in capsys.readouterr().err


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running some code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(ended.stdout.split())


def test_help_needs_no_numpy_no_opencv_and_no_rich() -> None:
    """Weight of the shell: the commands are imported when they are called."""
    loaded = modules_after(
        "import io, contextlib\n"
        "from vedette.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['--help'])"
    )
    assert "click" in loaded
    assert loaded.isdisjoint({"numpy", "cv2", "rich", "onnxruntime", "ai_edge_litert", "yaml", "ddsketch"})


def test_the_daemon_itself_loads_no_pixels_and_no_engine() -> None:
    """Pixels never enter the daemon's interpreter: what it imports to run has no OpenCV and no runtime."""
    loaded = modules_after("import vedette.cli.run, vedette.cli.pipe, vedette.runtime.compose")
    assert loaded.isdisjoint({"numpy", "cv2", "onnxruntime", "ai_edge_litert", "tflite_runtime", "rich"})


def test_the_wire_contract_is_the_standard_library_and_msgspec() -> None:
    """Fleet and cloud import it without anything of the device."""
    plain = modules_after("import msgspec")  # with what it brings along itself
    loaded = modules_after(
        "import importlib, pkgutil, vedette.wire\n"
        "for module in pkgutil.iter_modules(vedette.wire.__path__):\n"
        "    importlib.import_module('vedette.wire.' + module.name)"
    )
    foreign = {name for name in loaded - plain if name not in sys.stdlib_module_names}
    assert foreign == {"vedette"}
