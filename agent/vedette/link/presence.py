"""Birth, will and goodbye: one topic, one QoS, one retain flag, and a session that tells them apart. Pure.

A will that the broker publishes late names a session that is not the newest; whoever sees it can tell, and
the device itself says again that it is there (casebook 31).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.mqtt.port import Outgoing
from vedette.wire.plane import JSON_TYPE, DeviceStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.link.entries import Moment


class Presence:
    """What the device says of itself; `will` is called on the network thread, the rest on the link's."""

    def __init__(
        self,
        topic: str,
        device: str,
        agent: str,
        *,
        now: Callable[[], Moment],
        new_session: Callable[[], str],
    ) -> None:
        self._topic = topic
        self._device = device
        self._agent = agent
        self._now = now
        self._new_session = new_session
        self._session = new_session()

    def will(self) -> Outgoing:
        """The will of the connection that is being made, and with it that connection's session."""
        self._session = self._new_session()
        return self._message(online=False)

    def birth(self) -> Outgoing:
        """The device is there, in the newest session."""
        return self._message(online=True)

    def goodbye(self) -> Outgoing:
        """The device ends in good order."""
        return self._message(online=False, clean=True)

    def contradicted_by(self, payload: bytes) -> bool:
        """Whether this, on our own topic, says that we are away or were in another session.

        Raises:
            msgspec.DecodeError: It is no status.
        """
        said = msgspec.json.decode(payload, type=DeviceStatus)
        return not said.online or said.session != self._session

    def _message(self, *, online: bool, clean: bool = False) -> Outgoing:
        now = self._now()
        status = DeviceStatus(
            online=online,
            device=self._device,
            boot_id=now.boot_id,
            session=self._session,
            agent=self._agent,
            utc_s=round(now.utc_s, 3),
            clock_trusted=now.utc_trusted,
            clean=clean,
        )
        return Outgoing(self._topic, msgspec.json.encode(status), qos=1, retain=True, content_type=JSON_TYPE)
