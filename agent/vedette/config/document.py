"""Strict YAML documents: every problem at once, each with its line and key path.

msgspec stops at the first error; a person who edits a file wants all of them, so structs are walked here and
msgspec judges the leaves.
"""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any, TypeVar

import msgspec
import yaml

from vedette.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)
Path = tuple[str, ...]
MAX_DOCUMENT_BYTES = 1 << 20
MAX_DEPTH = 32


class _Loader(yaml.SafeLoader):
    """SafeLoader without implicit timestamps and without YAML 1.1's yes/no/on/off booleans."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp)
        for tag, regexp in resolvers
        if tag != "tag:yaml.org,2002:timestamp"
        and not (tag == "tag:yaml.org,2002:bool" and first not in "tTfF")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_document(text: str, struct: type[T], *, origin: str) -> T:
    """Read one YAML document into a struct.

    Args:
        text: The document.
        struct: The msgspec struct to fill; unknown keys are errors.
        origin: File name for the messages.

    Returns:
        The filled struct.

    Raises:
        ConfigError: Any problem; `problems` lists all of them with line numbers.
    """
    if len(text) > MAX_DOCUMENT_BYTES:
        raise ConfigError(f"{origin}: larger than {MAX_DOCUMENT_BYTES} bytes")
    lines: dict[Path, int] = {}
    problems: list[str] = []
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise ConfigError(f"{origin}: the document is empty")
            _collect_lines(node, (), lines, problems, origin)
            value = loader.construct_document(node) if not problems else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "document"
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{origin}: not valid YAML", problems=(f"{where}: {what}",)) from error
    except RecursionError as error:
        raise ConfigError(f"{origin}: nested too deeply") from error
    if problems:
        raise ConfigError(f"{origin}: {_count(problems)}", problems=tuple(problems))
    found: list[tuple[Path, str]] = []
    result = _convert(value, struct, (), found)
    if found:
        ordered = sorted(found, key=lambda item: _line_of(item[0], lines))
        raise ConfigError(
            f"{origin}: {_count(found)}",
            problems=tuple(
                f"line {_line_of(path, lines)}: {_dotted(path)}: {what}" for path, what in ordered
            ),
        )
    return typing.cast("T", result)


def line_index(text: str) -> dict[Path, int]:
    """Line number (from 1) of every key path, for checks made after parsing."""
    lines: dict[Path, int] = {}
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _collect_lines(node, (), lines, [], "")
    finally:
        loader.dispose()
    return lines


def _count(problems: list[Any]) -> str:
    return "1 problem" if len(problems) == 1 else f"{len(problems)} problems"


def _dotted(path: Path) -> str:
    return ".".join(path) if path else "(document)"


def _line_of(path: Path, lines: dict[Path, int]) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _collect_lines(
    node: yaml.Node, path: Path, lines: dict[Path, int], problems: list[str], origin: str
) -> None:
    """Note where each key stands; duplicates, aliases in circles and absurd depth are problems."""
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"{origin}: nested more than {MAX_DEPTH} levels deep")
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            here = (*path, key)
            if key in seen:
                problems.append(f"line {key_node.start_mark.line + 1}: {_dotted(here)}: given twice")
            seen.add(key)
            lines[here] = key_node.start_mark.line + 1
            _collect_lines(value_node, here, lines, problems, origin)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*path, str(index)), lines, problems, origin)


def _convert(value: Any, kind: Any, path: Path, found: list[tuple[Path, str]]) -> Any:  # noqa: ANN401 - a YAML value is anything
    """Convert one value, collecting problems instead of stopping; the result is None where one was found."""
    struct = _struct_of(kind)
    if struct is not None and not (value is None and _allows_none(kind)):
        return _convert_struct(value, struct, path, found)
    mapping = _mapping_of(kind)
    if mapping is not None and isinstance(value, dict):
        return {str(k): _convert(v, mapping, (*path, str(k)), found) for k, v in value.items()}
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        found.append((path, str(error).replace(" - at `$`", "")))
        return None


def _convert_struct(
    value: Any,  # noqa: ANN401 - a YAML value is anything
    struct: type[msgspec.Struct],
    path: Path,
    found: list[tuple[Path, str]],
) -> msgspec.Struct | None:
    if not isinstance(value, dict):
        found.append((path, f"expected a mapping, got {type(value).__name__}"))
        return None
    before = len(found)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; known keys: {', '.join(sorted(fields))}"
            found.append(((*path, str(key)), f"unknown key{hint}"))
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            arguments[field.name] = _convert(value[name], field.type, (*path, name), found)
        elif field.required:
            found.append((path, f"key `{name}` is missing"))
    if len(found) > before:
        return None
    try:
        return struct(**arguments)
    except (ValueError, TypeError) as error:
        found.append((path, str(error)))
        return None


def _alternatives(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type expression
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _allows_none(kind: Any) -> bool:  # noqa: ANN401 - a type expression
    return type(None) in _alternatives(kind)


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - a type expression
    for option in _alternatives(kind):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


def _mapping_of(kind: Any) -> Any | None:  # noqa: ANN401 - a type expression
    """The value type of `dict[str, X]`, when X is worth walking."""
    for option in _alternatives(kind):
        if typing.get_origin(option) is dict:
            return typing.get_args(option)[1]
    return None
