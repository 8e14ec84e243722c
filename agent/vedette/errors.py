"""Every error that crosses a module border.

The families say what the caller may do::

    VedetteError
    ├── UsageError        exit 2   the command line is wrong: fix the call
    ├── BadInputError     exit 65  data from outside is wrong: fix the data, retrying is useless
    │   ├── BundleError            a model bundle is damaged, or does not fit this box
    │   │   └── SelfTestError      it loads, and computes something else than it says
    │   ├── FrameError             one frame is damaged; the next one may be good
    │   ├── TrustError             signed metadata was refused
    │   ├── StateLostError         every copy of a record of our own is damaged
    │   └── RecordSchemaError      a record is whole, but of an agent that knew more than this one
    ├── UnavailableError  exit 69  something needed is away: retry later, or install it
    │   ├── EngineUnavailableError an inference runtime or accelerator cannot be used here
    │   ├── SourceLostError        a camera or stream went away
    │   ├── OutOfMemoryError       an allocation failed; it costs one frame, not the process
    │   ├── NotFoundError          the other side says for certain that it has no such thing
    │   ├── RangeIgnoredError      the other side cannot send a part: start again from the beginning
    │   ├── TruncatedError         the other side has less of it than it must: another copy may be whole
    │   ├── ChangedError           it is not what earlier parts were of: throw those away
    │   └── StorageError           the disk is full, read-only or broken
    ├── InternalError     exit 70  our bug
    └── ConfigError       exit 78  the configuration is wrong; systemd must not restart on it
"""

from __future__ import annotations

import errno
from typing import ClassVar


class VedetteError(Exception):
    """Root of the tree: a cause for people, and where there is one, a cure."""

    exit_code: ClassVar[int] = 70

    def __init__(self, cause: str, *, cure: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.cure = cure

    def diagnostics(self) -> str:
        """One or two sentences for a person: what is wrong, then what to do."""
        return self.cause if self.cure is None else f"{self.cause}\n  cure: {self.cure}"


class UsageError(VedetteError):
    """The command line asks for something that makes no sense."""

    exit_code = 2


class BadInputError(VedetteError):
    """Data from outside is wrong; the same data will be wrong again."""

    exit_code = 65


class BundleError(BadInputError):
    """A model bundle is damaged, inconsistent, or needs what this box has not."""


class SelfTestError(BundleError):
    """A model loads here, but does not give its own golden answers."""


class FrameError(BadInputError):
    """One frame cannot be used; `kind` is a stable word for the ledger."""

    def __init__(self, cause: str, *, kind: str, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.kind = kind


class TrustError(BadInputError):
    """Signed metadata was refused; `kind` is the stable word of the report."""

    def __init__(self, cause: str, *, kind: str, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.kind = kind


class StateLostError(BadInputError):
    """Every copy of a record of our own is damaged; what it said must be found out in another way."""


class RecordSchemaError(BadInputError):
    """A record is whole, but newer than this agent, or says what it does not know.

    `payload` is its JSON, for whoever can make sense of a part of it.
    """

    def __init__(self, cause: str, *, payload: bytes, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.payload = payload


class UnavailableError(VedetteError):
    """A needed thing is away; trying again later may help, not before `retry_after_s` where that is known."""

    exit_code = 69

    def __init__(self, cause: str, *, cure: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.retry_after_s = retry_after_s


class EngineUnavailableError(UnavailableError):
    """A runtime is not installed or broken, or a required accelerator is not in effect."""


class SourceLostError(UnavailableError):
    """A camera, pipe or stream ended unexpectedly or went mute."""


class OutOfMemoryError(UnavailableError):
    """An allocation failed while a frame was worked on."""


class NotFoundError(UnavailableError):
    """The other side has no such thing; asking the same again is useless until it publishes it."""


class RangeIgnoredError(UnavailableError):
    """The other side sends all or nothing."""


class TruncatedError(UnavailableError):
    """The other side ends it before its signed size, and says that this is all."""


class ChangedError(UnavailableError):
    """The thing changed while it was fetched; its parts must not be put together."""


class StorageError(UnavailableError):
    """The disk refuses; `kind` is `no_space` or `io_error`, words of the report."""

    def __init__(self, cause: str, *, kind: str, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.kind = kind


class InternalError(VedetteError):
    """A broken promise between our own modules."""


class ConfigError(VedetteError):
    """The configuration is wrong; `problems` holds every one found, not just the first."""

    exit_code = 78

    def __init__(self, cause: str, *, problems: tuple[str, ...] = (), cure: str | None = None) -> None:
        super().__init__(cause, cure=cure)
        self.problems = problems

    def diagnostics(self) -> str:
        """The headline, then one line per problem."""
        lines = [self.cause, *(f"  {problem}" for problem in self.problems)]
        if self.cure is not None:
            lines.append(f"  cure: {self.cure}")
        return "\n".join(lines)


def storage_fault(error: OSError, what: str) -> StorageError:
    """The error of the disk behind an `OSError`; `what` says what could not be done."""
    reason = error.strerror or type(error).__name__
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageError(f"{what}: {reason}", kind="no_space", cure="free space on that disk")
    return StorageError(f"{what}: {reason}", kind="io_error", cure="check the disk, its mount and its owner")


def rebuild_error(exit_code: int, cause: str, cure: str | None) -> VedetteError:
    """An error that a child process reported, in the family that its exit code names."""
    families: dict[int, type[VedetteError]] = {
        family.exit_code: family for family in (UsageError, BadInputError, UnavailableError, ConfigError)
    }
    return families.get(exit_code, InternalError)(cause, cure=cure)
