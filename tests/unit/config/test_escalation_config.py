"""The section about the large model, as it will be written."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.config.document import parse_document
from vedette.config.escalation import EscalationConfig, parse_share, parse_target
from vedette.errors import ConfigError

LEAST = "{provider: oip, url: 'https://cloud', model: large, policy: {target: 98% of cloud}"


def parsed(more: str = "") -> EscalationConfig:
    return parse_document(f"{LEAST}{more}}}", EscalationConfig, origin="x", expand=lambda _, raw: raw)


def test_a_promise_is_written_as_people_say_it() -> None:
    config = parsed(", audit: {share: 5%}, budget: {per_day: 2000, bytes_per_day: 50MB}")
    assert config.policy.target == pytest.approx(0.98)
    assert (config.audit.share, config.budget.bytes_per_day) == (0.05, 50_000_000)
    assert (config.hold, config.deadline_ms, config.privacy.send) == (False, 3000.0, "frame")


@pytest.mark.parametrize(
    "value", ["98%", "100% of cloud", "50% of cloud", "98 of cloud", 0.98, None, "٩8% of cloud"]
)
def test_what_is_no_promise(value: Any) -> None:  # noqa: ANN401 - a YAML value is anything
    with pytest.raises(ValueError, match="98% of cloud"):
        parse_target(value)


@pytest.mark.parametrize(
    ("value", "share"), [("2%", 0.02), ("0.5 %", 0.005), (0.25, 0.25), (1, 1.0), (0, 0.0)]
)
def test_shares(value: Any, share: float) -> None:  # noqa: ANN401
    assert parse_share(value) == pytest.approx(share)


@pytest.mark.parametrize("value", ["2", "-1%", "101%", 2, -0.1, True, None])
def test_what_is_no_share(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match='"2%"'):
        parse_share(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LEAST.replace("{target: 98% of cloud}", "{}") + "}", "exactly one of"),
        (LEAST.replace("{target: 98% of cloud}", "{threshold: 0.9, selective: 2%}") + "}", "exactly one of"),
        (LEAST.replace("https://cloud", "ftp://cloud") + "}", "no http:// or https:// address"),
        (LEAST + ", key: x, key_file: y}", "one too many"),
        (LEAST + ", in_flight: 0}", "in_flight"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, EscalationConfig, origin="x", expand=lambda _, raw: raw)
    assert words in "\n".join(caught.value.problems)
