"""Looks at what is signed, by the usual road or by another, and at what it says of the update under way."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import StorageError, TrustError, UnavailableError
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.machine import offered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from vedette.trust.offer import Offer
    from vedette.update.kept_offer import KeptOffer
    from vedette.update.ports import Fetcher, Trust
    from vedette.update.record import UpdateRecord
    from vedette.update.space import DiskSpace


class Road(NamedTuple):
    """Where updates come from: who vouches for them, and who moves the bytes."""

    trust: Trust
    fetcher: Fetcher


class _Either:
    """Implements `ports.Fetcher`: blobs by one road, and by another what that one lacks."""

    def __init__(self, first: Fetcher, second: Fetcher) -> None:
        self._first = first
        self._second = second

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See Fetcher."""
        return self._first.metadata(path, max_bytes)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """See Fetcher; after a piece of the first, the next try decides anew."""
        begun = False
        try:
            for piece in self._first.blob(sha256, start, end):
                begun = True
                yield piece
        except UnavailableError:
            if begun:
                raise
            yield from self._second.blob(sha256, start, end)


class Standing(Enum):
    """What the newest verified document says of the offer under way."""

    WANTED = "wanted"
    PAUSED = "paused"
    WITHDRAWN = "withdrawn"


class Looking:
    """Holds the offer under way and the latest one; `usual` is the road but for imports."""

    def __init__(self, usual: Road, *, space: DiskSpace, kept: KeptOffer) -> None:
        self._usual = usual
        self._space = space
        self._kept = kept
        self._importing: Future[str] | None = None
        self._taken_up = usual
        self.road = usual
        self.latest: Offer | None = None
        self.offer: Offer | None = None

    def recall(self, record: UpdateRecord) -> None:
        """After a restart: the offer that was kept, if it is the record's."""
        kept, candidate = self._kept.read(), record.candidate
        if kept is not None and candidate is not None and kept.manifest_sha256 == candidate.manifest_sha256:
            self.offer = kept

    def take_up(self, offer: Offer) -> None:
        """Plan with this offer, found by the road of now."""
        self.offer, self._taken_up = offer, self.road

    def fetcher(self) -> Fetcher:
        """Who brings the blobs of the offer under way.

        A stick that is brought meanwhile may have them, and an update must not fail because it has not.
        """
        if self.road is self._taken_up:
            return self.road.fetcher
        return _Either(self.road.fetcher, self._taken_up.fetcher)

    def take_road(self, road: Road, answer: Future[str] | None) -> None:
        """Look, and fetch, by this road until the box is idle again."""
        self.road, self._importing = road, answer

    def usual_road(self) -> None:
        """The way home."""
        self.road = self._usual

    def look(self, record: UpdateRecord) -> list[ev.Event]:
        """Ask for what is signed; what was found."""
        answer, self._importing = self._importing, None
        try:
            offer = self.road.trust.refresh()
        except TrustError as error:
            _fail(answer, error)
            return [ev.TrustRefused(Cause(error.kind), error.cause)]
        except UnavailableError as error:  # also a disk that does not keep what was verified
            _fail(answer, error)
            return [ev.TrustAway()]
        if answer is not None:
            manifest = None if offer is None else offer.manifest
            answer.set_result(
                "nothing for this device" if manifest is None else f"{manifest.name} {manifest.version}"
            )
        withdrawn = record.candidate is not None and self.standing() is Standing.WITHDRAWN
        events: list[ev.Event] = [ev.Withdrawn()] if withdrawn else []
        if offer is None:
            return [*events, ev.NothingOffered()]
        self.latest = offer
        return [*events, offered(offer, free_bytes=self._free_bytes())]

    def standing(self) -> Standing:
        """Of the offer under way, without asking anybody; one that is lost counts as wanted."""
        trust, offer = self.road.trust, self.offer
        if offer is None or trust.still_wanted(offer):
            return Standing.WANTED
        return Standing.WITHDRAWN if trust.withdrawn(offer) else Standing.PAUSED

    def _free_bytes(self) -> int:
        try:
            return self._space.free_bytes()
        except StorageError:
            return 0


def _fail(answer: Future[str] | None, error: Exception) -> None:
    if answer is not None:
        answer.set_exception(error)
