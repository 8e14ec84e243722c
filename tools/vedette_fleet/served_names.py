"""Which files of a repository anybody may read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def may_be_served(name: str, folders: Collection[str]) -> bool:
    """Whether a name is that of a file below one of these folders, and nothing else in disguise."""
    parts = name.split("/")
    if len(parts) < 2 or parts[0] not in folders:
        return False
    hidden = any(not part or part.startswith(".") for part in parts)
    return not hidden and "\\" not in name and name.isprintable()
