"""The ports of the update machine's driver: trust, transport, codecs, the live data plane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from vedette.trust.offer import MetadataSource, Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from vedette.wire.release import Codec


__all__ = ["Background", "Decoder", "Fetcher", "Live", "MetadataSource", "Offer", "Trust", "WindowStats"]


T = TypeVar("T")


class Background(Protocol):
    """Does something that may wait for a network, under a name, beside the thread that drives updates."""

    def __call__(self, work: Callable[[], T], name: str, /) -> Future[T]:
        """The future holds what it gave or raised."""
        ...


class Trust(Protocol):
    """Believes signed metadata, and nothing else."""

    def refresh(self) -> Offer | None:
        """Fetch and verify; None when no rollout concerns this device.

        Raises:
            TrustError: Refused; its `kind` word is one of the stable causes.
            UnavailableError: The repository is away; try again later.
        """
        ...

    def still_wanted(self, offer: Offer) -> bool:
        """Whether the last verified rollout document still offers it (neither paused nor withdrawn)."""
        ...

    def withdrawn(self, offer: Offer) -> bool:
        """Whether the last verified rollout document withdrew its rollout, or has it no more."""
        ...


class Fetcher(MetadataSource, Protocol):
    """Moves bytes, verifies nothing. Errors may come with the first piece or any later one."""

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """Pieces of bytes [start, end) of `blobs/<sha256>`.

        Raises:
            NotFoundError: It is not there (404, 410): final.
            RangeIgnoredError: The server cannot give a part; the caller starts again from 0.
            ChangedError: It is not the object of earlier parts; the caller throws those away.
            TruncatedError: It ends there before `end`.
            UnavailableError: Stalled, cut, or away; `retry_after_s` where the server said one.
        """
        ...


class Decoder(Protocol):
    """Makes a file out of a verified blob."""

    def decode(self, codec: Codec, patch: Path, base: Path | None, out: Path, *, size_bytes: int) -> None:
        """Write exactly `size_bytes` to `out`, streaming; base is read once, front to back or by offset.

        Raises:
            BadInputError: The blob is malformed or would exceed the size; nothing was promised about `out`.
        """
        ...


class WindowStats(msgspec.Struct, frozen=True):
    """What live frames said of a model since the window began; times on the monotonic clock.

    `shadowed` and `disagreed` are 0 in a trial. `worker_deaths` counts crashes and hangs of its worker, and
    `last_death` is `load_fail`, `worker_crashed` or `worker_hung`, a colon, and the detail. `given_up`: the
    data plane tries no more; whoever served before serves. `p95_ms` is preprocess, infer and postprocess.
    `grown_bytes`: memory of its worker beyond what it had when it had settled. `varied`: its answers were
    seen to differ; `constant_answers`: they did not, though the scene does.
    """

    elapsed_s: float
    frames: int
    failed: int
    p95_ms: float | None
    worker_deaths: int
    last_death: str
    shadowed: int = 0
    disagreed: int = 0
    constant_answers: bool = False
    varied: bool = False
    given_up: bool = False
    grown_bytes: int = 0


class Live(Protocol):
    """The data plane as the update sees it; calls return at once, state is polled."""

    def start_shadow(self, bundle: Path) -> None:
        """Load a candidate in a second worker that reads along and answers nobody."""
        ...

    def stop_shadow(self) -> None:
        """End the shadow worker, if there is one."""
        ...

    def switch(self, bundle: Path, *, trial: bool = False) -> None:
        """Serve this bundle from the next frame boundary on; a running shadow of it becomes the new worker.

        The old worker goes when the new one answers. In a trial it stays ready, memory permitting, and takes
        over at once when the new one dies; without a trial a death is answered by restarts.
        """
        ...

    def confirm(self) -> None:
        """End the trial well: the previous model's worker is let go."""
        ...

    def serving(self) -> Path | None:
        """The bundle that answers now; None while none does."""
        ...

    def stats(self) -> WindowStats:
        """Of the bundle last given to `start_shadow` or `switch`; before that, of the model that serves."""
        ...

    def baseline(self) -> WindowStats:
        """Of the serving model in the window before now."""
        ...
