"""A configuration as others may see it: every default filled in, no secret left. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.source.urls import redact_url

if TYPE_CHECKING:
    from vedette.config.agent import AgentConfig

_SECRET_KEY = re.compile(r"pass(?:word|wd|phrase)?$|secret|token|credential|api_?key", re.IGNORECASE)
HIDDEN = "***"


def public_config(config: AgentConfig) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    found: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    for key in ("origin", "notes"):
        del found[key]
    if found["escalation"] is not None and found["escalation"]["key"] is not None:
        found["escalation"]["key"] = HIDDEN
    shown: dict[str, Any] = _without_secrets(found)
    return shown


def _without_secrets(value: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {name: _without_secrets(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(inner, key) for inner in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if value and _SECRET_KEY.search(key) else redact_url(value)
