"""Where updates come from: the configured repository, or a folder that somebody brings."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.clock import SystemClock
from vedette.errors import ConfigError, TrustError, UnavailableError, VedetteError
from vedette.runtime.root_file import read_root
from vedette.runtime.ways import FirstAvailable
from vedette.source.urls import redact_url
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.trust.wall_clock import SystemWallClock
from vedette.update.folder import FolderFetcher
from vedette.update.http import HttpFetcher
from vedette.update.interruption import Interruption
from vedette.update.looking import Road
from vedette.update.paced_source import PacedSource
from vedette.update.startup import TRUST_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.link.block_fetcher import BlockFetcher
    from vedette.runtime.plan import UpdatePlan
    from vedette.runtime.ways import BlockWay
    from vedette.trust.offer import MetadataSource, Offer
    from vedette.update.ports import Fetcher, Trust

# This version was made later: a clock that says less is wrong. Moved forward by hand with each release, since
# neither wheels nor clones keep times; `test_build_time` fails where that was forgotten.
BUILD_UTC_S = 1_793_491_200  # 2026-11-01
STALL_S = 30.0
PROBE_STALL_S = 10.0  # the watch over a trial waits for it


class LookLog:
    """How the last look for updates went; any thread may read.

    `fault` is empty when it went well, `clock_doubt` when the clock was believed.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.clock_doubt = ""


class LateTrust:
    """Implements `update.ports.Trust`: one that is made when it is first needed, and that may fail."""

    def __init__(self, make: Callable[[], TufTrust]) -> None:
        self._make = make
        self._trust: TufTrust | None = None

    @property
    def clock_doubt(self) -> str:
        """Why the clock was not believed in the last look."""
        return "" if self._trust is None else self._trust.clock_doubt

    def refresh(self) -> Offer | None:
        """See Trust.

        Raises:
            UnavailableError: Also while the first root metadata is not here.
        """
        if self._trust is None:
            try:
                self._trust = self._make()
            except ConfigError as error:
                raise UnavailableError(error.cause, cure=error.cure) from error
        return self._trust.refresh()

    def still_wanted(self, offer: Offer) -> bool:
        """See Trust."""
        return self._trust is None or self._trust.still_wanted(offer)

    def withdrawn(self, offer: Offer) -> bool:
        """See Trust."""
        return self._trust is not None and self._trust.withdrawn(offer)


class LoggedTrust:
    """Implements `update.ports.Trust`: another one, whose looks are noted."""

    def __init__(
        self,
        trust: TufTrust | LateTrust,
        log: LookLog,
        interruption: Interruption,
        *,
        paced: PacedSource | None = None,
    ) -> None:
        self._trust = trust
        self._log = log
        self._interruption = interruption
        self._paced = paced

    def refresh(self) -> Offer | None:
        """See Trust."""
        if self._paced is not None:
            self._paced.begin()
        interrupted = self._interruption.times
        try:
            offer = self._trust.refresh()
        except TrustError as error:
            file = "" if self._paced is None else self._paced.path
            cause = f"{error.cause} (last read: {file})" if file else error.cause
            self._log.fault = f"{error.kind}: {cause}"
            raise TrustError(cause, kind=error.kind, cure=error.cure) from error
        except VedetteError as error:
            # Given up on demand is no fault of the repository.
            if not self._interruption.is_set and self._interruption.times == interrupted:
                self._log.fault = error.cause
            raise
        self._log.fault, self._log.clock_doubt = "", self._trust.clock_doubt
        return offer

    def still_wanted(self, offer: Offer) -> bool:
        """See Trust."""
        return self._trust.still_wanted(offer)

    def withdrawn(self, offer: Offer) -> bool:
        """See Trust."""
        return self._trust.withdrawn(offer)


class Roads:
    """Puts trust and transport together; all roads share one memory of what was verified.

    Whatever goes on on any of them ends when `interruption` is set.
    """

    def __init__(self, plan: UpdatePlan, state: Path, blocks: BlockWay | None = None) -> None:
        self._plan = plan
        self._state = state
        self._blocks = blocks
        self.log = LookLog()
        try:
            read_root(plan.root)
        except ConfigError as error:  # costs updates, not answers; the file may still be brought
            self.log.fault = error.cause
        self.interruption = Interruption()
        self._wall = SystemWallClock()
        self._probes = [self._way(way, PROBE_STALL_S) for way in plan.via]

    def usual(self) -> Road:
        """The configured one; where several ways are, each is there for what the one before cannot give.

        Raises:
            ConfigError: Its URL is none, or there is no way.
        """
        carried = "http" in self._plan.via and not self._over_http
        return self._road(self._fetcher, self._place, carried=carried)

    @property
    def _over_http(self) -> bool:
        return self._plan.repository.startswith(("http://", "https://"))

    @property
    def _place(self) -> str:
        places = {"http": redact_url(self._plan.repository), "mqtt": "blocks over MQTT"}
        return ", ".join(places[way] for way in self._plan.via)

    def _fetcher(self, stall_s: float = STALL_S) -> Fetcher:
        ways: list[tuple[str, Fetcher]] = [(way, self._way(way, stall_s)) for way in self._plan.via]
        return ways[0][1] if len(ways) == 1 else FirstAvailable(ways, SystemClock(), random.uniform)

    def _way(self, way: str, stall_s: float) -> BlockFetcher | HttpFetcher | FolderFetcher:
        if way == "mqtt":
            if self._blocks is None:
                raise ConfigError("`update.via` names mqtt, and there is no `mqtt` section")
            return self._blocks.fetcher(stall_s=stall_s, interruption=self.interruption)
        if self._over_http:
            return HttpFetcher(self._plan.repository, stall_s=stall_s, interruption=self.interruption)
        return FolderFetcher(Path(self._plan.repository), interruption=self.interruption)

    def reaches_server(self) -> bool:
        """Whether a configured way answers; blocks no longer than each may stall."""
        return any(probe.reachable() for probe in self._probes)

    def folder(self, folder: Path) -> Road:
        """A folder, once; what it says that is older than what this device knows is passed over."""

        def fetcher() -> FolderFetcher:
            return FolderFetcher(folder, interruption=self.interruption)

        return self._road(fetcher, str(folder), carried=True)

    def _road(self, fetcher: Callable[[], Fetcher], place: str, *, carried: bool) -> Road:
        """Looks and blobs have a fetcher each: a look goes on beside a fetch, in another thread."""
        paced = PacedSource(fetcher(), SystemClock())
        late = LateTrust(lambda: self._tuf(paced, carried=carried))
        trust: Trust = LoggedTrust(late, self.log, self.interruption, paced=paced)
        return Road(trust, fetcher(), place)

    def _tuf(self, source: MetadataSource, *, carried: bool) -> TufTrust:
        return TufTrust(
            source,
            self._state / TRUST_NAME,
            bootstrap=read_root(self._plan.root),
            build_utc_s=BUILD_UTC_S,
            device=Device(self._plan.device_id, self._plan.model, self._plan.labels),
            clock=self._wall,
            accept_older=carried,
        )
