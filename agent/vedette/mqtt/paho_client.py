"""One connection by paho, driven from outside by one thread; the only module that names paho.

paho's own thread and reconnecting are not used: an exception in a callback would end that thread unseen, what
was in flight would be sent again in the next connection, and delays have no jitter (`DECISIONS.md`). A client
serves one connection and is thrown away. Four methods of paho's are overridden to open the socket ourselves,
to keep the reason of a failure, and to read around a packet that is larger than we allow.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from vedette.errors import UnavailableError
from vedette.mqtt.loss import LinkLostError, disconnected
from vedette.mqtt.port import Arrived, Limits, Outgoing
from vedette.mqtt.protocol_choice import MQTT_5
from vedette.mqtt.sockets import stream_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paho.mqtt.client import ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from vedette.mqtt.listener import Listener
    from vedette.mqtt.port import BrokerOptions, Subscription

WILL_DELAY_S = 30
# MQTT 3.1.1 says nothing of it; the usual limit of brokers.
RECEIVE_MAXIMUM_3_1_1 = 20
_OVERRIDDEN = ("_create_socket", "_sock_recv", "_sock_send", "_packet_read", "_send_puback")
_PUBLISH = 0x30
# Topic and packet identifier stand in the first bytes of a PUBLISH.
_HEAD_BYTES = 2 + 65_535 + 2


class PahoClient:
    """A client for one connection."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        protocol: int,
        clean_start: bool,
        will: Outgoing | None,
        open_socket: Callable[[], socket.socket],
        listener: Listener,
    ) -> None:
        missing = [name for name in _OVERRIDDEN if not hasattr(paho.Client, name)]
        if missing:
            raise UnavailableError(
                f"this version of paho-mqtt has no {', '.join(missing)}", cure="install paho-mqtt 2.2"
            )
        self._options = options
        self._protocol = protocol
        self._clean_start = clean_start
        self._client = _Client(options, protocol, open_socket, listener)
        if options.username:
            self._client.username_pw_set(options.username, options.password or None)
        if will is not None:
            properties = self._properties(PacketTypes.WILLMESSAGE, will)
            if properties is not None:
                # Not longer than the session, at whose end it is due anyway; Mosquitto 2.0.11 waits on.
                properties.WillDelayInterval = min(WILL_DELAY_S, options.session_expiry_s)
            self._client.will_set(will.topic, will.payload, will.qos, will.retain, properties)

    @property
    def heard_ns(self) -> int:
        """When bytes of the broker came last, CLOCK_MONOTONIC; 0 when none did."""
        return self._client.heard_ns

    @property
    def want_write(self) -> bool:
        """Whether bytes wait for the socket."""
        return self._client.want_write()

    def connect(self) -> None:
        """Open the stream and send CONNECT.

        Raises:
            LinkLostError: The stream cannot be opened.
        """
        host = self._options.host or "localhost"
        port = self._options.port
        if self._protocol != MQTT_5:
            self._check(self._client.connect(host, port, self._options.keepalive_s))
            return
        properties = _properties_of(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = self._options.session_expiry_s
        properties.ReceiveMaximum = self._options.receive_maximum
        properties.MaximumPacketSize = self._options.max_packet_bytes
        self._check(
            self._client.connect(
                host, port, self._options.keepalive_s, clean_start=self._clean_start, properties=properties
            )
        )

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Ask for all of them in one packet.

        Retained messages are sent again each time: it costs little, and heals what a full session lost.

        Raises:
            LinkLostError: The stream broke.
        """
        if self._protocol == MQTT_5:
            with_options = [
                (
                    wanted.filter,
                    SubscribeOptions(qos=wanted.qos, retainAsPublished=wanted.retain_as_published),
                )
                for wanted in subscriptions
            ]
            self._check(self._client.subscribe(with_options)[0])
        else:
            self._check(self._client.subscribe([(wanted.filter, wanted.qos) for wanted in subscriptions])[0])

    def publish(self, message: Outgoing, *, retain: bool) -> int:
        """Send a message now, or as soon as the socket takes it.

        Returns:
            The packet's identifier, for QoS 1.

        Raises:
            LinkLostError: The stream broke.
        """
        properties = self._properties(PacketTypes.PUBLISH, message)
        while True:
            info = self._client.publish(message.topic, message.payload, message.qos, retain, properties)
            # The identifier is in use still, 65,535 messages later; the next one will not be.
            if info.rc != MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
                break
        self._check(info.rc)
        return info.mid

    def read(self) -> None:
        """Read what is there."""
        self._check(self._client.loop_read())

    def write(self) -> None:
        """Write what the socket takes."""
        self._check(self._client.loop_write())

    def keep_alive(self) -> None:
        """Ping when it is time, and see that the answer came."""
        self._check(self._client.loop_misc())

    def pending(self) -> bool:
        """Whether bytes were decrypted already that no poll would show."""
        pending: Callable[[], int] | None = getattr(self._client.socket(), "pending", None)
        return pending is not None and pending() > 0

    def fileno(self) -> int:
        """The socket's descriptor; -1 when it is closed."""
        stream = self._client.socket()
        return -1 if stream is None else stream.fileno()

    @property
    def connect_sent(self) -> bool:
        """Whether the stream was open, so that the broker was asked."""
        return self._client.opened

    def cut(self) -> None:
        """End the stream from another thread; the thread that drives it sees the end."""
        self._client.cut_stream()

    def disconnect(self) -> None:
        """Say goodbye, without a will, and let the broker forget the session: the next one begins clean."""
        properties = None
        if self._protocol == MQTT_5:
            properties = _properties_of(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = 0
        self._client.disconnect(properties=properties)

    def close(self) -> None:
        """Close the socket without a word; the broker publishes the will."""
        self._client.close_stream()

    def _check(self, code: MQTTErrorCode) -> None:
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise self._client.loss(code)

    def _properties(self, packet: int, message: Outgoing) -> Properties | None:
        if self._protocol != MQTT_5:
            return None
        properties = _properties_of(packet)
        if message.content_type:
            properties.ContentType = message.content_type
        if message.expiry_s is not None:
            properties.MessageExpiryInterval = message.expiry_s
        if message.response_topic:
            properties.ResponseTopic = message.response_topic
        if message.correlation:
            properties.CorrelationData = message.correlation
        return properties


class _Client(paho.Client):
    """paho's client, with a socket of ours and callbacks that only take notes."""

    def __init__(
        self,
        options: BrokerOptions,
        protocol: int,
        open_socket: Callable[[], socket.socket],
        listener: Listener,
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            protocol=MQTTProtocolVersion(protocol),
            # 3.1.1 keeps a session for ever; what it could bring would be out of date.
            clean_session=None if protocol == MQTT_5 else True,
            reconnect_on_failure=False,
        )
        self.heard_ns = 0
        self.opened = False
        self._open_socket = open_socket
        self._listener = listener
        self._largest_bytes = options.max_packet_bytes
        self._fault: LinkLostError | None = None
        self._ended = False
        # We count what is in flight ourselves, and hand over nothing that has to wait.
        self.max_inflight_messages_set(65_535)
        self.on_connect = self._note_connect
        self.on_subscribe = self._note_subscribe
        self.on_message = self._note_message
        self.on_publish = self._note_publish
        self.on_disconnect = self._note_disconnect

    def loss(self, code: MQTTErrorCode) -> LinkLostError:
        """What an error code of paho's means here."""
        if self._fault is not None:
            return self._fault
        if code == MQTTErrorCode.MQTT_ERR_KEEPALIVE:
            return LinkLostError("silent", f"the broker did not answer a ping within {self.keepalive} s")
        if code == MQTTErrorCode.MQTT_ERR_PROTOCOL:
            return LinkLostError("closed", "the broker sent something that is not MQTT")
        return LinkLostError("closed", "the broker closed the connection without a word")

    def close_stream(self) -> None:
        """Close the socket, if it is open."""
        stream = self.socket()
        self._ended = True
        if stream is not None:
            stream.close()

    def cut_stream(self) -> None:
        """Shut the stream down below TLS, if it is open."""
        stream = self.socket()
        if isinstance(stream, socket.socket):
            with contextlib.suppress(OSError):  # it ended meanwhile
                socket.socket.shutdown(stream, socket.SHUT_RDWR)

    def _create_socket(self) -> socket.socket:
        stream = self._open_socket()
        self.opened = True
        return stream

    def _sock_recv(self, bufsize: int) -> bytes:
        if bufsize > self._largest_bytes:
            # The body of a packet larger than we allow: `_packet_read` goes around it.
            raise BlockingIOError
        try:
            received = super()._sock_recv(bufsize)
        except BlockingIOError:
            raise
        except OSError as error:
            fault = stream_loss(error, "reading from the broker")
            if self._fault is None or fault.kind != "closed":
                self._fault = fault
            raise
        if received:
            self.heard_ns = time.monotonic_ns()
        return received

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except BlockingIOError:
            raise
        except OSError as error:
            if self._fault is not None:
                raise
            # What the broker said before it hung up, an alert or a DISCONNECT, may still be there to read.
            self._fault = stream_loss(error, "writing to the broker")
            raise BlockingIOError from error

    def _packet_read(self) -> MQTTErrorCode:
        if self._too_large():
            return self._read_around()
        code = super()._packet_read()
        if code == MQTTErrorCode.MQTT_ERR_AGAIN and self._too_large():
            return self._read_around()
        return code

    def _too_large(self) -> bool:
        packet = self._in_packet
        return bool(packet["have_remaining"]) and packet["remaining_length"] > self._largest_bytes

    def _read_around(self) -> MQTTErrorCode:
        """Throw a packet that is too large away as it comes, keeping what an acknowledgement needs."""
        packet = self._in_packet
        if packet["command"] & 0xF0 != _PUBLISH:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        while packet["to_process"] > 0:
            try:
                received = self._sock_recv(min(packet["to_process"], self._largest_bytes, 65_536))
            except BlockingIOError:
                return MQTTErrorCode.MQTT_ERR_AGAIN
            except OSError:
                return MQTTErrorCode.MQTT_ERR_CONN_LOST
            if not received:
                return MQTTErrorCode.MQTT_ERR_CONN_LOST
            packet["packet"] += received[: max(0, _HEAD_BYTES - len(packet["packet"]))]
            packet["to_process"] -= len(received)
            with self._msgtime_mutex:
                self._last_bytes_received = time.monotonic()
        head, command, size = packet["packet"], packet["command"], packet["remaining_length"]
        self._in_packet = {
            "command": 0,
            "have_remaining": 0,
            "remaining_count": [],
            "remaining_mult": 1,
            "remaining_length": 0,
            "packet": bytearray(),
            "to_process": 0,
            "pos": 0,
        }
        self._listener.on_too_large(size)
        if (command >> 1) & 3 == 0:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        at = 2 + int.from_bytes(head[:2], "big")
        return self._send_puback(int.from_bytes(head[at : at + 2], "big"))

    def _note_connect(
        self,
        _client: object,
        _user: object,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        try:
            limits = _limits(int(self.protocol), properties, self._largest_bytes)
            self._listener.on_accepted(
                reason.value, str(reason), limits, session_present=bool(flags.session_present)
            )
        except Exception as error:  # noqa: BLE001 - nothing may escape into paho's loop
            self._listener.on_fault(error)

    def _note_subscribe(
        self, _client: object, _user: object, _mid: int, reasons: list[ReasonCode], _properties: object
    ) -> None:
        try:
            self._listener.on_granted([str(reason) if reason.value >= 0x80 else "" for reason in reasons])
        except Exception as error:  # noqa: BLE001 - as above
            self._listener.on_fault(error)

    def _note_message(self, _client: object, _user: object, message: MQTTMessage) -> None:
        try:
            properties = message.properties
            event = Arrived(
                topic=message.topic,  # raises where it is not UTF-8
                payload=bytes(message.payload),
                retained=bool(message.retain),
                qos=message.qos,
                response_topic=getattr(properties, "ResponseTopic", ""),
                correlation=getattr(properties, "CorrelationData", b""),
                content_type=getattr(properties, "ContentType", ""),
            )
            self._listener.on_arrived(event)
        except Exception as error:  # noqa: BLE001 - as above
            self._listener.on_fault(error)

    def _note_publish(
        self, _client: object, _user: object, mid: int, reason: ReasonCode, _properties: object
    ) -> None:
        try:
            self._listener.on_acknowledged(mid, str(reason) if reason.value >= 0x80 else "")
        except Exception as error:  # noqa: BLE001 - as above
            self._listener.on_fault(error)

    def _note_disconnect(
        self, _client: object, _user: object, flags: DisconnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        try:
            if self._ended:
                return
            self._ended = True
            if flags.is_disconnect_packet_from_server:
                self._listener.on_ended(disconnected(reason.value, str(reason)))
            elif reason.getName() == "Keep alive timeout":
                self._listener.on_ended(self.loss(MQTTErrorCode.MQTT_ERR_KEEPALIVE))
            else:
                self._listener.on_ended(self.loss(MQTTErrorCode.MQTT_ERR_CONN_LOST))
        except Exception as error:  # noqa: BLE001 - as above
            self._listener.on_fault(error)


def _properties_of(packet: int) -> Properties:
    return Properties(packet)  # type: ignore[no-untyped-call]


def _limits(protocol: int, properties: Properties | None, largest_bytes: int) -> Limits:
    """What the broker told; not every one tells how large a packet may be, so our own limit holds as well."""
    if protocol != MQTT_5:
        return Limits(
            protocol=protocol,
            max_packet_bytes=largest_bytes,
            receive_maximum=RECEIVE_MAXIMUM_3_1_1,
            shared_subscriptions=False,
        )
    return Limits(
        protocol=protocol,
        max_packet_bytes=min(largest_bytes, getattr(properties, "MaximumPacketSize", largest_bytes)),
        receive_maximum=getattr(properties, "ReceiveMaximum", 65_535),
        retain=bool(getattr(properties, "RetainAvailable", 1)),
        shared_subscriptions=bool(getattr(properties, "SharedSubscriptionAvailable", 1)),
    )
