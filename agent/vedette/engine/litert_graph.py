"""Which nodes of a TFLite graph a delegate took over, found from the graph itself. Pure.

A delegate replaces a connected set of nodes by one `DELEGATE` node, appended to the list, with the outer
inputs and outputs of the set; the replaced nodes stay listed. So its nodes are those met on the way back from
its outputs to its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DELEGATE = "DELEGATE"


def count_delegated(operators: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Count nodes of the model that delegates run, and all nodes of the model.

    Args:
        operators: `op_name`, `inputs` and `outputs` (tensor indices) of each node, delegates' nodes last.
    """
    originals = [operator for operator in operators if operator["op_name"] != DELEGATE]
    makers = {
        int(tensor): index for index, operator in enumerate(originals) for tensor in operator["outputs"]
    }
    taken: set[int] = set()
    for delegate in operators:
        if delegate["op_name"] == DELEGATE:
            taken |= _behind(delegate["outputs"], frozenset(map(int, delegate["inputs"])), originals, makers)
    return len(taken), len(originals)


def _behind(
    outputs: Iterable[int],
    border: frozenset[int],
    originals: Sequence[Mapping[str, Any]],
    makers: Mapping[int, int],
) -> set[int]:
    found: set[int] = set()
    pending = [int(tensor) for tensor in outputs]
    while pending:
        maker = makers.get(pending.pop())
        if maker is None or maker in found:
            continue
        found.add(maker)
        pending.extend(int(tensor) for tensor in originals[maker]["inputs"] if int(tensor) not in border)
    return found
