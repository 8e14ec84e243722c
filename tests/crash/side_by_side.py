"""Jobs in forked processes that share what is in memory already, with progress on standard error."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from tests.crash.proof import RESTARTS, scratch

import vedette.bundle.folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

STALL_S = 180.0  # no job takes so long on any machine; a process that died or hangs is found by this
SHOWN_EVERY_S = 10.0  # where standard error is a file
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class StalledError(Exception):
    """No job ended for STALL_S."""


def side_by_side(
    work: Callable[[_Job], _Result], jobs: Sequence[_Job], *, processes: int, what: str
) -> Iterator[_Result]:
    """Results as they come; `work` is a function of a module.

    Raises:
        StalledError: A process hangs or died.
    """
    context = multiprocessing.get_context("fork")
    with scratch() as shared, context.Pool(processes, _begin, (shared,)) as pool:
        results = pool.imap_unordered(work, jobs)
        shown_s = time.monotonic()
        for done in range(1, len(jobs) + 1):
            try:
                yield results.next(timeout=STALL_S)
            except multiprocessing.TimeoutError as error:
                raise StalledError(
                    f"{done - 1} of {len(jobs)} {what} came, then none for {STALL_S:.0f} s: "
                    "a process hangs or died"
                ) from error
            shown_s = _show(f"{done} of {len(jobs)} {what}", shown_s, last=done == len(jobs))


def _begin(shared: Path) -> None:
    RESTARTS.folder = shared
    # A third of the time of an update here was reading the same few model.yaml again; their bytes say it all.
    vedette.bundle.folder.parse_spec = functools.cache(vedette.bundle.folder.parse_spec)


def _show(line: str, shown_s: float, *, last: bool) -> float:
    """Say how far it is, not too often; when that was."""
    terminal = sys.stderr.isatty()
    now_s = time.monotonic()
    if not last and now_s - shown_s < (0.2 if terminal else SHOWN_EVERY_S):
        return shown_s
    begin, end = ("\r", "\n" if last else "") if terminal else ("", "\n")
    print(f"{begin}{line}", end=end, file=sys.stderr, flush=True)  # noqa: T201
    return now_s
