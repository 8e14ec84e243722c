"""Strict documents: every problem at once, each with its line and key path. Pure.

msgspec stops at the first error; a person who edits a file wants all of them, so structs are walked here and
msgspec judges the leaves.
"""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from vedette.config.yaml_tree import Expand, Path, Problem, dotted, parse_yaml
from vedette.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T", bound=msgspec.Struct)
_MSGSPEC_PATH = re.compile(r" - at `\$([^`]*)`$")
_PLAIN_TYPES = {
    "object": "mapping",
    "array": "list",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "null": "nothing",
}
_TYPE_NAMES = re.compile(r"`([a-z | ]+)`")


class DocumentError(ConfigError):
    """Problems in a document that could be read; `paths` are where they are, in no order."""

    def __init__(self, cause: str, *, paths: tuple[Path, ...], problems: tuple[str, ...]) -> None:
        super().__init__(cause, problems=problems)
        self.paths = paths


@runtime_checkable
class Checked(Protocol):
    """A struct with rules beyond the types of its fields."""

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterable[Problem]:
        """Paths (relative to the struct) and problems; `fields` lacks those that are broken already."""
        ...


@dataclass(frozen=True)
class Notation:
    """Metadata for `Annotated`: values of this type are written in a way of their own.

    `parse` converts what the document says; its ValueError tells a person what is wrong.
    """

    parse: Callable[[object], object]


def parse_document(text: str, struct: type[T], *, origin: str, expand: Expand | None = None) -> T:
    """Read one YAML document into a struct.

    Args:
        text: The document.
        struct: The msgspec struct to fill; unknown keys are errors. Structs that are `Checked` are asked for
            further problems, also where some of their fields are broken.
        origin: File name for the messages.
        expand: Rewrites every string value before it is judged.

    Returns:
        The filled struct.

    Raises:
        ConfigError: Any problem; `problems` lists all of them with line numbers.
    """
    tree = parse_yaml(text, origin=origin, expand=expand)
    refused = {path for path, _ in tree.problems}
    found: list[Problem] = []
    result = _convert(tree.value, struct, (), found)
    # What `expand` refused stands in the tree as it was written; a second complaint about it is noise.
    found = tree.problems + [problem for problem in found if problem[0] not in refused]
    if found:
        raise _all_of(found, tree.line_of, origin)
    return typing.cast("T", result)


def line_index(text: str) -> dict[Path, int]:
    """Line number (from 1) of every key path, for checks made after parsing.

    Raises:
        ConfigError: Not YAML.
    """
    return parse_yaml(text, origin="document").lines


def _all_of(found: list[Problem], line_of: Callable[[Path], int], origin: str) -> DocumentError:
    count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    return DocumentError(
        f"{origin}: {count}",
        paths=tuple(path for path, _ in found),
        problems=tuple(
            f"line {line_of(path)}: {dotted(path)}: {what}"
            for path, what in sorted(found, key=lambda problem: line_of(problem[0]))
        ),
    )


def _convert(value: Any, kind: Any, path: Path, found: list[Problem]) -> Any:  # noqa: ANN401 - a YAML value is anything
    """Convert one value, collecting problems instead of stopping; the result is None where one was found."""
    if value is None and type(None) in _alternatives(kind):
        return None
    notation = _notation_of(kind)
    if notation is not None:
        return _convert_notation(value, notation, path, found)
    struct = _struct_type(kind)
    if struct is not None:
        return _convert_struct(value, struct, path, found)
    items = _item_types(kind, value)
    if items:
        found.extend((path, what) for what in _length_problems(kind, value))
        return _convert_items(value, items, path, found)
    return _convert_leaf(value, kind, path, found)


def _convert_leaf(value: Any, kind: Any, path: Path, found: list[Problem]) -> Any:  # noqa: ANN401 - a YAML value is anything
    try:
        result = msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        inner, what = _said_plainly(str(error), value, kind)
        found.append((path + inner, what))
        return None
    if isinstance(result, float) and not math.isfinite(result):
        found.append((path, "the number is too large"))
        return None
    return result


def _convert_items(
    value: Any,  # noqa: ANN401 - a YAML value is anything
    kinds: tuple[Any, ...],
    path: Path,
    found: list[Problem],
) -> Any:  # noqa: ANN401 - as above
    """Convert the items one by one; of a mapping, the good entries are kept."""
    if isinstance(value, list):
        return tuple(_convert(v, kinds[0], (*path, str(i)), found) for i, v in enumerate(value))
    good = {}
    for key, entry in value.items():
        count = len(found)
        name = _convert(key, kinds[0], (*path, key), found)
        converted = _convert(entry, kinds[1], (*path, key), found)
        if len(found) == count:
            good[name] = converted
    return good


def _length_problems(kind: Any, value: Any) -> Iterable[str]:  # noqa: ANN401 - a YAML value is anything
    for option in _alternatives(kind):
        for meta in (m for m in getattr(option, "__metadata__", ()) if isinstance(m, msgspec.Meta)):
            if meta.min_length is not None and len(value) < meta.min_length:
                yield f"needs at least {meta.min_length}, has {len(value)}"
            if meta.max_length is not None and len(value) > meta.max_length:
                yield f"takes at most {meta.max_length}, has {len(value)}"


def _convert_notation(value: object, notation: Notation, path: Path, found: list[Problem]) -> object:
    try:
        return notation.parse(value)
    except ValueError as error:
        found.append((path, str(error)))
        return None


def _convert_struct(
    value: Any,  # noqa: ANN401 - a YAML value is anything
    struct: type[msgspec.Struct],
    path: Path,
    found: list[Problem],
) -> msgspec.Struct | None:
    if not isinstance(value, dict):
        found.append((path, "is empty; fill it in or remove the key" if value is None else _not_a(value)))
        return None
    before = len(found)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    found.extend(((*path, key), f"unknown key{_hint(key, fields)}") for key in value if key not in fields)
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            count = len(found)
            converted = _convert(value[name], field.type, (*path, name), found)
            # A mapping keeps its good entries, so that rules across them are checked as far as they can be.
            if len(found) == count or (isinstance(converted, dict) and converted):
                arguments[field.name] = converted
        elif field.required:
            found.append((path, f"key `{name}` is missing"))
        else:
            arguments[field.name] = _default_of(field)
    if issubclass(struct, Checked):
        found.extend(((*path, *inner), what) for inner, what in struct.problems_of(arguments))
    if len(found) > before:
        return None
    try:
        return struct(**arguments)
    except (ValueError, TypeError) as error:
        found.append((path, str(error)))
        return None


def _default_of(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - whatever the field holds
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _not_a(value: object) -> str:
    return f"expected a mapping, got {_PLAIN_TYPES.get(_json_name(value), 'something else')}"


def _json_name(value: object) -> str:
    name = type(value).__name__
    return {"list": "array", "dict": "object"}.get(name, name)


def _hint(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; known keys: {', '.join(sorted(known))}"


def _said_plainly(message: str, value: object, kind: Any) -> tuple[Path, str]:  # noqa: ANN401 - a type expression
    """Reword msgspec, which speaks JSON, for people who write YAML, and name the choices that there are."""
    inner: Path = ()
    match = _MSGSPEC_PATH.search(message)
    if match is not None:
        message = message[: match.start()]
        inner = tuple(re.findall(r"[^.\[\]]+", match[1]))
    choices = _choices_of(kind)
    if choices and (not inner) and (message.startswith("Invalid enum") or isinstance(value, str)):
        return inner, f"`{value}` is none of: {', '.join(choices)}"
    plain = _TYPE_NAMES.sub(_plain_type, message)
    return inner, plain[:1].lower() + plain[1:]


def _plain_type(match: re.Match[str]) -> str:
    names = [_PLAIN_TYPES.get(name.strip(), name.strip()) for name in match[1].split("|")]
    return " or ".join(names)


def _alternatives(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type expression
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return typing.get_args(kind)
    return (kind,)


def _bare(kind: Any) -> Any:  # noqa: ANN401 - a type expression
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _classes(kind: Any) -> list[type]:  # noqa: ANN401 - a type expression
    """The plain classes among the alternatives; Python 3.10 takes `dict[str, int]` for a class, we do not."""
    bare = map(_bare, _alternatives(kind))
    return [option for option in bare if isinstance(option, type) and typing.get_origin(option) is None]


def _choices_of(kind: Any) -> list[str]:  # noqa: ANN401 - a type expression
    """The words that a field accepts, where there is a closed set of them."""
    words: list[str] = []
    for option in map(_bare, _alternatives(kind)):
        if typing.get_origin(option) is Literal:
            words.extend(str(word) for word in typing.get_args(option))
    for option in _classes(kind):
        if issubclass(option, Enum):
            words.extend(str(member.value) for member in option)
    if words and bool in _classes(kind):
        words.extend(["true", "false"])
    if words and not {int, float}.isdisjoint(_classes(kind)):
        words.append("a number")
    return words


def _notation_of(kind: Any) -> Notation | None:  # noqa: ANN401 - a type expression
    metadata = (meta for option in _alternatives(kind) for meta in getattr(option, "__metadata__", ()))
    return next((meta for meta in metadata if isinstance(meta, Notation)), None)


def _struct_type(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - a type expression
    return next((option for option in _classes(kind) if issubclass(option, msgspec.Struct)), None)


def _item_types(kind: Any, value: object) -> tuple[Any, ...]:  # noqa: ANN401 - a type expression
    """Key and value of `dict[K, V]`, item of `tuple[V, ...]`; empty where the value is no such thing."""
    for option in map(_bare, _alternatives(kind)):
        arguments = typing.get_args(option)
        if isinstance(value, dict) and typing.get_origin(option) is dict:
            return arguments
        if isinstance(value, list) and typing.get_origin(option) is tuple and arguments[1:] == (...,):
            return arguments[:1]
    return ()
