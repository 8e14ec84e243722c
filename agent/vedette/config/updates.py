"""The `update` and `control` sections of a configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

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

    `metadata` is the repository: an http(s) URL or a folder. `root` is the file with its first root metadata,
    the one thing that must come to the box by a trusted way. `window` is when a new model may go live.
    `reserve` stays free on the disk whatever an update needs.
    """

    metadata: Annotated[str, Meta(min_length=1)]
    root: Annotated[str, Meta(min_length=1)]
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

    def rooted(self, root: Callable[[str], str]) -> UpdateConfig:
        """The same with its paths made absolute."""
        metadata = root(self.metadata) if is_path(self.metadata) else self.metadata
        return msgspec.structs.replace(self, metadata=metadata, root=root(self.root))


class ControlConfig(msgspec.Struct, frozen=True):
    """Where the command line finds the daemon; by default `control.sock` in the state folder."""

    socket: Annotated[str, Meta(min_length=1)] | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A path that would not be found."""
        return home_problems("socket", fields)
