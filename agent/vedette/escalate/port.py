"""The large model as this agent sees it: a question with a deadline, an answer or a fault with a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from vedette.wire.bundle import Task
    from vedette.wire.escalation import CloudFault


class Usage(NamedTuple):
    """What an answer cost, as the provider says; zeros where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Question(NamedTuple):
    """A picture that may leave the box, and what is asked about it.

    `jpeg` is width x height pixels. `labels` are the bundle's class names in order. `prompt` is its own, or
    a plain one made of task and labels. `request_id` is ours, so that a repeated request can be recognised.
    """

    request_id: str
    task: Task
    jpeg: bytes
    width: int
    height: int
    labels: tuple[str, ...]
    prompt: str


class CloudBox(NamedTuple):
    """One object; `box` x1, y1, x2, y2 in pixels of what was sent; no score where none was given."""

    label: str
    box: tuple[float, float, float, float]
    score: float | None


class CloudAnswer(NamedTuple):
    """What the large model said, validated but in its own words: labels are not mapped yet.

    `probabilities` are by label and sum to at most 1, where the provider gives them. `sent_bytes` and
    `received_bytes` count bodies; `took_s` is the whole time on a monotonic clock. `loose`: the answer had to
    be taken out of words around it.
    """

    label: str | None
    probabilities: dict[str, float]
    boxes: tuple[CloudBox, ...]
    model: str
    usage: Usage
    sent_bytes: int
    received_bytes: int
    took_s: float
    loose: bool = False


class CloudError(UnavailableError):
    """No usable answer; `fault` says why. `retry_after_s` is the server's wish, already clamped, None: none.

    `final`: asking again is useless until somebody changes something. `usage` is what it cost all the same.
    """

    def __init__(
        self,
        fault: CloudFault,
        detail: str,
        *,
        retry_after_s: float | None = None,
        final: bool = False,
        sent_bytes: int = 0,
        usage: Usage = Usage(),  # noqa: B008 - immutable
    ) -> None:
        super().__init__(detail)
        self.fault = fault
        self.retry_after_s = retry_after_s
        self.final = final
        self.sent_bytes = sent_bytes
        self.usage = usage


class CloudClient(Protocol):
    """One way to ask; several threads may ask at once."""

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """Ask, with at most one retry, and be back by then, whatever the server does.

        Args:
            question: What is asked.
            deadline_s: When to be back, CLOCK_MONOTONIC in seconds.

        Raises:
            CloudError: Why there is no usable answer; raised at most 50 ms after the deadline.
        """
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...
