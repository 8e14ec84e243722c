"""Which relative file names a bundle may use. Pure."""

from __future__ import annotations

import posixpath

MAX_NAME_BYTES = 255
_UNPORTABLE = frozenset('*?<>|":')


def name_fault(name: str) -> str | None:
    """Say why a name may not stand in a bundle; None when it may.

    A good name is relative, normalised, with forward slashes, and means the same on every file system.
    """
    if not name:
        return "is empty"
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        return "holds a NUL or control character"
    if "\\" in name:
        return "holds a backslash; use forward slashes"
    if name.startswith("/"):
        return "is an absolute path; name files relative to the bundle's folder"
    return _component_fault(name) or _encoding_fault(name)


def _component_fault(name: str) -> str | None:
    parts = name.split("/")
    if ".." in parts:
        return "leaves the bundle's folder (`..`)"
    if "" in parts or "." in parts:
        return f"is not normalised; write {posixpath.normpath(name)!r}"
    unportable = sorted(_UNPORTABLE & set(name))
    if unportable:
        return f"holds {' '.join(unportable)}, which not every file system can store"
    return None


def _encoding_fault(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if size > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    return None
