"""Who asks, and whether that device may ask now. Pure but for what it counts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from vedette.api.refusal import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vedette.clock import Clock
    from vedette_cloud.device_budgets import DeviceBudgets
    from vedette_cloud.metrics import Metrics
    from vedette_cloud.tokens import Tokens

ANYBODY = "anybody"
_SCHEME = "bearer "


class Entrance:
    """Tokens and budgets; without tokens everybody is one device, and shares one budget."""

    def __init__(self, tokens: Tokens | None, budgets: DeviceBudgets, clock: Clock, metrics: Metrics) -> None:
        self._tokens = tokens
        self._budgets = budgets
        self._clock = clock
        self._metrics = metrics

    def device(self, headers: Mapping[str, str]) -> str:
        """The device that asks; header names are in lower case.

        Raises:
            RequestRefusedError: 401: it does not say; 403: nobody has that token.
        """
        if self._tokens is None:
            return ANYBODY
        value = headers.get("authorization", "")
        if not value.lower().startswith(_SCHEME) or not value[len(_SCHEME) :].strip():
            self._metrics.refused("token")
            raise RequestRefusedError(
                401, "this server wants to know who asks", cure="send Authorization: Bearer TOKEN"
            )
        device = self._tokens.device_of(value[len(_SCHEME) :].strip())
        if device is None:
            self._metrics.refused("token")
            raise RequestRefusedError(
                403, "this token is of no device here", cure="ask the server's operator for one"
            )
        return device

    @contextlib.contextmanager
    def charged(self, device: str) -> Iterator[None]:
        """Count a request in a device's budgets; one that fails by the server's fault costs nothing.

        Raises:
            RequestRefusedError: 429: a budget is used up; it says which, and until when.
        """
        beyond = self._budgets.take(device, self._clock.monotonic_ns())
        if beyond is not None:
            self._metrics.refused("budget")
            raise RequestRefusedError(
                429, beyond.text(device), cure="ask less often", retry_after_s=beyond.wait_ns / 1e9
            )
        try:
            yield
        except RequestRefusedError as refusal:
            if refusal.status >= 500:
                self._budgets.give_back(device)
            raise
