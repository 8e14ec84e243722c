"""What half of the programs do to their state, so that it can be seen that the proofs fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.fsops import DurableFile, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


class Careless:
    """Overwrites a file where it stands, and says that it is safe."""

    name = "careless"
    counts_kills = False

    def prepare(self, root: Path) -> None:
        """An old state."""
        (root / "state").write_bytes(b"old")

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Truncate, write, sync."""
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
