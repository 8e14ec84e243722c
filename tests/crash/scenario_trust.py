"""A device follows a repository: what it was offered once, it is never talked out of."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.invariants import broken
from tests.unit.trust.simulator import NOW, FixedClock, RepositorySimulator, trust_in

from vedette.errors import TrustError, VedetteError
from vedette.trust.refusal import Refusal
from vedette.update.folder import FolderFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vedette.trust.offer import Offer

PUBLICATIONS = (1, 2)
NEWEST = PUBLICATIONS[-1]
# Of a higher version, but it ran out weeks before the newest was signed: whoever saw that one knows so.
STALE = 3
RIGHT = FixedClock()
NO_CLOCK = FixedClock(datetime(1970, 1, 1, tzinfo=timezone.utc), synchronised=False)
FAR_AHEAD = FixedClock(NOW + timedelta(days=20 * 365), synchronised=False)


def _refresh(root: Path, state: Path, publication: int, clock: FixedClock = RIGHT) -> Offer | None:
    served = root / f"served-{publication}"
    bootstrap = (served / "metadata" / "1.root.json").read_bytes()
    return trust_in(state, FolderFetcher(served), bootstrap, clock=clock).refresh()


class TrustScenario:
    """Refreshes from one publication after the other."""

    name = "trust"
    counts_kills = False

    def prepare(self, root: Path) -> None:
        """States of one repository, each as a folder that could be served."""
        repository = RepositorySimulator()
        for publication in (*PUBLICATIONS, STALE):
            if publication == STALE:
                repository.now -= timedelta(days=30)
            repository.release(str(publication), counter=publication)
            repository.publish()
            for name, content in repository.files.items():
                path = root / f"served-{publication}" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Follow; publications that are behind what was seen are refused and passed over."""
        for publication in PUBLICATIONS:
            try:
                offer = _refresh(root, root / "trust", publication)
            except TrustError:
                continue
            if offer is not None:
                promise(str(offer.counter))

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """I3: everything older than the last offer is refused; I10; and the newest is still to be had."""
        seen = max((int(word) for word in promises), default=0)
        for publication in PUBLICATIONS:
            found = self._answer(root, publication)
            if publication < seen and found != Refusal.ROLLBACK_ATTACK:
                yield broken("I3", f"publication {publication} after {seen}: {found}")
            if publication == NEWEST and found != str(publication):
                yield broken("I3", f"the newest publication: {found}")
        for clock in (NO_CLOCK, FAR_AHEAD) if ended else (FAR_AHEAD,):
            found = self._answer(root, NEWEST, clock)
            if found != str(NEWEST):
                yield broken("I10", f"a clock at {clock.now:%Y} bars the newest publication: {found}")
        if seen == NEWEST and (found := self._answer(root, STALE, NO_CLOCK)) != Refusal.EXPIRED:
            yield broken("I10", f"what is known to be expired, with a clock at 1970: {found}")
        if ended and seen != NEWEST:
            yield broken("I3", f"it ended with {seen}")

    def _answer(self, root: Path, publication: int, clock: FixedClock = RIGHT) -> str:
        """What a refresh says, on a copy of the state."""
        with tempfile.TemporaryDirectory(dir=root.parent) as folder:
            state = Path(folder) / "trust"
            if (root / "trust").is_dir():
                shutil.copytree(root / "trust", state)
            try:
                offer = _refresh(root, state, publication, clock)
            except TrustError as error:
                return error.kind
            except VedetteError as error:
                return error.cause
            return "nothing" if offer is None else offer.manifest.version
