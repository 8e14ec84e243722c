"""Each invariant of the design has a check in the crash proofs, and each check can fail."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.crash.disk_model import write_tree
from tests.crash.invariants import INVARIANTS
from tests.crash.proof import reference_of
from tests.crash.scenario_update import UPDATES, _Device, published

from vedette.update.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Ended(NamedTuple):
    """What a good delta update leaves, and what it promised."""

    root: Path
    words: list[str]

    def broken(self) -> set[str]:
        """The invariants that the check of the scenario names."""
        return {what.partition(":")[0] for what in UPDATES[0].check(self.root, self.words, ended=True)}

    def bundle(self) -> Path:
        """The bundle in the store."""
        store = Store(self.root)
        return store.find(store.scan()[0][0].sha256).bundle

    def device(self) -> _Device:
        """The box, started again."""
        return _Device(self.root, self.words.append).start()


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    """The end of an update, in which nothing is broken."""
    done = Ended(tmp_path / "root", [])
    write_tree(reference_of(UPDATES[0].name).start, done.root)
    UPDATES[0].run(done.root, done.words.append)
    assert done.broken() == set()
    return done


def flip_a_weight(ended: Ended) -> None:
    path = ended.bundle() / "weights.bin"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)


def load_what_nobody_signed(ended: Ended) -> None:
    device = ended.device()
    forged = shutil.copytree(published() / "factory", ended.root.parent / "forged")
    (forged / "weights.bin").write_bytes(b"other weights")
    device.live.switch(forged)
    device.driver.close()


def unconfirm(ended: Ended) -> None:
    entry = ended.bundle().parent
    next(path for path in entry.iterdir() if path.name.startswith("CONFIRMED")).unlink()


def fill_staging(ended: Ended) -> None:
    (ended.root / "staging" / "big").write_bytes(bytes(500_000))


def report_what_is_not_there(ended: Ended) -> None:
    ended.words.append("reported 1.2-of-yesterday 7")


def serve_nothing(ended: Ended) -> None:
    device = ended.device()
    device.until_serving()
    device.live.dead = True
    device.step()
    device.driver.close()


def forget_a_document(ended: Ended) -> None:
    ended.words.append("seen 99")


def forget_a_verdict(ended: Ended) -> None:
    ended.words.append("condemned 00ff")


def leave_a_file_behind(ended: Ended) -> None:
    (ended.root / "staging" / "small").write_bytes(b"1")


BREAKS: dict[str, Callable[[Ended], None]] = {
    "I1": flip_a_weight,
    "I2": load_what_nobody_signed,
    "I3": forget_a_document,
    "I4": unconfirm,
    "I5": fill_staging,
    "I6": report_what_is_not_there,
    "I7": serve_nothing,
    "I8": forget_a_verdict,
    "I9": leave_a_file_behind,
}


@pytest.mark.parametrize("invariant", BREAKS)
def test_a_broken_invariant_is_named(ended: Ended, invariant: str) -> None:
    BREAKS[invariant](ended)
    assert invariant in ended.broken()


def test_a_condemned_bundle_that_is_loaded_again_is_named(tmp_path: Path) -> None:
    """I8, on the way: the load itself is seen, not only the verdict that is gone."""
    rollback = next(scenario for scenario in UPDATES if scenario.name == "update rollback")
    root, words = tmp_path / "root", list[str]()
    write_tree(reference_of(rollback.name).start, root)
    rollback.run(root, words.append)
    assert list(rollback.check(root, words, ended=True)) == []
    device = _Device(root, words.append).start()
    device.live.switch(published() / "publisher" / "v1")
    device.driver.close()
    assert any(what.startswith("I8: ") for what in rollback.check(root, words, ended=True))


def test_a_device_that_forgot_the_time_is_named(tmp_path: Path) -> None:
    """I10: without its floor it would take metadata that it must know to be expired."""
    reference = reference_of("trust")
    write_tree(reference.start, tmp_path / "root")
    broken = reference.scenario.check(tmp_path / "root", ["1", "2"], ended=False)
    assert any(what.startswith("I10: what is known to be expired") for what in broken)


def test_every_invariant_of_the_design_can_be_broken_here() -> None:
    assert set(INVARIANTS) == {*BREAKS, "I10"} == {f"I{number}" for number in range(1, 11)}
