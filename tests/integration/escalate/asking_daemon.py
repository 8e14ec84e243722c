"""The daemon's and the worker's side of the asking process, as far as it can tell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.bundle.folder import load_bundle
from vedette.clock import SystemClock
from vedette.engine.case_writer import CaseWriter, slot_bytes_for
from vedette.escalate.messages import (
    Concluded,
    EscalatorEvent,
    EscalatorFigures,
    EscalatorReady,
    Feed,
    FromEscalator,
    NewSetting,
    StopEscalating,
    begin,
)
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.reader import Lease
from vedette.frame.ring import Ring, create_ring
from vedette.gate.case import Case
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Label, ModelRef, Result
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from vedette.config.escalation import EscalationConfig

PATIENCE_S = 60.0
FORMAT = describe(64, 48, PixelFormat.BGR24)
SLOTS = 8


class AskingDaemon:
    """Starts the process and feeds it."""

    def __init__(self, config: EscalationConfig, state: Path | None = None) -> None:
        self._spec, self._begin = begin(config, state_dir=str(state or ""), device="box")
        self.results: list[Result] = []
        self.events: list[EscalatorEvent] = []
        self.settings: list[NewSetting] = []
        self.figures: list[EscalatorFigures] = []
        self.ready = False
        self._rings: list[Ring] = []

    def __enter__(self) -> Self:
        ours, theirs = channel_pair()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vedette.escalate.child",
                str(theirs.fileno()),
                str(os.getpid()),
                msgspec.json.encode(self._spec).decode(),
            ],
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self.channel: Channel[FromEscalator] = Channel(ours, FromEscalator)
        self.channel.send(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.process.stderr is not None:
            self.process.stderr.close()
        self.channel.close()
        for ring in self._rings:
            ring.close()
            ring.handles.close()

    def feed(self, bundle: Path, slots: int = SLOTS) -> CaseWriter:
        """A worker of this bundle; what it asks about goes into the ring behind the writer."""
        found = load_bundle(bundle)
        self._sha256 = found.model_sha256
        geometry = RingGeometry(slots, slot_bytes_for(FORMAT.frame_bytes), newest_wins=False)
        ring = Ring(create_ring(geometry, name="cases"))
        self._rings.append(ring)
        ref = ModelRef(found.spec.name, found.spec.version, found.sha256)
        assert self.channel.send(Feed(ref, found.model_sha256, str(bundle)), ring.handles.fds)
        return CaseWriter(ring, SystemClock())

    def case(self, seq: int, *, audit: bool = False) -> Case:
        """A frame that was answered just now, as red."""
        result = Result(
            1,
            "front",
            seq,
            time.monotonic_ns(),
            ModelRef("tiny", "1", "a"),
            "classify",
            top=(Label("red", 0, 0.4),),
        )
        return Case(
            reason=Reason.AUDIT if audit else Reason.UNCERTAIN,
            result=result,
            score=0.4,
            uncertainty=0.6,
            inclusion=0.02,
            setting=1,
            guarantee=Guarantee.NONE,
            model_sha256=self._sha256,
            logits=np.array([1.0, 0.9, 0.0, 0.0], "<f4").tobytes(),
        )

    def ask(self, writer: CaseWriter, seq: int, *, audit: bool = False) -> bool:
        """Hand a frame of one grey over."""
        rng = np.random.default_rng(seq)
        pixels = memoryview(rng.integers(0, 256, FORMAT.frame_bytes, np.uint8).tobytes())
        now_ns = time.monotonic_ns()
        return writer.offer(Lease(seq, 0, FORMAT, pixels, now_ns, now_ns), self.case(seq, audit=audit))

    def hear(self, until: Callable[[], bool]) -> None:
        """Read what comes until something is so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < deadline_s, (self.results, self.events, self.figures[-1:])
            received = self.channel.receive(0.2)
            if received is not None:
                self._heard(received[0])

    def stop(self) -> float:
        """Ask it to end; how many seconds it took."""
        began_s = time.monotonic()
        self.channel.send(StopEscalating())
        while True:
            assert time.monotonic() < began_s + PATIENCE_S
            try:
                received = self.channel.receive(0.2)
            except PeerGoneError:
                break
            if received is not None:
                self._heard(received[0])
        assert self.process.wait(PATIENCE_S) == 0
        return time.monotonic() - began_s

    def words(self) -> dict[int, str]:
        """How each case ended, by the frame's number."""
        return {one.seq: one.escalation.outcome for one in self.results if one.escalation is not None}

    def _heard(self, message: Any) -> None:  # noqa: ANN401 - a union that a chain of checks takes apart
        if isinstance(message, Concluded):
            self.results += message.results
        elif isinstance(message, EscalatorEvent):
            self.events.append(message)
        elif isinstance(message, NewSetting):
            self.settings.append(message)
        elif isinstance(message, EscalatorFigures):
            self.figures.append(message)
        elif isinstance(message, EscalatorReady):
            self.ready = True
