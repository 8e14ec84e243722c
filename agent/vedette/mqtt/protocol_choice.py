"""The version of MQTT that one broker gets: 5, or 3.1.1 where it knows no more. Pure but for its clock.

Some brokers refuse MQTT 5 in words, and that is remembered. Others just hang up after CONNECT, as any broker
in trouble does; so that is a guess: it takes two in a row, 3.1.1 must then work, and 5 is tried again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.clock import Clock

MQTT_5 = 5
MQTT_3_1_1 = 4
HANGUPS_TO_DOUBT = 2
GUESS_HOLDS_S = 3600.0


class ProtocolChoice:
    """What one broker was found to speak."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told = False
        self._hangups = 0
        self._guessed_ns: int | None = None

    def next(self) -> int:
        """The protocol level for the next connection."""
        if self._told or self._guess_holds():
            return MQTT_3_1_1
        if self._hangups >= HANGUPS_TO_DOUBT:
            # 3.1.1 has its turn once; if that ends in the same way, the version was not the reason.
            return MQTT_3_1_1
        return MQTT_5

    def refused(self) -> None:
        """The broker said that it does not speak MQTT 5."""
        self._told = True

    def hung_up(self, protocol: int) -> None:
        """The broker closed the connection after CONNECT, without an answer."""
        if protocol == MQTT_5:
            self._hangups += 1
            return
        self._hangups = 0
        self._guessed_ns = None

    def failed_otherwise(self) -> None:
        """The attempt ended in a way that says nothing about versions."""
        self._hangups = 0

    def accepted(self, protocol: int) -> None:
        """The broker took the connection."""
        self._hangups = 0
        if protocol == MQTT_5:
            self._guessed_ns = None
        elif self._guessed_ns is None:
            self._guessed_ns = self._clock.monotonic_ns()

    def _guess_holds(self) -> bool:
        if self._guessed_ns is None:
            return False
        return self._clock.monotonic_ns() - self._guessed_ns < GUESS_HOLDS_S * 1e9
