"""A long load tells that it lives, from CPU time and never from a timer alone (case 2, case 55)."""

from __future__ import annotations

import threading

from vedette.engine.long_step import busy_line, watched


def test_a_step_that_burns_time_is_reported() -> None:
    """With its age, so that nobody thinks it died."""
    assert (
        busy_line("building", elapsed_s=70, burnt_s=9.5, interval_s=10) == "building: still at it after 70 s"
    )


def test_a_step_that_burns_nothing_is_not() -> None:
    """A true hang must still run into the supervisor's limit."""
    assert busy_line("building", elapsed_s=70, burnt_s=0.01, interval_s=10) is None


def test_lines_come_while_the_body_works() -> None:
    """The body burns CPU until the first line was seen."""
    heard = threading.Event()
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        heard.set()

    with watched("compiling", progress, interval_s=0.02):
        while not heard.is_set():
            sum(range(1000))
    assert lines[0].startswith("compiling: still at it")


def test_a_quick_step_says_nothing_and_leaves_no_thread() -> None:
    """Most loads are over before the first interval."""
    lines: list[str] = []
    with watched("loading", lines.append, interval_s=30):
        pass
    assert lines == []
    assert not [thread for thread in threading.enumerate() if thread.name == "load-progress"]
