"""What an engine says of its tensors. Pure."""

from __future__ import annotations

import msgspec


class TensorInfo(msgspec.Struct, frozen=True):
    """One input or output as the runtime reports it; scale 0 means "not quantised" (casebook 10)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
