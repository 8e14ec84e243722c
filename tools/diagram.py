"""Prints the README's section on the life of an update, from the update machine's own table.

`python tools/diagram.py` prints it; `python tools/diagram.py --write README.md` puts it between its markers.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.update import events as ev
from vedette.update import guards
from vedette.update.phases import PHASES, STAGED, Phase
from vedette.update.table import BY_PHASE_AND_EVENT, RECOVERY, Recovery, Row, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

BEGIN = "<!-- begin: tools/diagram.py -->"
END = "<!-- end: tools/diagram.py -->"
_GROUP = "staged"
_LADDER = (ev.ProvenBad, ev.ProvenServes)  # of models to fall back to: the same in every other phase


def section() -> str:
    """The diagram and the table of phases, as Markdown."""
    return "\n".join([BEGIN, "```mermaid", *diagram(), "```", "", *phases(), END])


def diagram() -> Iterator[str]:
    """A Mermaid state diagram: every row that changes the phase."""
    edges = _edges()
    inside = {key: labels for key, labels in edges.items() if key[0] in _STAGED and key[1] in _STAGED}
    yield "stateDiagram-v2"
    yield "  [*] --> idle"
    yield f'  state "before the switch" as {_GROUP} {{'
    yield from (f"    {line}" for line in _lines(inside))
    yield "  }"
    yield from (f"  {line}" for line in _lines({key: edges[key] for key in edges.keys() - inside.keys()}))
    yield "  note right of idle: safe, while no model is good"


def phases() -> Iterator[str]:
    """A Markdown table: what each phase does, whether the disk knows of it, how it recovers."""
    yield "| phase | what it does | on disk | after a restart |"
    yield "|---|---|---|---|"
    for phase, facts in PHASES.items():
        columns = RECOVERY[phase]
        steps = [_name(to.to).upper() + (_guards([to]) if len(columns) > 1 else "") for to in columns]
        kept = "yes" if facts.durable else "no"
        yield f"| {phase.name} | {facts.does} | {kept} | {', '.join(steps)} |"


_STAGED = frozenset(phase.value for phase in STAGED)


def _edges() -> dict[tuple[str, str], list[str]]:
    """Labels by (from, to); what all phases before the switch have in common is drawn once."""
    found: dict[tuple[str, str], list[str]] = {}
    common = _common()
    for (phase, event), rows in BY_PHASE_AND_EVENT.items():
        if event is ev.Started or (event in _LADDER and phase is not Phase.ROLLBACK):
            continue
        for to in dict.fromkeys(row.to for row in rows if row.to is not Target.STAY):
            same = [row for row in rows if row.to is to]
            source = _GROUP if phase in STAGED and _key(same[0]) in common else phase.value
            labels = found.setdefault((source, _name(to)), [])
            label = _words(event.__name__) + ("" if len(same) == len(rows) else _guards(same))
            if label not in labels:
                labels.append(label)
    return found


def _common() -> set[tuple[type[ev.Event], Callable[..., bool], Phase | Target]]:
    each = [
        {_key(row) for (of, _), rows in BY_PHASE_AND_EVENT.items() if of is phase for row in rows}
        for phase in STAGED
    ]
    return set.intersection(*each)


def _key(row: Row) -> tuple[type[ev.Event], Callable[..., bool], Phase | Target]:
    return row.event, row.when, row.to


def _lines(edges: dict[tuple[str, str], list[str]]) -> Iterable[str]:
    order = [*(phase.value for phase in Phase), _GROUP]
    for source, target in sorted(edges, key=lambda key: (order.index(key[0]), order.index(key[1]))):
        yield f"{source} --> {target}: {' / '.join(edges[source, target])}"


def _name(to: Phase | Target) -> str:
    return to.value if isinstance(to, Phase) else Phase.IDLE.value


def _guards(rows: Sequence[Row | Recovery]) -> str:
    """The conditions of some of the rows for one event."""
    names = ["else" if row.when is guards.always else _words(row.when.__name__) for row in rows]
    return f" [{', '.join(names)}]"


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def main() -> int:
    """Print the section, or write it into a file between its markers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the section in this file")
    target = parser.parse_args().write
    if target is None:
        sys.stdout.write(section() + "\n")
        return 0
    text = target.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.stderr.write(f"{target}: needs one line {BEGIN} and one line {END}\n")
        return 65
    before, rest = text.split(BEGIN)
    target.write_text(before + section() + rest.split(END)[1], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
