"""YAML text to plain values, with the line of every key. Pure.

Scalars follow YAML 1.2 (`yes`, `on`, `010` and `12:30` are what they look like, not booleans, octal or
base 60), keys are always text, and a document has bounds on size, depth and nodes, because aliases can make
a short text unfold to billions of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
import yaml

from vedette.errors import ConfigError

Path = tuple[str, ...]
Problem = tuple[Path, str]
Expand = Callable[[Path, str], str]
"""Rewrites one string of the document; its ValueError becomes a problem at that path."""

MAX_DOCUMENT_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000

_TAG = "tag:yaml.org,2002:"
_STR, _MERGE = f"{_TAG}str", f"{_TAG}merge"
# YAML 1.2's core schema (yaml.org/spec/1.2.2, 10.3.2) without infinities and NaN: pattern, first characters.
_SCALARS: dict[str, tuple[re.Pattern[str], str]] = {
    f"{_TAG}bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    f"{_TAG}null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN"),
    f"{_TAG}int": (re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789"),
    f"{_TAG}float": (
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
        "-+0123456789.",
    ),
    _MERGE: (re.compile(r"<<\Z"), "<"),
}


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """First character of a plain scalar to what it may be; an empty scalar has the first character ''."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {"": [(f"{_TAG}null", _SCALARS[f"{_TAG}null"][0])]}
    for tag, (pattern, first) in _SCALARS.items():
        for character in first:
            table.setdefault(character, []).append((tag, pattern))
    return table


class _Loader(yaml.SafeLoader):
    """A loader that knows text, numbers, booleans, null, lists and mappings, and nothing else."""

    yaml_implicit_resolvers = _resolvers()

    def integer(self, node: yaml.ScalarNode) -> int:
        """Decimal, `0x` or `0o`; a leading zero does not make it octal."""
        text = node.value.lower()
        if text.startswith("0x"):
            return int(text, 16)
        return int(text, 8) if text.startswith("0o") else int(text)

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own class attribute
        **{
            tag: yaml.SafeLoader.yaml_constructors[tag]
            for tag in (None, *(f"{_TAG}{name}" for name in ("null", "bool", "float", "str", "seq", "map")))
        },
        f"{_TAG}int": integer,
    }


class YamlTree(msgspec.Struct):
    """A document as plain values; `lines` gives the line (from 1) of every key path."""

    value: Any
    lines: dict[Path, int]
    problems: list[Problem]

    def line_of(self, path: Path) -> int:
        """Line of a path, or of the nearest parent that is written down."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, *, origin: str, expand: Expand | None = None) -> YamlTree:
    """Read one YAML document.

    Args:
        text: The document.
        origin: File name for the messages.
        expand: Rewrites every string value (not keys), for instance to fill in environment variables.

    Returns:
        The values; `problems` holds keys given twice and what `expand` refused.

    Raises:
        ConfigError: Not YAML, empty, or beyond the bounds.
    """
    if len(text.encode(errors="replace")) > MAX_DOCUMENT_BYTES:
        raise ConfigError(f"{origin}: larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise ConfigError(f"{origin}: the document is empty")
            walk = _Walk(origin, expand)
            walk.visit(node, ())
            return YamlTree(loader.construct_document(node), walk.lines, walk.problems)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError(f"{origin}: not valid YAML", problems=(_explain(error, text),)) from error
    except RecursionError as error:
        raise ConfigError(f"{origin}: nested too deeply") from error


def dotted(path: Path) -> str:
    """A key path for people."""
    return ".".join(path) if path else "(document)"


def _explain(error: Exception, text: str) -> str:
    """One line: where the YAML is broken, and how."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"line {line}: the character U+{ord(text[error.position]):04X} is not allowed"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = [getattr(error, "context", None), getattr(error, "problem", None)]
    what = ": ".join(part for part in said if part) or str(error)
    where = f"line {mark.line + 1}" if mark is not None else "document"
    if "found character '\\t'" in what:
        what += "; indent with spaces, not with tabs"
    return f"{where}: {what}"


class _Walk:
    """One pass over the nodes: lines, keys given twice, bounds, expansion of strings."""

    def __init__(self, origin: str, expand: Expand | None) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self._origin = origin
        self._expand = expand
        self._expanded: set[int] = set()
        self._visited = 0

    def visit(self, node: yaml.Node, path: Path) -> None:
        """Note where each key stands; a shared (aliased) node counts each time that it is reached."""
        self._visited += 1
        if len(path) > MAX_DEPTH:
            raise ConfigError(f"{self._origin}: nested more than {MAX_DEPTH} levels deep")
        if self._visited > MAX_NODES:
            raise ConfigError(f"{self._origin}: more than {MAX_NODES:,} values, aliases unfolded")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, (*path, str(index)))
        elif node.tag in _SCALARS and not _SCALARS[node.tag][0].match(node.value):
            self.problems.append((path, f"`{node.value}` is not what the tag says"))
            node.tag = _STR
        elif node.tag == _STR and self._expand is not None and id(node) not in self._expanded:
            self._expanded.add(id(node))  # an alias shares the node: what came out is never expanded again
            try:
                node.value = self._expand(path, node.value)
            except ValueError as error:
                self.problems.append((path, str(error)))

    def _visit_mapping(self, node: yaml.MappingNode, path: Path) -> None:
        seen: set[str] = set()
        # Merged mappings come first, so that a key that overrides them is found where it stands.
        for key_node, value_node in sorted(node.value, key=lambda pair: pair[0].tag != _MERGE):
            if key_node.tag == _MERGE:
                self.visit(value_node, path)
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(
                    f"{self._origin}: not valid YAML",
                    problems=(f"line {line}: {dotted(path)}: a key must be plain text",),
                    cure="put quotes around a value that begins with a bracket or a brace",
                )
            key_node.tag = _STR
            here = (*path, cast("str", key_node.value))
            self.lines[here] = line
            if key_node.value in seen:
                self.problems.append((here, "given twice"))
            seen.add(key_node.value)
            self.visit(value_node, here)
