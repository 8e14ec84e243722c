"""A large model that answers from a script; it passes the contract test of `CloudClient`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from vedette.escalate.port import CloudAnswer, CloudError, Usage
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from vedette.escalate.port import Question


class FakeCloud:
    """Gives `answers` one by one, the last one for ever: a label, a CloudError, or None for silence."""

    def __init__(self, *answers: str | CloudError | None, took_s: float = 0.01) -> None:
        self._answers = list(answers)
        self._took_s = took_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.asked: list[Question] = []

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """See `CloudClient`."""
        with self._lock:
            self.asked.append(question)
            said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if said is None:
            self._closed.wait(max(0.0, deadline_s - time.monotonic()))
            raise CloudError(CloudFault.DEADLINE, "nothing came", sent_bytes=len(question.jpeg))
        if isinstance(said, CloudError):
            raise said
        return CloudAnswer(said, {said: 1.0}, (), "fake", Usage(), len(question.jpeg), 0, self._took_s)

    def close(self) -> None:
        """See `CloudClient`."""
        self._closed.set()
