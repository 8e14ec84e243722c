"""The `update` and `control` sections of a configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.camera import home_problems, is_path
from vedette.config.document import Notation
from vedette.config.notation import Seconds, SizeBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vedette.config.yaml_tree import Problem

_WINDOW = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]-(?:[01][0-9]|2[0-3]):[0-5][0-9]")


def parse_window_text(value: object) -> str:
    """Accept `02:00-05:00`, local time.

    Raises:
        ValueError: Anything else.
    """
    if not isinstance(value, str) or not _WINDOW.fullmatch(value):
        raise ValueError('expected local times such as "02:00-05:00", in quotes')
    if value[:5] == value[6:]:
        raise ValueError("a window that ends when it starts is none; leave it out for any time")
    return value


class UpdateConfig(msgspec.Struct, frozen=True):
    """Where models come from; without this section nothing is ever updated.

    `metadata` is the repository: an http(s) URL or a folder; it may be left out where `via` is `[mqtt]`.
    `via` says which ways are tried, in this order; `http` stands for `metadata`, whatever that is. `root` is
    the file with its first root metadata, the one thing that must come to the box by a trusted way. `window`
    is when a new model may go live. `reserve` stays free on the disk whatever an update needs.
    """

    root: Annotated[str, Meta(min_length=1)]
    metadata: Annotated[str, Meta(min_length=1)] | None = None
    via: Annotated[tuple[Literal["http", "mqtt"], ...], Meta(min_length=1, max_length=2)] = ("http",)
    window: Annotated[str, Notation(parse_window_text)] | None = None
    poll_s: Seconds = 14_400.0
    reserve: SizeBytes = 64_000_000

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A repository that cannot be one."""
        yield from home_problems("metadata", fields)
        yield from home_problems("root", fields)
        metadata = fields.get("metadata")
        if (
            metadata is not None
            and not is_path(metadata)
            and not metadata.startswith(("http://", "https://"))
        ):
            yield ("metadata",), "is neither an http(s) URL nor a folder"
        via = fields.get("via", ())
        if len(set(via)) != len(via):
            yield ("via",), "names a way twice"
        if metadata is None and "metadata" in fields and "http" in via:
            yield ("metadata",), "is missing: the repository's URL or folder, unless `via` is [mqtt]"

    def rooted(self, root: Callable[[str], str]) -> UpdateConfig:
        """The same with its paths made absolute."""
        metadata = self.metadata
        if metadata is not None and is_path(metadata):
            metadata = root(metadata)
        return msgspec.structs.replace(self, metadata=metadata, root=root(self.root))


class ControlConfig(msgspec.Struct, frozen=True):
    """Where the command line finds the daemon; by default `control.sock` in the state folder."""

    socket: Annotated[str, Meta(min_length=1)] | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A path that would not be found."""
        return home_problems("socket", fields)
