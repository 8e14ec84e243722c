"""From the large model's words to the bundle's classes: labels and signed aliases, nothing guessed. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_WORD = 256


def folded(word: str) -> str:
    """How words are compared: without case, spaces at the ends or doubled, and ways to write one letter."""
    return " ".join(unicodedata.normalize("NFKC", word[:MAX_WORD]).casefold().split())


class LabelMap:
    """One bundle's words.

    Raises:
        BundleError: An alias stands for a label that is none, or for another label's own name.
    """

    def __init__(self, labels: Sequence[str], aliases: Mapping[str, str]) -> None:
        self._labels = tuple(labels)
        self._index: dict[str, int] = {}
        for index, label in enumerate(labels):
            self._index.setdefault(folded(label), index)  # of two equal names the first is meant
        own = dict(self._index)
        for word, label in aliases.items():
            index = own.get(folded(label), -1)
            if index < 0:
                raise BundleError(
                    f"the alias {word[:64]!r} stands for {label[:64]!r}, which is no label of this bundle",
                    cure="correct the file of aliases, and pack the bundle again",
                )
            if own.get(folded(word), index) != index:
                raise BundleError(
                    f"the alias {word[:64]!r} is the name of another label",
                    cure="leave it out: a label stands for itself",
                )
            self._index[folded(word)] = index

    def index_of(self, word: str) -> int | None:
        """The class that a word means; None for any other word."""
        return self._index.get(folded(word))

    def __getitem__(self, index: int) -> str:
        return self._labels[index]
