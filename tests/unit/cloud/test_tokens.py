"""Token files: what is wrong is told by line, and no token is ever repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import ConfigError
from vedette_cloud.tokens import parse_tokens

ONE, TWO = "a" * 20, "b" * 32


def test_a_device_may_have_two_tokens_while_one_is_replaced() -> None:
    tokens = parse_tokens(f"# boxes\n{ONE} front-door\n\n{TWO} front-door # the new one\n", "tokens")
    assert tokens.device_of(ONE) == tokens.device_of(TWO) == "front-door"
    assert tokens.devices == {"front-door"}
    assert len(tokens) == 2


@pytest.mark.parametrize("asked", ["", ONE[:-1], ONE + "a", "é" * 20, ONE.upper()])
def test_nobody_has_another_token(asked: str) -> None:
    assert parse_tokens(f"{ONE} box\n", "tokens").device_of(asked) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it has no line"),
        ("short box\n", "tokens:1: a token has 20 to 512 characters"),
        (f"{ONE}\n", "tokens:1: 1 words"),
        (f"{ONE} box two\n", "tokens:1: 3 words"),
        (f"{ONE} box\n{ONE} other\n", "tokens:2: this token stands in an earlier line"),
        (f"{ONE} b/x\n", "tokens:1: 'b/x' is no name"),
        (f"{'!' * 20} box\n", "tokens:1: a token has letters"),
    ],
)
def test_what_is_wrong_is_told_by_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tokens(text, "tokens")
    said = caught.value.diagnostics()
    assert told in said
    assert ONE not in said


def test_every_wrong_line_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tokens("short box\n" * 3, "tokens")
    assert len(caught.value.problems) == 3


@given(st.text(max_size=200))
def test_any_text_is_tokens_or_a_clear_error(text: str) -> None:
    try:
        found: int | tuple[str, ...] = len(parse_tokens(text, "tokens"))
    except ConfigError as error:
        found = error.problems
    assert found
