"""A large model whose every try is paid for: retries, and those that bring nothing, cost as well."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from vedette.escalate.port import CloudError

if TYPE_CHECKING:
    from vedette.escalate.port import CloudAnswer, CloudClient, Question
    from vedette.escalate.purse import Purse


class PaidClient:
    """Implements `port.CloudClient`; `begin` is said before each question, which was paid for once."""

    def __init__(self, client: CloudClient, purse: Purse) -> None:
        self._client = client
        self._purse = purse
        self._own = threading.local()

    def begin(self, *, audit: bool) -> None:
        """The next question of this thread is for an audit, or not."""
        self._own.audit = audit
        self._own.failed = None

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """See `CloudClient`; where there is no money for one more try, the fault of the one before stands."""
        failed: CloudError | None = self._own.failed
        if failed is not None and not self._purse.take(audit=self._own.audit):
            raise failed
        try:
            answer = self._client.ask(question, deadline_s)
        except CloudError as error:
            self._own.failed = error
            self._purse.cost(error.sent_bytes, error.usage)
            raise
        self._purse.cost(answer.sent_bytes, answer.usage)
        return answer

    def close(self) -> None:
        """See `CloudClient`."""
        self._client.close()
