"""YAML without its surprises: what is written is what is meant, and a bad file gets a line number."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.config.yaml_tree import parse_yaml
from vedette.errors import ConfigError


def value_of(text: str) -> object:
    tree = parse_yaml(text, origin="x.yaml")
    assert tree.problems == []
    return tree.value


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, origin="x.yaml")
    return caught.value.diagnostics()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("22:30", "22:30"),
        ("1:2:3", "1:2:3"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("-7", -7),
        ("1e3", 1000.0),
        ("1.5E-2", 0.015),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.2.3", "1.2.3"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2026-11-30", "2026-11-30"),
        ("=", "="),
        ("~", None),
        ("null", None),
        ("", None),
        ("'5'", "5"),
    ],
)
def test_a_scalar_is_what_it_looks_like(written: str, meant: object) -> None:
    """The kind: Norway's `no`, times in base 60, file modes in octal, dates."""
    assert value_of(f"key: {written}") == {"key": meant}
    assert type(value_of(f"key: {written}")["key"]) is type(meant)  # type: ignore[index]


def test_keys_are_text_whatever_they_look_like() -> None:
    assert value_of("{1: a, true: b, ~: c, on: d, 1.50: e}") == {
        "1": "a",
        "true": "b",
        "~": "c",
        "on": "d",
        "1.50": "e",
    }


def test_every_key_has_its_line() -> None:
    tree = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n", origin="x")
    assert tree.lines[("a", "b")] == 2
    assert tree.lines[("a", "c", "1")] == 5
    assert tree.lines[("a", "c", "1", "y")] == 5
    assert tree.line_of(("a", "c", "1", "nowhere", "deeper")) == 5
    assert tree.line_of(("z",)) == 1


def test_merged_mappings_keep_the_lines_of_what_overrides_them() -> None:
    text = "base: &b\n  fps: 1\n  loop: true\nfront:\n  fps: 5\n  <<: *b\nback:\n  <<: *b\n"
    tree = parse_yaml(text, origin="x")
    assert tree.value["front"] == {"fps": 5, "loop": True}
    assert tree.problems == []
    assert tree.lines[("front", "fps")] == 5
    assert tree.lines[("back", "fps")] == 2


def test_a_key_given_twice_is_a_problem_also_when_it_is_spelt_otherwise() -> None:
    tree = parse_yaml("a: 1\nb: {c: 1, c: 2}\n'a': 3\n", origin="x")
    assert tree.problems == [(("b", "c"), "given twice"), (("a",), "given twice")]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "','"),
        ("a: 1\n b: 2\n", 2, "mapping values are not allowed"),
        ("a:\n\t- b\n", 2, "indent with spaces"),
        ("a: 'x\n", 2, "end of stream"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("a: *nobody\n", 1, "undefined alias"),
        ("a: !!python/object:os.system x\n", 1, "could not determine a constructor"),
        ("a: !secret x\n", 1, "could not determine a constructor"),
        ("a: !!binary aGk=\n", 1, "could not determine a constructor"),
        ("a: 1\nb: {{ host }}\n", 2, "a key must be plain text"),
        ("? [a, b]\n: c\n", 1, "a key must be plain text"),
        ("a: 1\nb: \x00\n", 2, "U+0000"),
        ("a: 1\nb: \x1b[0m\n", 2, "U+001B"),
        ("<<: 5\n", 1, "merging"),
    ],
)
def test_broken_yaml_names_the_line(text: str, line: int, what: str) -> None:
    said = refusal(text)
    assert f"line {line}: " in said
    assert what in said


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n", "---\n"])
def test_an_empty_document_is_said_to_be_empty(text: str) -> None:
    if text == "---\n":
        assert value_of(text) is None
    else:
        assert "the document is empty" in refusal(text)


def test_a_tag_that_lies_is_a_problem() -> None:
    tree = parse_yaml("a: !!bool maybe\nb: !!int five\nc: !!float x\nd: !!null y\n", origin="x")
    assert [path for path, _ in tree.problems] == [("a",), ("b",), ("c",), ("d",)]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    tree = parse_yaml("\ufeffa: 1\r\nb: 2\r\n", origin="x")
    assert tree.value == {"a": 1, "b": 2}
    assert tree.lines[("b",)] == 2


def test_aliases_that_unfold_to_billions_are_refused_at_once() -> None:
    """A few hundred bytes must not take the box down."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    merges = "m0: &m0 {k: 1}\n"
    merges += "".join(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}\n" for i in range(1, 12))
    began_s = time.monotonic()
    assert "aliases unfolded" in refusal(bomb)
    assert "aliases unfolded" in refusal(merges)
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: &a [*a]\n", "levels deep"),
        ("a: &a {b: *a}\n", "levels deep"),
        ("a: &a {<<: *a}\n", "more than|deep"),
        ("[" * 5000 + "]" * 5000, "deep"),
        ("a: " + "[" * 40 + "]" * 40, "levels deep"),
        ("a: " + "x" * 1_100_000, "larger than"),
        ("é" * 600_000, "larger than"),
        ("[" + "1," * 30_000 + "]", "more than 20,000"),
        ("a: " + "9" * 5000, "not valid YAML|digits"),
    ],
)
def test_documents_have_bounds(text: str, what: str) -> None:
    said = refusal(text)
    assert any(part in said for part in what.split("|")), said


def test_strings_are_expanded_once_and_keys_never() -> None:
    seen = []

    def shout(path: tuple[str, ...], text: str) -> str:
        seen.append(path)
        return text.upper() + "!"

    tree = parse_yaml("a: &x one\nb: *x\nc: [two, 3, true]\n", origin="x", expand=shout)
    assert tree.value == {"a": "ONE!", "b": "ONE!", "c": ["TWO!", 3, True]}
    assert seen == [("a",), ("c", "0")]


def test_what_expansion_refuses_is_a_problem_of_that_key() -> None:
    def refuse(_path: tuple[str, ...], text: str) -> str:
        raise ValueError(f"no {text}")

    assert parse_yaml("a: 1\nb: x\n", origin="x", expand=refuse).problems == [(("b",), "no x")]


words = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="\u2028\u2029\ufeff"), max_size=12
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e300, 1e300) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(words, plain, min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_json_is_read_as_what_it_is(value: dict[str, object], indent: int | None) -> None:
    """Tools that write configurations write JSON; every number, text and key arrives as it was."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    assert parse_yaml(text, origin="x").value == value


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!<>|'\"?,# \n\t~%@`1.0e", max_size=40))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        parse_yaml(text, origin="x")
    except ConfigError as error:
        assert error.diagnostics()  # noqa: PT017 - either way is right, a crash is not
