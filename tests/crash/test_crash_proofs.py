"""A sample of the crash proofs, and proof that the harness sees what it is there to see."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.crash.__main__ import main
from tests.crash.disk_model import VARIANTS, DiskModel
from tests.crash.proof import Case, prove, record, reference_of
from tests.crash.registry import ALL
from tests.crash.scenario_update import UPDATES
from tests.crash.traces import Recorder

from vedette.fsops import DurableFile, Kind, Point, make_folder, rename, sync_folder, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.crash.proof import Reference


def run_crash(*options: str) -> subprocess.CompletedProcess[str]:
    """The command line of the proofs, in a process of its own: it forks."""
    return subprocess.run(
        [sys.executable, "-m", "tests.crash", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_a_sample_of_all_proofs_holds() -> None:
    """Casebook 35 and 36: kills, power cuts and failing disks at durable steps; `make crash` runs all."""
    names = [scenario.name for scenario in ALL if scenario not in UPDATES]  # those have a sample of their own
    done = run_crash("--sample", "0.15", *(word for name in names for word in ("--scenario", name)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split()[-1] == "0"


def test_a_short_soak_holds() -> None:
    """Random kills, one after another on the same state."""
    done = run_crash("--soak", "40")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("40 random kills")


def without(reference: Reference, point: Point, kind: Kind) -> Reference:
    """The same program, had its author forgotten one kind of sync: those steps do nothing."""
    recorder = Recorder(reference.start)
    recorder.promises = reference.recorder.promises
    recorder.steps = [
        step._replace(kind=Kind.UNLINK, path="no such file")
        if (step.point, step.kind) == (point, kind)
        else step
        for step in reference.recorder.steps
    ]
    return dataclasses.replace(reference, recorder=recorder)


@pytest.mark.parametrize(
    ("scenario", "point", "kind"),
    [
        ("journal", Point.RECORD, Kind.SYNC),
        ("journal", Point.RECORD, Kind.SYNC_FOLDER),
        ("part file", Point.BLOCK, Kind.SYNC),
        ("part file", Point.BLOCK, Kind.SYNC_FOLDER),
        ("part file", Point.MAP, Kind.SYNC),
        ("store", Point.RECORD, Kind.SYNC),
        ("store", Point.ADOPT, Kind.SYNC),
        ("store", Point.ADOPT, Kind.SYNC_FOLDER),
        ("store", Point.META, Kind.SYNC),
        ("store", Point.META, Kind.SYNC_FOLDER),
        ("store", Point.CONFIRM, Kind.SYNC),
        ("store", Point.CONFIRM, Kind.SYNC_FOLDER),
        ("store", Point.COLLECT, Kind.SYNC_FOLDER),
    ],
)
def test_a_forgotten_sync_is_found(scenario: str, point: Point, kind: Kind) -> None:
    """Each sync of the product is needed: without it some power cut breaks an invariant."""
    careless = without(reference_of(scenario), point, kind)
    steps = range(len(careless.recorder.steps), -1, -1)
    assert any(prove(careless, Case(scenario, "cut", step)).violations for step in steps)


class Careless:
    """Overwrites a file where it stands, and says that it is safe."""

    name = "careless"

    def prepare(self, root: Path) -> None:
        """An old state."""
        (root / "state").write_bytes(b"old")

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Truncate, write, sync: what half of the programs do."""
        with DurableFile.open(root / "state", Point.RECORD) as file:
            file.truncate(0)
            file.write_at(b"new", 0)
            file.sync()
        promise("new")

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """Old or new, and new when that was promised."""
        content = (root / "state").read_bytes()
        if content not in {b"old", b"new"}:
            yield f"torn: {content!r}"
        if (promises or ended) and content != b"new":
            yield f"lost: {content!r}"


def test_kills_and_errors_and_cuts_are_told_apart(tmp_path: Path) -> None:
    """A truncated state is seen after a kill, after a cut, and an error that is not ours is named."""
    reference = record(Careless(), tmp_path)
    assert [step.kind for step in reference.recorder.steps] == [Kind.RESIZE, Kind.WRITE, Kind.SYNC]
    assert "torn: b''" in prove(reference, Case("careless", "kill", 1)).violations[0]
    assert prove(reference, Case("careless", "kill", 0)).violations == ()
    assert any("torn" in what for what in prove(reference, Case("careless", "cut", 2)).violations)
    assert prove(reference, Case("careless", "cut", 3)).violations == ()
    assert "not turned into an error" in prove(reference, Case("careless", "EIO", 1)).violations[0]


def test_a_violation_is_printed_with_its_step_and_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1, what broke, and where."""
    monkeypatch.setattr("tests.crash.registry.ALL", (Careless(),))
    monkeypatch.setattr("tests.crash.__main__.ALL", (Careless(),))
    assert main(["--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "careless, kill at step 1 (F2 write state)" in printed
    assert int(printed.splitlines()[2].split()[-1]) > 5


class TestDiskModel:
    """What the model lets survive."""

    def images(self, tmp_path: Path, steps: Callable[[Path], None]) -> dict[str, dict[str, bytes]]:
        """Files of each image after some steps on an empty folder."""
        root, empty = tmp_path / "root", tmp_path / "empty"
        root.mkdir()
        empty.mkdir()
        recorder = Recorder(root)
        with traced(recorder):
            steps(root)
        model = DiskModel(empty)
        for step in recorder.steps:
            model.apply(step)
        found = {}
        for variant in VARIANTS:
            target = tmp_path / variant.name.replace(" ", "-")
            target.mkdir()
            model.image(target, variant, random.Random(variant.name))  # noqa: S311 - repeatable
            found[variant.name] = {
                str(path.relative_to(target)): path.read_bytes()
                for path in target.rglob("*")
                if path.is_file()
            }
        return found

    def test_nothing_synced_nothing_sure(self, tmp_path: Path) -> None:
        """A new file is there or not, empty, full of zeros, or torn."""

        def steps(root: Path) -> None:
            with DurableFile.create(root / "a", Point.OUTPUT) as file:
                file.write_at(b"x" * 10000, 0)

        found = self.images(tmp_path, steps)
        assert found["nothing"] == {}
        assert found["names, empty files"] == {"a": b""}
        assert found["names, files of zeros"] == {"a": bytes(10000)}
        torn = found["torn pages"]["a"]
        assert len(torn) == 10000
        assert {bytes(torn[at : at + 4096]) for at in (0, 4096)} <= {b"x" * 4096, bytes(4096)}

    def test_a_synced_file_needs_its_folder(self, tmp_path: Path) -> None:
        """Data alone does not bring a name back; both synced survives every image."""

        def steps(root: Path) -> None:
            for name in ("a", "b"):
                with DurableFile.create(root / name, Point.OUTPUT) as file:
                    file.write_at(b"whole", 0)
                    file.sync()
                if name == "a":
                    sync_folder(root, Point.OUTPUT)

        found = self.images(tmp_path, steps)
        assert found["nothing"] == {"a": b"whole"}
        assert found["names, empty files"] == {"a": b"whole", "b": b"whole"}

    def test_a_renamed_folder_moves_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """As the store relies upon."""

        def steps(root: Path) -> None:
            for folder in ("from", "to"):
                make_folder(root / folder, Point.STAGE)
            make_folder(root / "from" / "entry", Point.STAGE)
            with DurableFile.create(root / "from" / "entry" / "a", Point.ADOPT) as file:
                file.write_at(b"whole", 0)
                file.sync()
            sync_folder(root / "from" / "entry", Point.ADOPT)
            rename(root / "from" / "entry", root / "to" / "entry", Point.ADOPT)

        for files in self.images(tmp_path, steps).values():
            assert files in ({"from/entry/a": b"whole"}, {"to/entry/a": b"whole"})
