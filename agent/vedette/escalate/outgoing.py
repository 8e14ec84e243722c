"""What goes out to the daemon, in order, without ever waiting for it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from vedette.errors import BadInputError
from vedette.escalate.messages import Concluded, EscalatorEvent
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from vedette.escalate.messages import EscalatorFigures, NewSetting, ToEscalator
    from vedette.frame.channel import Channel
    from vedette.wire.messages import Result


class Outgoing:
    """Outcomes and events wait until they are read; of figures and settings only the newest does."""

    def __init__(self, control: Channel[ToEscalator]) -> None:
        self._control = control
        self._kept: deque[tuple[Concluded | EscalatorEvent, Result | None]] = deque()
        self._newest: dict[type, NewSetting | EscalatorFigures] = {}

    @property
    def unread(self) -> int:
        """Messages that must not be lost and are not sent yet."""
        return len(self._kept)

    def conclude(self, result: Result, local: Result) -> None:
        """One escalation ended; `local` is the answer that the box gave."""
        self._kept.append((Concluded((result,)), local))

    def tell(self, message: NewSetting | EscalatorFigures | EscalatorEvent) -> None:
        """Anything else."""
        if isinstance(message, EscalatorEvent):
            self._kept.append((message, None))
        else:
            self._newest[type(message)] = message

    def flush(self) -> bool:
        """Send what can be sent; False where the daemon has to read first.

        Raises:
            PeerGoneError: There is no daemon.
        """
        while self._kept:
            if not self._send(*self._kept[0]):
                return False
            self._kept.popleft()
        for kind, message in tuple(self._newest.items()):
            if not self._control.send(message):
                return False
            del self._newest[kind]
        return True

    def _send(self, message: Concluded | EscalatorEvent, local: Result | None) -> bool:
        try:
            return self._control.send(message)
        except BadInputError:
            if isinstance(message, EscalatorEvent) or local is None:
                raise
            return self._control.send(Concluded((_too_large(message.results[0], local),)))


def _too_large(result: Result, local: Result) -> Result:
    """An outcome that no datagram carries: the large model's boxes are beyond all measure."""
    ended = result.escalation
    if ended is None:
        return local
    cause = CloudFault.TOO_LARGE.value
    return replace(local, escalation=replace(ended, outcome="failed", cause=cause, said=UNSET))
