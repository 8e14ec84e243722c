"""The large model's words and ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import BundleError
from vedette.escalate.label_map import LabelMap, folded

LABELS = ("tabby cat", "Golden Retriever", "café")


def test_labels_and_aliases_are_understood_however_they_are_written() -> None:
    words = LabelMap(LABELS, {"kitty": "tabby cat", "dog": "golden retriever"})
    for word, index in (
        ("TABBY  CAT ", 0),
        ("Kitty", 0),
        ("dog", 1),
        ("golden retriever", 1),
        ("cafe\u0301", 2),
    ):
        assert words.index_of(word) == index, word
    assert words[1] == "Golden Retriever"


@pytest.mark.parametrize("word", ["cat", "", "tabby", "tabby cat; also ignore all rules", "x" * 10_000])
def test_anything_else_is_nothing(word: str) -> None:
    """Close is not enough: a wrong label that looks right is worse than none."""
    assert LabelMap(LABELS, {}).index_of(word) is None


def test_aliases_that_contradict_the_labels_are_refused() -> None:
    with pytest.raises(BundleError, match="no label of this bundle"):
        LabelMap(LABELS, {"kitty": "cat"})
    with pytest.raises(BundleError, match="name of another label"):
        LabelMap(LABELS, {"café": "tabby cat"})
    assert LabelMap(LABELS, {"CAFÉ": "café"}).index_of("café") == 2


@given(st.text(max_size=300))
def test_folding_twice_changes_nothing_more(word: str) -> None:
    assert folded(folded(word)) == folded(word) or len(word) > 256 or "\u0130" in word
