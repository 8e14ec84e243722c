"""How many bytes a message is as a packet, and whether it can be one at all. Pure.

Source: MQTT Version 5.0 (OASIS, 2019), sections 2.1.4, 2.2.2 and 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.mqtt.protocol_choice import MQTT_5

if TYPE_CHECKING:
    from vedette.mqtt.port import Outgoing

# Five bytes of fixed header and the largest remaining length that the encoding carries.
LARGEST_PACKET_BYTES = 5 + 268_435_455
_STRING_BYTES = 65_535
_EXPIRY_S = 0xFFFFFFFF


def publish_bytes(message: Outgoing, protocol: int) -> int:
    """The size of the PUBLISH packet in this protocol.

    Raises:
        BadInputError: No packet can carry it, whatever the broker allows.
    """
    remaining = 2 + _topic_bytes(message.topic) + len(message.payload)
    if message.qos not in {0, 1}:
        raise BadInputError(f"QoS {message.qos} cannot be published", cure="use QoS 0 or 1")
    if message.qos:
        remaining += 2
    if protocol == MQTT_5:
        properties = _property_bytes(message)
        remaining += _varint_bytes(properties) + properties
    packet = 1 + _varint_bytes(remaining) + remaining
    if packet > LARGEST_PACKET_BYTES:
        raise BadInputError(f"{len(message.payload)} bytes are more than a packet of MQTT carries")
    return packet


def _topic_bytes(topic: str) -> int:
    size = _utf8_bytes(topic, "topic")
    if not size or any(character in topic for character in "+#\0"):
        raise BadInputError(
            f"`{topic[:80]}` is no topic to publish to", cure="use a topic without wildcards or NUL"
        )
    return size


def _property_bytes(message: Outgoing) -> int:
    size = 0
    if message.content_type:
        size += 3 + _utf8_bytes(message.content_type, "content type")
    if message.response_topic:
        size += 3 + _utf8_bytes(message.response_topic, "response topic")
    if message.correlation:
        if len(message.correlation) > _STRING_BYTES:
            raise BadInputError(f"{len(message.correlation)} bytes of correlation data, at most 65535 go")
        size += 3 + len(message.correlation)
    if message.expiry_s is not None:
        if not 0 <= message.expiry_s <= _EXPIRY_S:
            raise BadInputError(f"an expiry of {message.expiry_s} s cannot be sent")
        size += 5
    return size


def _utf8_bytes(text: str, what: str) -> int:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise BadInputError(f"the {what} {text[:80]!r} is not text that UTF-8 can carry") from None
    if size > _STRING_BYTES:
        raise BadInputError(f"the {what} has {size} bytes, at most {_STRING_BYTES} go")
    return size


def _varint_bytes(value: int) -> int:
    return 1 if value < 1 << 7 else 2 if value < 1 << 14 else 3 if value < 1 << 21 else 4
