"""What is asked of a running daemon over its control socket, and what it answers. Pure.

One JSON object in a line each way. The protocol is for this agent's own command line on the same box.
"""

from __future__ import annotations

import msgspec

MAX_LINE_BYTES = 1 << 20


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """How does it go?"""


class CheckRequest(msgspec.Struct, frozen=True, tag="update-check"):
    """Look for updates now."""


class AbortRequest(msgspec.Struct, frozen=True, tag="update-abort"):
    """Stop the update that is under way."""


class ImportRequest(msgspec.Struct, frozen=True, tag="update-import"):
    """Take updates from a folder, such as a USB stick; `folder` is absolute."""

    folder: str


Request = StatusRequest | CheckRequest | AbortRequest | ImportRequest


class Reply(msgspec.Struct, frozen=True):
    """`error` with its exit code, or `body`, whose form belongs to the request."""

    body: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    cure: str | None = None
    exit_code: int = 0
