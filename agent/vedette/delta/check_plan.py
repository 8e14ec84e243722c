"""What every plan must satisfy before anything of it is executed. Pure."""

from __future__ import annotations

from itertools import pairwise

from vedette.delta.layout import (
    CLASSES,
    MAX_FRAME_BYTES,
    MAX_GROWN_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_RANK,
    Growth,
    Operation,
    Plan,
    Predictor,
)
from vedette.delta.varint import damaged


def check_plan(plan: Plan) -> None:
    """Insist that no operation leaves the two files, meets another, or asks for more memory than stated.

    Raises:
        BadInputError: One does.
    """
    made = sorted((op.target, op.end) for op in plan.operations)
    for (_, end), (start, _) in pairwise(made):
        if end > start:
            raise damaged("two operations make the same bytes")
    for frame in plan.frames:
        if frame.size_bytes > MAX_PAYLOAD_BYTES:
            raise damaged(f"a frame's payload of {frame.size_bytes} bytes; {MAX_PAYLOAD_BYTES} is the limit")
        coded = sum(op.size_bytes for op in frame.operations if op.coded)
        if coded > MAX_FRAME_BYTES:
            raise damaged(f"a frame of {coded} bytes; {MAX_FRAME_BYTES} is the limit")
        for op in frame.operations:
            _check_operation(op, plan)


def _check_operation(op: Operation, plan: Plan) -> None:
    inside_new = op.target >= 0 and op.end <= plan.new_bytes
    inside_old = not op.source_bytes or (op.source >= 0 and op.source + op.source_bytes <= plan.old_bytes)
    if not (inside_new and inside_old):
        raise damaged("an operation leaves the file")
    numbers = 0 <= op.base_class < CLASSES and 0 <= op.shift < op.element.bits and 0 <= op.reference <= 255
    limit = 1 << op.element.bits - 1
    if not numbers or not -limit <= op.centre <= 2 * limit - 1 or (op.shift and not op.element.is_float):
        raise damaged("an operation's numbers make no sense")
    axis = op.columns if op.by_column else op.rows
    if op.predictor in {Predictor.SCALE, Predictor.GAIN, Predictor.THRESHOLD}:
        if not 1 <= op.scales <= axis or axis % op.scales or op.element.name == "bfloat16":
            raise damaged(f"{op.scales} factors for an axis of {axis}")
    elif op.scales:
        raise damaged("factors where none are used")
    _check_references(op, plan)
    if op.rank:
        _check_rank(op)
    if op.growth is not None:
        _check_growth(op, op.growth)


def _check_references(op: Operation, plan: Plan) -> None:
    if op.predictor is Predictor.SCALE:
        reads_old = 0 <= op.scale_source <= plan.old_bytes - 4 * op.scales
        if op.element.is_float or not reads_old or not 0 <= op.scale_target <= plan.new_bytes - 4 * op.scales:
            raise damaged("scales lie outside of the file")
    if op.predictor is Predictor.PRODUCT and (
        op.element.name != "float32" or not 0 <= op.scale_target <= plan.new_bytes - op.size_bytes
    ):
        raise damaged("the vector of a product lies outside of the file")


def _check_rank(op: Operation) -> None:
    known = op.predictor in {Predictor.OLD, Predictor.SCALE, Predictor.GAIN}
    if not known or op.element.name == "bfloat16" or not 0 < op.rank <= MAX_RANK:
        raise damaged(f"{op.rank} outer products on a prediction that takes none")
    if op.direction_bytes > op.size_bytes:
        raise damaged("outer products larger than their tensor")


def _check_growth(op: Operation, growth: Growth) -> None:
    known = op.predictor in {Predictor.OLD, Predictor.SCALE, Predictor.GAIN, Predictor.THRESHOLD}
    block = growth.new * growth.inner
    if not known or min(growth.old, growth.new, growth.inner) < 1 or op.count % block:
        raise damaged("a grown axis that does not fit its tensor")
    if max(op.source_bytes, op.size_bytes) > MAX_GROWN_BYTES:
        raise damaged(f"a grown tensor above {MAX_GROWN_BYTES} bytes")
