"""An outbox on a disk that fills up, in a process of its own: `python -m tests.stubs.full_disk FOLDER`.

Says in JSON what it met. FOLDER is on a small file system of its own.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from vedette.errors import StorageError
from vedette.link.entries import Moment
from vedette.link.outbox import Outbox
from vedette.link.port import Keep
from vedette.link.sqlite_file import RESERVE_NAME, SqliteFile

_OUTBOX_BYTES = 64_000_000


class Disk:
    """The outbox and the file that takes all other room."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"
        self._link = folder / "link"
        self.kept: list[str] = []
        self._open()

    def _open(self) -> None:
        self._file = SqliteFile(self._link, max_bytes=_OUTBOX_BYTES)
        self.outbox = Outbox(self._file, max_bytes=_OUTBOX_BYTES, now=lambda: Moment("boot", 1.0))
        self.outbox.open()

    def restart(self) -> None:
        """End as by kill -9, as far as one process can."""
        self._file.close()
        self._open()

    def fill(self) -> None:
        """Take what is left."""
        with self._filler.open("ab", buffering=0) as filler:
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()

    def event(self, keep: Keep) -> str:
        """Keep one; the kind of the fault, or an empty text."""
        name = f"{keep.value}-{len(self.kept)}"
        try:
            self.outbox.put_event(lambda identity, _lost: identity.encode().ljust(2000), keep, name)
        except StorageError as error:
            return error.kind
        if keep is Keep.ALWAYS:
            self.kept.append(name)
        return ""

    def events_until_full(self, keep: Keep) -> int:
        """How many are kept until one is not."""
        for count in range(5000):
            if self.event(keep):
                return count
        raise AssertionError("the disk never fills")

    def report(self) -> str:
        """Keep a report; the kind of the fault."""
        try:
            self.outbox.put_report(bytes(60_000), "x")
        except StorageError as error:
            return error.kind
        return ""

    def waiting(self) -> list[str]:
        """The events that are there."""
        seen: list[int] = []
        found = []
        while (entry := self.outbox.next(Keep.ALWAYS, newest=False, excluded=seen)) is not None:
            seen.append(entry.number)
            found.append(entry.event_id)
        return found

    @property
    def reserve(self) -> bool:
        """Whether room is held back."""
        return (self._link / RESERVE_NAME).exists()


def main() -> None:
    """Fill the disk, and look at each kind of message."""
    disk = Disk(Path(sys.argv[1]))
    disk.event(Keep.ALWAYS)
    met: dict[str, object] = {"reserve_at_first": disk.reserve}
    disk.fill()
    while not disk.report():
        pass
    met["report"] = disk.report()
    before = disk.outbox.counts().dropped_events
    for _ in range(100):
        met["newest"] = disk.event(Keep.NEWEST)
    met["newest_dropped"] = disk.outbox.counts().dropped_events - before
    met["always_from_the_reserve"] = disk.events_until_full(Keep.ALWAYS)
    met["reserve_when_full"] = disk.reserve
    met["always"] = disk.event(Keep.ALWAYS)
    disk.restart()
    met["kept"], met["waiting_when_full"] = list(disk.kept), disk.waiting()
    disk.free()
    disk.outbox.remove([])
    met["reserve_again"] = disk.reserve
    met["afterwards"] = disk.event(Keep.ALWAYS)
    disk.restart()
    met["kept_at_last"], met["waiting_at_last"] = disk.kept, disk.waiting()
    sys.stdout.write(json.dumps(met))


if __name__ == "__main__":
    main()
