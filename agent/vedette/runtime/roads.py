"""Where updates come from: the configured repository, or a folder that somebody brings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vedette.clock import SystemClock
from vedette.errors import ConfigError, TrustError, VedetteError
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

    from vedette.runtime.plan import UpdatePlan
    from vedette.trust.offer import MetadataSource, Offer
    from vedette.update.ports import Fetcher, Trust

# This version was made later: a clock that says less is wrong. Moved forward by hand with each release, since
# neither wheels nor clones keep times; `test_build_time` fails where that was forgotten.
BUILD_UTC_S = 1_793_491_200  # 2026-11-01
MAX_ROOT_BYTES = 512_000
STALL_S = 30.0
PROBE_STALL_S = 10.0  # the watch over a trial waits for it


class _Signed(msgspec.Struct):
    """What tells root metadata from other files; all else is trust's business."""

    kind: str = msgspec.field(name="_type")


class _Root(msgspec.Struct):
    signed: _Signed


class LookLog:
    """How the last look for updates went; any thread may read.

    `fault` is empty when it went well, `clock_doubt` when the clock was believed.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.clock_doubt = ""


class LoggedTrust:
    """Implements `update.ports.Trust`: another one, whose looks are noted."""

    def __init__(
        self, trust: TufTrust, log: LookLog, interruption: Interruption, *, paced: PacedSource | None = None
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
            self._log.fault = f"{error.kind}: {error.cause}"
            raise
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

    def __init__(self, plan: UpdatePlan, state: Path) -> None:
        self._plan = plan
        self._state = state
        self._bootstrap = read_root(plan.root)
        self.log = LookLog()
        self.interruption = Interruption()
        self._wall = SystemWallClock()
        self._probe = self._fetcher(stall_s=PROBE_STALL_S)

    def usual(self) -> Road:
        """The configured one.

        Raises:
            ConfigError: Its URL is none.
        """
        return self._road(self._fetcher, redact_url(self._plan.repository), carried=not self._over_http)

    @property
    def _over_http(self) -> bool:
        return self._plan.repository.startswith(("http://", "https://"))

    def _fetcher(self, stall_s: float = STALL_S) -> HttpFetcher | FolderFetcher:
        if self._over_http:
            return HttpFetcher(self._plan.repository, stall_s=stall_s, interruption=self.interruption)
        return FolderFetcher(Path(self._plan.repository), interruption=self.interruption)

    def reaches_server(self) -> bool:
        """Whether the configured repository answers; blocks no longer than a server may stall."""
        return self._probe.reachable()

    def folder(self, folder: Path) -> Road:
        """A folder, once; what it says that is older than what this device knows is passed over."""

        def fetcher() -> FolderFetcher:
            return FolderFetcher(folder, interruption=self.interruption)

        return self._road(fetcher, str(folder), carried=True)

    def _road(self, fetcher: Callable[[], Fetcher], place: str, *, carried: bool) -> Road:
        """Looks and blobs have a fetcher each: a look goes on beside a fetch, in another thread."""
        paced = PacedSource(fetcher(), SystemClock())
        tuf = self._tuf(paced, carried=carried)
        trust: Trust = LoggedTrust(tuf, self.log, self.interruption, paced=paced)
        return Road(trust, fetcher(), place)

    def _tuf(self, source: MetadataSource, *, carried: bool) -> TufTrust:
        return TufTrust(
            source,
            self._state / TRUST_NAME,
            bootstrap=self._bootstrap,
            build_utc_s=BUILD_UTC_S,
            device=Device(self._plan.device_id, self._plan.model, self._plan.labels),
            clock=self._wall,
            accept_older=carried,
        )


def read_root(path: Path) -> bytes:
    """The first root metadata, which alone is believed without a signature that leads to it.

    Raises:
        ConfigError: It is not there, or cannot be one.
    """
    cure = "bring the repository's metadata/1.root.json to the box by a way that you trust"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ROOT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"`update.root`: {path}: {error.strerror}", cure=cure) from error
    try:
        kind = msgspec.json.decode(content, type=_Root).signed.kind
    except msgspec.DecodeError:
        kind = ""
    if kind != "root" or len(content) > MAX_ROOT_BYTES:
        raise ConfigError(f"`update.root`: {path} is no root metadata", cure=cure)
    return content
