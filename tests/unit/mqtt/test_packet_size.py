"""The size of a message as a packet is exactly what paho makes of it."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs.mqtt_scripted import WELCOME_3_1_1, WELCOME_5, Peer, ScriptedBroker
from tests.stubs.mqtt_waiting import connected

from vedette.errors import BadInputError
from vedette.mqtt.packet_size import LARGEST_PACKET_BYTES, publish_bytes
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import BrokerOptions, Outgoing

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="+#\0"), max_size=200)
_MESSAGES = st.builds(
    Outgoing,
    topic=_TEXT.filter(bool),
    payload=st.one_of(st.binary(max_size=300), st.sampled_from([127, 128, 16_384, 100_000]).map(bytes)),
    qos=st.sampled_from([0, 1]),
    retain=st.booleans(),
    content_type=_TEXT,
    expiry_s=st.none() | st.integers(0, 0xFFFFFFFF),
    response_topic=_TEXT,
    correlation=st.binary(max_size=200),
)


@pytest.mark.parametrize("protocol", [4, 5])
def test_it_is_what_goes_over_the_wire(protocol: int) -> None:
    """The stream is read by the framing alone, so one wrong byte would derail everything after it."""
    sizes: list[int] = []
    done = socket.socketpair()

    def part(peer: Peer) -> None:
        connect = peer.receive()
        if connect[8] != protocol:
            peer.send(bytes([0x20, 2, 0, 1]))
            return
        peer.send(WELCOME_5 if protocol == 5 else WELCOME_3_1_1)
        while packet := peer.receive():
            if packet[0] >> 4 == 3:
                sizes.append(len(packet))
                if packet[0] & 2:
                    start = 2 + next(at for at in range(1, 5) if not packet[at] & 0x80) - 1
                    topic = int.from_bytes(packet[start : start + 2], "big")
                    peer.send(bytes([0x40, 2]) + packet[start + 2 + topic : start + 4 + topic])
                done[1].send(b"\0")

    with ScriptedBroker(part) as broker:
        connection = PahoConnection(BrokerOptions(host="127.0.0.1", port=broker.port, retry_min_s=0.01))
        assert connected(connection).limits.protocol == protocol
        done[0].settimeout(10.0)

        @settings(max_examples=100, deadline=None)
        @given(_MESSAGES)
        def check(message: Outgoing) -> None:
            while connection.publish(message) is None:
                connection.next_event(0.1)
            done[0].recv(1)
            assert sizes[-1] == publish_bytes(message, protocol)

        check()
        assert connection.stop()


@pytest.mark.parametrize(
    "message",
    [
        Outgoing("", b""),
        Outgoing("a/+/b", b""),
        Outgoing("a/#", b""),
        Outgoing("a\0b", b""),
        Outgoing("a" * 65_536, b""),
        Outgoing("\ud800", b""),
        Outgoing("a", b"", qos=2),
        Outgoing("a", b"", qos=-1),
        Outgoing("a", b"", expiry_s=-1),
        Outgoing("a", b"", expiry_s=1 << 32),
        Outgoing("a", b"", correlation=bytes(65_536)),
        Outgoing("a", b"", content_type="t" * 65_536),
        Outgoing("a", b"", response_topic="\udfff"),
    ],
)
def test_what_no_packet_can_carry_is_refused(message: Outgoing) -> None:
    with pytest.raises(BadInputError):
        publish_bytes(message, 5)


def test_more_than_a_packet_carries_is_refused() -> None:
    class _Vast(bytes):
        def __len__(self) -> int:
            return LARGEST_PACKET_BYTES

    with pytest.raises(BadInputError, match="more than a packet"):
        publish_bytes(Outgoing("a", _Vast()), 5)
