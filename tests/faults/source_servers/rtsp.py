"""A small RTSP server on loopback: H.264 over interleaved TCP with the faults of cameras.

RFC 2326 and RFC 6184.

    with RtspServer(h264_clip()) as server:            # plays for ever
        open_source(SourceSpec(camera="c", input=server.url))
        server.mode = Mode.MUTE                        # live connections fall silent, none is closed
        server.stop(); server.start()                  # the camera goes and comes back on the same port

Modes hold for connections that are open as well as for new ones.
"""

from __future__ import annotations

import base64
import contextlib
import re
import select
import socket
import struct
import subprocess
import threading
import time
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

CLOCK_HZ = 90_000
PAYLOAD_TYPE = 96
MAX_PAYLOAD_BYTES = 1400
SLICE_S = 0.05
WRITE_TIMEOUT_S = 5.0


class Mode(Enum):
    """What the server does with a client."""

    PLAY = "play"  # loop the clip
    SILENT = "silent"  # accept the connection and never answer
    MUTE = "mute"  # answer, send `frames` frames, then nothing, connection open
    CLOSE = "close"  # answer, send `frames` frames, then close the connection
    REFUSE = "refuse"  # answer every request with 404


@lru_cache(maxsize=4)
def h264_clip(*, width: int = 160, height: int = 120, fps: int = 10, seconds: int = 2) -> bytes:
    """A short Annex B stream of a test picture, made by the ffmpeg of imageio-ffmpeg."""
    import imageio_ffmpeg

    source = f"testsrc=size={width}x{height}:rate={fps}:duration={seconds}"
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        *("-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p"),
        *("-c:v", "libx264", "-profile:v", "baseline", "-g", str(fps), "-x264-params", "slices=1"),
        *("-f", "h264", "-"),
    ]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


class RtspServer:
    """Serves one clip to any number of clients; `frames_sent` and `connections` count over all of them."""

    def __init__(self, clip: bytes, *, fps: float = 10.0, mode: Mode = Mode.PLAY, frames: int = 20) -> None:
        self.mode = mode
        self.frames = frames
        self.connections = 0
        self.frames_sent = 0
        self._fps = fps
        self._units = access_units(clip)
        self._sdp = _description(self._units)
        self._port = 0
        self._listener: socket.socket | None = None
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; stays the same over stop and start."""
        return self._port

    @property
    def url(self) -> str:
        """The stream's address, with a password that must not be shown anywhere."""
        return f"rtsp://viewer:hunter2@127.0.0.1:{self._port}/stream"

    def start(self) -> None:
        """Listen."""
        self._stop.clear()
        self._listener = socket.create_server(("127.0.0.1", self._port), reuse_port=False)
        self._listener.settimeout(SLICE_S)
        self._port = self._listener.getsockname()[1]
        self._spawn(self._accept, self._listener)

    def stop(self) -> None:
        """Close the listener and every connection, as a camera that loses its power."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=WRITE_TIMEOUT_S)
        self._threads.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        client = _Client(connection, self._sdp)
        with connection, contextlib.suppress(OSError):
            connection.settimeout(WRITE_TIMEOUT_S)
            while not self._stop.is_set() and client.open:
                if client.playing and self.mode is not Mode.SILENT:
                    self._send_due(client)
                readable, _, _ = select.select([connection], [], [], client.wait_s(self._fps))
                if readable and not client.receive(
                    answer=self.mode is not Mode.SILENT, found=self.mode is not Mode.REFUSE
                ):
                    return

    def _send_due(self, client: _Client) -> None:
        """Send the frame that is due, unless the mode says that there are no more."""
        if client.wait_s(self._fps) > 0:
            return
        if self.mode in (Mode.MUTE, Mode.CLOSE) and client.sent >= self.frames:
            client.open = self.mode is Mode.MUTE
            return
        client.send_unit(
            self._units[client.sent % len(self._units)], round(client.sent * CLOCK_HZ / self._fps)
        )
        self.frames_sent += 1


class _Client:
    """One connection: requests in, answers and RTP packets out."""

    def __init__(self, connection: socket.socket, sdp: str) -> None:
        self.open = True
        self.playing = False
        self.sent = 0
        self._connection = connection
        self._sdp = sdp
        self._received = bytearray()
        self._sequence = 0
        self._began_s = 0.0

    def wait_s(self, fps: float) -> float:
        """Seconds until the next frame is due, at most a slice."""
        if not self.playing:
            return SLICE_S
        return min(SLICE_S, max(0.0, self._began_s + self.sent / fps - time.monotonic()))

    def receive(self, *, answer: bool, found: bool) -> bool:
        """Read requests and answer them; False when the client has gone."""
        data = self._connection.recv(65536)
        if not data:
            return False
        self._received += data
        while self._received:
            if self._received[0] == ord("$"):  # the client's RTCP
                if len(self._received) < 4:
                    break
                length = 4 + int.from_bytes(self._received[2:4], "big")
                if len(self._received) < length:
                    break
                del self._received[:length]
                continue
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                break
            request = self._received[:end].decode("latin-1")
            del self._received[: end + 4]
            if answer:
                self._answer(request, found=found)
        return True

    def _answer(self, request: str, *, found: bool) -> None:
        method = request.split(" ", 1)[0]
        sequence = re.search(r"(?im)^CSeq: *(\d+)", request)
        lines = [
            "RTSP/1.0 200 OK" if found else "RTSP/1.0 404 Not Found",
            f"CSeq: {sequence[1] if sequence else 0}",
        ]
        body = ""
        if found and method == "OPTIONS":
            lines.append("Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER")
        elif found and method == "DESCRIBE":
            body = self._sdp
            lines += ["Content-Type: application/sdp", f"Content-Length: {len(body)}"]
        elif found and method == "SETUP":
            lines += ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1", "Session: 1;timeout=60"]
        elif found and method == "PLAY":
            lines += ["Session: 1", "Range: npt=0-"]
        self._connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        if found and method == "PLAY":
            self.playing, self._began_s = True, time.monotonic()
        if method == "TEARDOWN":
            self.open = False

    def send_unit(self, nals: list[bytes], stamp: int) -> None:
        """One access unit as RTP packets in the interleaved channel 0."""
        packets = [packet for nal in nals for packet in _payloads(nal)]
        for index, payload in enumerate(packets):
            marker = 0x80 if index == len(packets) - 1 else 0
            header = struct.pack(
                ">BBHII", 0x80, marker | PAYLOAD_TYPE, self._sequence & 0xFFFF, stamp & 0xFFFFFFFF, 0x56454454
            )
            self._sequence += 1
            self._connection.sendall(
                struct.pack(">BBH", 0x24, 0, len(header) + len(payload)) + header + payload
            )
        self.sent += 1


def access_units(clip: bytes) -> list[list[bytes]]:
    """The NAL units of each picture of a one-slice Annex B stream, with what stands before it."""
    units: list[list[bytes]] = []
    pending: list[bytes] = []
    for nal in filter(None, re.split(rb"\x00\x00\x00?\x01", clip)):
        pending.append(nal)
        if nal[0] & 0x1F in (1, 5):
            units.append(pending)
            pending = []
    return units


def _payloads(nal: bytes) -> Iterator[bytes]:
    """Whole, or in fragments (FU-A, RFC 6184 section 5.8)."""
    if len(nal) <= MAX_PAYLOAD_BYTES:
        yield nal
        return
    indicator, kind = nal[0] & 0xE0 | 28, nal[0] & 0x1F
    body = nal[1:]
    for at in range(0, len(body), MAX_PAYLOAD_BYTES):
        start = 0x80 if at == 0 else 0
        end = 0x40 if at + MAX_PAYLOAD_BYTES >= len(body) else 0
        yield bytes([indicator, start | end | kind]) + body[at : at + MAX_PAYLOAD_BYTES]


def _description(units: list[list[bytes]]) -> str:
    """SDP with the parameter sets, so that a client knows the size before the first packet."""
    sets = [nal for nal in units[0] if nal[0] & 0x1F in (7, 8)]
    encoded = ",".join(base64.b64encode(nal).decode() for nal in sets)
    lines = [
        "v=0",
        "o=- 0 0 IN IP4 127.0.0.1",
        "s=test",
        "c=IN IP4 127.0.0.1",
        "t=0 0",
        f"m=video 0 RTP/AVP {PAYLOAD_TYPE}",
        f"a=rtpmap:{PAYLOAD_TYPE} H264/{CLOCK_HZ}",
        f"a=fmtp:{PAYLOAD_TYPE} packetization-mode=1;sprop-parameter-sets={encoded}",
        "a=control:track1",
    ]
    return "\r\n".join(lines) + "\r\n"
