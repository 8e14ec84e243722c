"""A request that is not carried out, and the HTTP status that says so. Pure."""

from __future__ import annotations

from vedette.errors import VedetteError


class RequestRefusedError(VedetteError):
    """Why a request gets no answer; `retry_after_s` is set where asking again later may help."""

    def __init__(
        self, status: int, cause: str, *, cure: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(cause, cure=cure)
        self.status = status
        self.retry_after_s = retry_after_s

    def text(self) -> str:
        """Cause and cure in a line."""
        return self.cause if self.cure is None else f"{self.cause}; {self.cure}"


def bad_request(cause: str, *, cure: str | None = None) -> RequestRefusedError:
    """The request is wrong; the same request will be wrong again."""
    return RequestRefusedError(400, cause, cure=cure)


def too_large(cause: str, *, cure: str | None = None) -> RequestRefusedError:
    """More bytes than there is room for."""
    return RequestRefusedError(413, cause, cure=cure)


def not_now(cause: str, *, retry_after_s: float = 1.0, cure: str | None = None) -> RequestRefusedError:
    """The request may be good; it cannot be answered at the moment."""
    return RequestRefusedError(503, cause, cure=cure, retry_after_s=retry_after_s)
