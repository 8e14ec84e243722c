"""The README shows the machine that the agent runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def diagram(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "diagram.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_readme_s_diagram_is_made_from_the_table() -> None:
    printed = diagram()
    assert printed.returncode == 0, printed.stderr
    assert "trial --> confirm: trial passed" in printed.stdout
    assert "| TRIAL |" in printed.stdout
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert printed.stdout.strip() in readme, "run `python tools/diagram.py --write README.md`"


def test_a_file_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n", encoding="utf-8")
    assert diagram("--write", str(page)).returncode == 65
    assert page.read_text(encoding="utf-8") == "nothing here\n"
