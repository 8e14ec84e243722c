"""The ways by which an update comes: blocks over MQTT, and a choice among several ways."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from vedette.errors import (
    ChangedError,
    NotFoundError,
    RangeIgnoredError,
    TruncatedError,
    UnavailableError,
)
from vedette.link.block_fetcher import BlockFetcher
from vedette.link.block_inbox import BlockInbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vedette.clock import Clock
    from vedette.link.block_fetcher import Interruption
    from vedette.link.device_link import DeviceLink
    from vedette.mqtt.port import Outgoing
    from vedette.update.ports import Fetcher
    from vedette.wire.topics import DeviceTopics

STALL_S = 30.0
# A way that failed is passed over for a while, since finding out anew may take a whole time-out.
REST_MIN_S = 15.0
REST_MAX_S = 900.0


class BlockWay:
    """Blocks over the device's link, which is made later than this; until then there is no connection."""

    def __init__(self, topics: DeviceTopics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self.inbox = BlockInbox(clock)
        self.link: DeviceLink | None = None

    def fetcher(self, *, stall_s: float = STALL_S, interruption: Interruption | None = None) -> BlockFetcher:
        """Brings what the block servers have; `stall_s` is how long nothing may come."""
        return BlockFetcher(
            self._topics,
            self._send,
            self.inbox,
            clock=self._clock,
            draw=random.Random().random,  # noqa: S311 - jitter, not secrets
            stall_s=stall_s,
            interruption=interruption,
        )

    def _send(self, message: Outgoing) -> object:
        link = self.link
        return link is not None and link.send(message)


class _Way:
    def __init__(self, name: str, fetcher: Fetcher) -> None:
        self.name = name
        self.fetcher = fetcher
        self.failures = 0
        self.rests_until_ns = 0


class FirstAvailable:
    """Implements `update.ports.Fetcher`: each request by the first way that is not away.

    A way that was away rests for a time drawn from zero to a ceiling that doubles with each failure; when all
    rest, all are asked all the same. Bytes of two ways are never mixed in one answer.
    """

    def __init__(
        self, ways: Sequence[tuple[str, Fetcher]], clock: Clock, uniform: Callable[[float, float], float]
    ) -> None:
        self._ways = [_Way(name, fetcher) for name, fetcher in ways]
        self._clock = clock
        self._uniform = uniform

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See Fetcher. That a way has no such file is an answer: the walk over root files ends with it."""
        failures: list[tuple[str, UnavailableError]] = []
        for way in self._in_order():
            content = self._whole(way, path, max_bytes, failures)
            if content is not None:
                yield content
                return
        raise _all_away(failures)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """See Fetcher. A blob that one way does not have may come by another."""
        failures: list[tuple[str, UnavailableError]] = []
        for way in self._in_order():
            begun = False
            try:
                for piece in way.fetcher.blob(sha256, start, end):
                    begun = True
                    yield piece
            except ChangedError:
                raise
            except (NotFoundError, RangeIgnoredError, TruncatedError) as error:
                failures.append((way.name, error))
            except UnavailableError as error:
                self._failed(way)
                if begun:  # the next try goes on from there, by another way
                    raise
                failures.append((way.name, error))
            else:
                way.failures = 0
                return
        raise _all_away(failures)

    def _whole(
        self, way: _Way, path: str, max_bytes: int, failures: list[tuple[str, UnavailableError]]
    ) -> bytes | None:
        try:
            content = b"".join(way.fetcher.metadata(path, max_bytes))
        except NotFoundError:
            raise
        except UnavailableError as error:
            self._failed(way)
            failures.append((way.name, error))
            return None
        way.failures = 0
        return content

    def _in_order(self) -> list[_Way]:
        now_ns = self._clock.monotonic_ns()
        return sorted(self._ways, key=lambda way: way.rests_until_ns > now_ns)

    def _failed(self, way: _Way) -> None:
        way.failures += 1
        ceiling_s = min(REST_MAX_S, REST_MIN_S * 2.0 ** min(way.failures - 1, 16))
        rest_s = self._uniform(0.0, ceiling_s)
        way.rests_until_ns = self._clock.monotonic_ns() + round(rest_s * 1e9)


def _all_away(failures: Sequence[tuple[str, UnavailableError]]) -> UnavailableError:
    """One error of all: final only where every way says that there is no such thing."""
    for _, error in failures:
        if isinstance(error, RangeIgnoredError):  # the caller can do something about it
            return error
    if len(failures) == 1 or all(isinstance(error, NotFoundError) for _, error in failures):
        return failures[0][1]
    if all(isinstance(error, (NotFoundError, TruncatedError)) for _, error in failures):
        return next(error for _, error in failures if isinstance(error, TruncatedError))
    waits_s = [error.retry_after_s for _, error in failures if error.retry_after_s is not None]
    return UnavailableError(
        "; ".join(f"{name}: {error.cause}" for name, error in failures),
        cure=next((error.cure for _, error in failures if error.cure is not None), None),
        retry_after_s=min(waits_s, default=None),
    )
