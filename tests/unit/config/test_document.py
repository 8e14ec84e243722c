"""Documents against structs: every problem at once, in words of the person who wrote the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003 - msgspec reads annotations at run time
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from vedette.config.document import Notation, line_index, parse_document
from vedette.errors import ConfigError
from vedette.wire.bundle import ModelSpec


class Speed(str, Enum):
    """A closed set."""

    SLOW = "slow"
    FAST = "fast"


def dozens(value: object) -> int:
    if not isinstance(value, str) or not value.endswith("dz"):
        raise ValueError("expected dozens, such as 3dz")
    return 12 * int(value[:-2])


class Leaf(msgspec.Struct, frozen=True):
    """A nested struct with a rule of its own."""

    low: float = 0.0
    high: float = 1.0

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        if "low" in fields and "high" in fields and fields["low"] > fields["high"]:
            yield ("low",), "is above high"


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One of everything."""

    name: str
    count: Annotated[int, Meta(ge=1)] = 1
    speed: Speed = Speed.SLOW
    auto: Annotated[float, Meta(gt=0)] | Literal["auto"] | None = "auto"
    flag: bool = False
    leaf: Leaf = Leaf()
    maybe: Leaf | None = None
    leaves: dict[str, Leaf] = {}
    rows: tuple[Leaf, ...] = ()
    pair: tuple[int, int] = (0, 0)
    words: Annotated[tuple[str, ...], Meta(min_length=1, max_length=2)] = ("x",)
    eggs: Annotated[int, Notation(dozens)] = 12
    renamed: int = msgspec.field(default=0, name="other-name")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, Root, origin="x.yaml")
    assert caught.value.cause.startswith("x.yaml: ")
    return list(caught.value.problems)


def test_a_good_document_fills_the_struct() -> None:
    text = """
name: "007"
auto: 2
maybe:
leaves: {a: {high: 3}}
rows: [{low: -1}, {}]
pair: [3, 4]
words: [a, b]
eggs: 2dz
other-name: 5
"""
    assert parse_document(text, Root, origin="x") == Root(
        name="007",
        auto=2.0,
        maybe=None,
        leaves={"a": Leaf(high=3.0)},
        rows=(Leaf(low=-1.0), Leaf()),
        pair=(3, 4),
        words=("a", "b"),
        eggs=24,
        renamed=5,
    )


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    text = """count: 0
speed: fats
auto: never
flag: yes
leaf: {low: 2, hihg: 5}
leaves:
  a: {low: x}
  b: 7
rows:
  - {low: 1, high: 0}
  - {nope: 1}
pair: [1, a]
words: []
eggs: 3
count: 2
"""
    assert problems(text) == [
        "line 1: (document): key `name` is missing",
        "line 2: speed: `fats` is none of: slow, fast",
        "line 3: auto: `never` is none of: auto, a number",
        "line 4: flag: expected true or false, got text",
        "line 5: leaf.hihg: unknown key; did you mean `high`?",
        "line 5: leaf.low: is above high",
        "line 7: leaves.a.low: expected number, got text",
        "line 8: leaves.b: expected a mapping, got whole number",
        "line 10: rows.0.low: is above high",
        "line 11: rows.1.nope: unknown key; known keys: high, low",
        "line 12: pair.1: expected whole number, got text",
        "line 13: words: needs at least 1, has 0",
        "line 14: eggs: expected dozens, such as 3dz",
        "line 15: count: given twice",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name: 7", "name: expected text, got whole number"),
        ("name:", "name: expected text, got nothing"),
        ("name: [a]", "name: expected text, got list"),
        ("name: {a: 1}", "name: expected text, got mapping"),
        ("{name: a, count: 1.5}", "count: expected whole number, got number"),
        ("{name: a, count: true}", "count: expected whole number, got true or false"),
        ("{name: a, count: -3}", "count: expected whole number >= 1"),
        ("{name: a, auto: 1e999}", "auto: the number is too large"),
        ("{name: a, auto: .inf}", "auto: `.inf` is none of: auto, a number"),
        ("{name: a, auto: .nan}", "auto: `.nan` is none of: auto, a number"),
        ("{name: a, auto: [1]}", "auto: expected number or text or nothing, got list"),
        ("{name: a, leaf: }", "leaf: is empty; fill it in or remove the key"),
        ("{name: a, leaf: [1]}", "leaf: expected a mapping, got list"),
        ("{name: a, leaves: [1]}", "leaves: expected mapping, got list"),
        ("{name: a, rows: {a: 1}}", "rows: expected list, got mapping"),
        ("{name: a, words: [a, b, c]}", "words: takes at most 2, has 3"),
        ("{name: a, pair: [1]}", "pair: expected list of length 2, got 1"),
        ("{name: a, renamed: 1}", "renamed: unknown key"),
        ("{name: a, 5: 1}", "5: unknown key"),
        ("[name]", "(document): expected a mapping, got list"),
        ("just words", "(document): expected a mapping, got text"),
        ("---", "(document): is empty"),
    ],
)
def test_the_words_are_those_of_yaml(text: str, what: str) -> None:
    said = problems(text)
    assert len(said) == 1
    assert said[0].startswith(f"line 1: {what}")


def test_a_rule_across_fields_is_checked_beside_broken_ones() -> None:
    said = problems("name: 7\nleaf: {low: 5}\n")
    assert said == ["line 1: name: expected text, got whole number", "line 2: leaf.low: is above high"]


def test_what_expansion_refused_is_not_complained_about_twice() -> None:
    def refuse(_path: tuple[str, ...], text: str) -> str:
        if text == "$X":
            raise ValueError("X is not set")
        return text

    with pytest.raises(ConfigError) as caught:
        parse_document("name: a\nspeed: $X\neggs: $X\n", Root, origin="x", expand=refuse)
    assert caught.value.problems == ("line 2: speed: X is not set", "line 3: eggs: X is not set")


def test_items_of_a_list_of_structs_are_checked_one_by_one() -> None:
    """The bundle's schema has such lists: a typo in one must not pass."""
    text = """schema: 1
name: m
version: "1"
task: classify
engine: litert
file: m.tflite
input: {size: [96, 96], layout: nhwc}
output:
  layout: scores
  quantisation:
    - {scale: 0.1}
    - {scale: 0.1, zero_pont: 3}
"""
    with pytest.raises(ConfigError) as caught:
        parse_document(text, ModelSpec, origin="model.yaml")
    assert caught.value.problems == (
        "line 12: output.quantisation.1.zero_pont: unknown key; did you mean `zero_point`?",
    )


def test_line_index_knows_every_key() -> None:
    assert line_index("a:\n  b: 1\n")[("a", "b")] == 2
    with pytest.raises(ConfigError, match="not valid YAML"):
        line_index("a: [")
