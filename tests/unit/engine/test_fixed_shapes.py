"""One fixed shape reaches the runtime (case 4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.engine.shapes import bind_symbols, fix_shape
from vedette.errors import BundleError

AXES = st.lists(st.integers(1, 64), min_size=1, max_size=5)


@given(shape=AXES, data=st.data())
def test_open_axes_take_the_wanted_size(shape: list[int], data: st.DataObject) -> None:
    """Whatever mixture of numbers, symbols and unknown axes the model declares."""
    declared = [
        data.draw(st.sampled_from([size, None, f"axis{index}", -1])) for index, size in enumerate(shape)
    ]
    assert fix_shape("x", declared, shape) == tuple(shape)


def test_without_a_wish_only_the_batch_may_be_open() -> None:
    """It is then 1; an open height cannot be guessed."""
    assert fix_shape("x", ["N", 3, 8, 8], ()) == (1, 3, 8, 8)
    with pytest.raises(BundleError, match=r"\[N, 3, h, w\]"):
        fix_shape("x", ["N", 3, "h", "w"], ())


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [([1, 3, 8, 8], (1, 8, 8, 3)), ([1, 8, 8], (1, 8, 8, 1)), ([None, 4], (0, 4)), ([2, 4], (1, 4))],
)
def test_another_shape_names_both(declared: list[int | None], wanted: tuple[int, ...]) -> None:
    """Layout mixed up, rank, nonsense, another batch."""
    with pytest.raises(BundleError, match="the bundle wants"):
        fix_shape("picture", declared, wanted)


def test_one_symbol_has_one_size() -> None:
    """A square model given a rectangle."""
    assert bind_symbols(["N", 3, "side", "side"], (1, 3, 8, 8)) == {"N": 1, "side": 8}
    with pytest.raises(BundleError, match="both 8 and 9"):
        bind_symbols(["N", 3, "side", "side"], (1, 3, 8, 9))
