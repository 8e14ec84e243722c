"""A sample of the crash proofs, and proof that the harness sees what it is there to see."""

from __future__ import annotations

import errno
import itertools
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.crash.__main__ import main
from tests.crash.careless import Careless
from tests.crash.disk_model import VARIANTS, DiskModel
from tests.crash.mutations import MUTATIONS, Mutation, find_mistake
from tests.crash.proof import SECOND_CUTS, Case, cases_of, prove, record, reference_of, second_cuts
from tests.crash.registry import ALL
from tests.crash.scenario_update import UPDATES
from tests.crash.traces import FailAt, Recorder

from vedette.fsops import DurableFile, Kind, Point, make_folder, rename, sync_folder, traced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
    assert done.stdout.splitlines()[-1].endswith("violations of I1 to I10: 0")


def test_a_short_soak_holds() -> None:
    """Random kills, one after another on the same state, and at the end a look at every byte of the store."""
    done = run_crash("--soak", "40")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("40 random kills")
    assert "hashed whole; 0 violations" in done.stdout
    assert "4 of 4 shares" in done.stderr


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mistake_is_found(mutation: Mutation) -> None:
    """Each sync of the product is needed, and its order: otherwise some power cut breaks an invariant."""
    assert find_mistake(mutation) is not None


def test_a_mistake_that_is_not_found_fails_the_self_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that nothing hangs on stands for a harness that went blind."""
    vain = Mutation("journal", Point.RECORD, forgotten=Kind.CREATE)
    monkeypatch.setattr("tests.crash.__main__.MUTATIONS", (vain, MUTATIONS[0]))
    monkeypatch.setattr(
        "tests.crash.__main__.find_mistake", lambda one: None if one is vain else find_mistake(one)
    )
    assert main(["--self-check"]) == 1
    printed = capsys.readouterr().out
    assert "journal: RECORD without create" in printed
    assert "2 mistakes, 1 not found" in printed
    for how in ("kill", "cut", "EIO"):
        assert f"overwritten in place: {how}" in printed


def test_kills_and_errors_and_cuts_are_told_apart() -> None:
    """A truncated state is seen after a kill, after a cut, and an error that is not ours is named."""
    reference = record(Careless())
    assert [step.kind for step in reference.recorder.steps] == [Kind.RESIZE, Kind.WRITE, Kind.SYNC]
    assert "torn: b''" in prove(reference, Case("careless", "kill", 1)).violations[0]
    assert prove(reference, Case("careless", "kill", 0)).violations == ()
    assert any("torn" in what for what in prove(reference, Case("careless", "cut", 2)).violations)
    assert prove(reference, Case("careless", "cut", 3)).violations == ()
    assert "not turned into an error" in prove(reference, Case("careless", "EIO", 1)).violations[0]


def test_every_step_is_killed_at_cut_at_and_failed_at() -> None:
    """A disk that fails for good is begun at each step that it refuses; before others it is the same case."""
    for scenario in ALL:
        reference = reference_of(scenario.name)
        steps = set(range(len(reference.recorder.steps)))
        met = {
            how: {case.step for case in cases}
            for how, cases in itertools.groupby(
                sorted(cases_of(reference), key=lambda case: case.how), key=lambda case: case.how
            )
        }
        assert met["kill"] == met["cut"] == {*steps, len(steps)}
        assert met["kill+cut"] == met["EIO"] == steps
        assert met["ENOSPC"] == met["EDQUOT"] != set()
        assert met["ENOSPC"] < met["EROFS"] < steps


def test_a_fault_that_begins_before_the_step_it_hits_is_the_same_fault(tmp_path: Path) -> None:
    """So the same case is not run twice."""

    def lengthen(folder: Path) -> None:
        with DurableFile.open(folder / "a", Point.RECORD) as file:
            file.write_at(b"new!", 0)
            file.sync()
            file.write_at(b"longer", 2)
            file.sync()

    def fail(step: int) -> tuple[list[int | None], bytes]:
        folder = tmp_path / str(step)
        folder.mkdir()
        (folder / "a").write_bytes(b"old!")
        said = []
        with traced(FailAt(step, errno.ENOSPC)):
            try:
                lengthen(folder)
            except OSError as error:
                said.append(error.errno)
        return said, (folder / "a").read_bytes()

    recorder = Recorder(tmp_path)
    with traced(recorder):
        (tmp_path / "a").write_bytes(b"old!")
        lengthen(tmp_path)
    assert recorder.refused[errno.ENOSPC] == [2]
    assert fail(0) == fail(1) == fail(2) == ([errno.ENOSPC], b"nelon")
    assert fail(3) == ([], b"nelonger")


def test_second_cuts_are_spread_and_always_the_same() -> None:
    """One in each third of the second run."""
    for steps in (0, 1, 2, 170):
        for seed in range(50):
            cuts = second_cuts(steps, seed=seed)
            assert cuts == second_cuts(steps, seed=seed)
            assert cuts[0] <= steps // SECOND_CUTS
            assert cuts[-1] >= 2 * steps // SECOND_CUTS
            assert cuts[-1] <= steps
    assert len({tuple(second_cuts(170, seed=seed)) for seed in range(50)}) > 45


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
        root = tmp_path / "root"
        root.mkdir()
        recorder = Recorder(root)
        with traced(recorder):
            steps(root)
        model = DiskModel({})
        for step in recorder.steps:
            model.apply(step)
        found = {}
        for variant in VARIANTS:
            tree = model.image(variant, random.Random(variant.name))  # noqa: S311 - repeatable
            found[variant.name] = {name: content for name, content in tree.items() if content is not None}
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
