"""One fixed shape reaches the runtime: symbolic axes are bound before opening (casebook 4). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Sequence


def fix_shape(name: str, declared: Sequence[int | str | None], wanted: Sequence[int]) -> tuple[int, ...]:
    """Bind the open axes of one input.

    Args:
        name: The input's name, for the message.
        declared: The model's axes; a symbol's name, None or a number below 1 means open.
        wanted: The shape asked for, batch included; if empty, only the batch may be open.

    Returns:
        A shape of positive numbers.

    Raises:
        BundleError: A fixed axis is another number than wanted, the rank differs, or an open axis stays open.
    """
    open_axes = [axis if isinstance(axis, int) and axis > 0 else None for axis in declared]
    if not wanted:
        wanted = [1 if axis is None and index == 0 else axis or 0 for index, axis in enumerate(open_axes)]
    fits = len(wanted) == len(open_axes) and all(
        axis in (None, size) for axis, size in zip(open_axes, wanted, strict=True)
    )
    if not fits or any(size < 1 for size in wanted):
        raise BundleError(
            f"the model's input {name!r} is {_text(declared)}, the bundle wants {_text(wanted)}",
            cure="correct input.size or input.layout in model.yaml, or export the model for that shape",
        )
    return tuple(wanted)


def bind_symbols(declared: Sequence[int | str | None], shape: Sequence[int]) -> dict[str, int]:
    """The size of each named symbolic axis.

    Raises:
        BundleError: One name would have two sizes.
    """
    sizes: dict[str, int] = {}
    for axis, size in zip(declared, shape, strict=True):
        if isinstance(axis, str) and sizes.setdefault(axis, size) != size:
            raise BundleError(f"the model's axis {axis!r} would be both {sizes[axis]} and {size}")
    return sizes


def _text(axes: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if axis is None else str(axis) for axis in axes) + "]"
