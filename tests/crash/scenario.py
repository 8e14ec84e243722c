"""What a crash scenario is; anybody's state on the disk is proven with one.

A scenario is deterministic: the same state gives the same steps in the same order (no time, no chance, no
threads that write). It promises out loud: each time the code under test returned from something that must
survive (a record written, a marker set), `run` calls `promise` with a word of its own. A crash at any later
instant must find that word kept, and `check` gets the words that were said before the crash.

To plug one in: write a class with these members and put an instance into `ALL` of `tests/crash/registry.py`;
`python -m tests.crash` and the pytest sample find it there. The code under test must do all its durable steps
through `vedette.fsops`; what bypasses it, the harness cannot lose.

What happens to it: `prepare` on an empty folder, once. Then, for every step k of `run`:

- the process is killed before step k, and at the end (pages in the kernel's cache survive);
- the power goes before step k: images of the disk in which what was not synced is lost in different ways
  (`disk_model.VARIANTS`), each from the recorded steps;
- killed before step k, started again, and then the power goes: what the first run had not synced is still
  only in the cache when the second acts on it;
- step k fails: ENOSPC, EDQUOT, EIO, EROFS. `run` may end well or raise a `VedetteError`, nothing else.

After each: `check(ended=False)` on what is left, then `run` again to its end without a fault, then
`check(ended=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


# Put among the promises for each kill of a life, for scenarios in which kills are counted.
KILLED = "killed"


class Scenario(Protocol):
    """One story about a state folder; `counts_kills` where the code under test gives up after too many."""

    name: str
    counts_kills: bool

    def prepare(self, root: Path) -> None:
        """Put the state before the story into an empty folder; nothing goes wrong here."""
        ...

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Start on whatever is there, as the agent starts, and carry the story to its end."""
        ...

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """Say every invariant that is broken; `ended` when `run` came to its end.

        `promises` are those of all runs since `prepare`, in order.
        """
        ...
