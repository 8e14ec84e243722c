"""Looks at what is signed, by the usual road or by another, and at what it says of the update under way.

A look goes on in the background, one at a time; what it found is collected by the thread that drives updates.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import StorageError, TrustError, UnavailableError
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.machine import offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from vedette.clock import Clock
    from vedette.trust.offer import Offer
    from vedette.update.kept_offer import KeptOffer
    from vedette.update.ports import Background, Fetcher, Trust
    from vedette.update.record import UpdateRecord
    from vedette.update.replies import Replies
    from vedette.update.space import DiskSpace


class Road(NamedTuple):
    """Where updates come from: who vouches for them, who moves the bytes, and what people call the place.

    Trust and fetcher are used by two threads at once, so they must not share a connection.
    """

    trust: Trust
    fetcher: Fetcher
    place: str = "the update repository"


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


class _Look(NamedTuple):
    """One look under way; `asked` by somebody at the box."""

    road: Road
    asked: bool
    begun_ns: int
    found: Future[Offer | None]


class Looking:
    """Holds the offer under way and the latest one; `usual` is the road but for imports.

    `ended` is called, on any thread, when there is something to collect.
    """

    def __init__(
        self,
        usual: Road,
        *,
        space: DiskSpace,
        kept: KeptOffer,
        replies: Replies,
        clock: Clock,
        background: Background,
    ) -> None:
        self._usual = usual
        self._space = space
        self._kept = kept
        self._replies = replies
        self._clock = clock
        self._background = background
        self._asked = False
        self._look: _Look | None = None
        self._rested_from_ns = clock.monotonic_ns()
        self._taken_up = usual
        self.ended: Callable[[], None] = lambda: None
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

    def ask(self, road: Road | None) -> None:
        """Somebody wants the next look; by `road` until the box is idle again, if there is one."""
        self._asked = True
        if road is not None:
            self.road = road

    def usual_road(self) -> None:
        """The way home."""
        self.road = self._usual

    def rest(self) -> None:
        """An update came to its end: from now on its offer rests."""
        self._rested_from_ns = self._clock.monotonic_ns()

    # One look ---------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """Whether somebody looks, or what was found is not collected yet."""
        return self._look is not None

    @property
    def ready(self) -> bool:
        """Whether there is something to collect."""
        return self._look is not None and self._look.found.done()

    @property
    def since_s(self) -> float | None:
        """For how long somebody has been looking, monotonic; None while nobody does."""
        if self._look is None:
            return None
        return (self._clock.monotonic_ns() - self._look.begun_ns) / 1e9

    def begin(self) -> None:
        """Ask for what is signed, unless somebody is at it."""
        if self._look is not None:
            return
        asked, self._asked = self._asked, False
        found = self._background(self.road.trust.refresh, "update-look")
        self._look = _Look(self.road, asked, self._clock.monotonic_ns(), found)
        found.add_done_callback(lambda _found: self.ended())

    def collect(self, record: UpdateRecord) -> list[ev.Event]:
        """What was found; only while `ready`."""
        look, self._look = self._look, None
        if look is None:
            return []
        self.road = look.road
        try:
            offer = look.found.result(timeout=0)
        except TrustError as error:
            self._replies.fail(error)
            return [ev.TrustRefused(Cause(error.kind), error.cause)]
        except UnavailableError as error:  # also a disk that does not keep what was verified
            self._replies.fail(error)
            return [ev.TrustAway()]
        withdrawn = record.candidate is not None and self.standing() is Standing.WITHDRAWN
        events: list[ev.Event] = [ev.Withdrawn()] if withdrawn else []
        if offer is None:
            self._replies.say("nothing for this device")
            return [*events, ev.NothingOffered()]
        self.latest = offer
        self._replies.found(f"{offer.manifest.name} {offer.manifest.version}")
        return [*events, self._offered(offer, asked=look.asked)]

    def _offered(self, offer: Offer, *, asked: bool) -> ev.Offered:
        rested_s = (self._clock.monotonic_ns() - self._rested_from_ns) / 1e9
        return offered(offer, free_bytes=self._free_bytes(), asked=asked, rested_s=rested_s)

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
