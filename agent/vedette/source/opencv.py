"""Opens OpenCV's VideoCapture: video files, RTSP and HTTP streams, V4L2 devices. The only file that names it.

A read may block in native code whatever time-outs are set (measured: RTSP notices a mute server after about
three times the read time-out); the daemon kills the source child when its pulse stops (casebook 14).
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import cv2

from vedette.errors import BadInputError, SourceLostError
from vedette.source.capture import Capture, CaptureSource, Nature
from vedette.source.urls import redact_url
from vedette.source.v4l2 import check_device, device_path, requested_fourcc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vedette.source.port import SourceSpec

OPTIONS_VARIABLE = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
RTSP_OPTIONS = "rtsp_transport;tcp"
DIAGNOSIS_TIMEOUT_S = 3.0
DEFAULT_PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}


def open_file(path: str, spec: SourceSpec) -> CaptureSource:
    """A video file, every frame of it.

    Raises:
        BadInputError: It cannot be read, or holds no video.
    """
    description = f"video file {path}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - only to learn why it cannot be read
            empty = not file.read(1)
    except OSError as error:
        raise BadInputError(f"{description} cannot be read: {error.strerror}") from error
    if empty:
        raise BadInputError(f"{description} is empty")

    def open_capture() -> Capture:
        capture: Capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG)
        if not capture.isOpened():
            raise BadInputError(
                f"{description} is not a video that OpenCV's FFmpeg reads",
                cure="see what ffprobe says; raw streams need their `container` (y4m, rawvideo, mjpeg)",
            )
        return capture

    return CaptureSource(open_capture, spec, Nature.FILE, description=description)


def open_stream(url: str, spec: SourceSpec) -> CaptureSource:
    """An RTSP, HTTP or other network stream, opened over TCP and with time-outs.

    Raises:
        SourceLostError: It cannot be opened, or gives no frame; the message holds no credentials.
    """
    description = redact_url(url)

    def open_capture() -> Capture:
        with _ffmpeg_options(url):
            capture: Capture = cv2.VideoCapture(url, cv2.CAP_FFMPEG, _stream_parameters(spec))
        if not capture.isOpened():
            reason = diagnose(url)
            raise SourceLostError(
                f"{description} cannot be opened: {reason}", cure="check address, path, user and password"
            )
        return capture

    return CaptureSource(open_capture, spec, Nature.STREAM, description=description)


def open_device(text: str, spec: SourceSpec) -> CaptureSource:
    """A V4L2 device with the asked size, rate and format; what it gives instead is in `info.notes`.

    Raises:
        SourceLostError: Missing, forbidden, busy, or without a picture.
        ConfigError: A format that cannot be asked for.
    """
    path = device_path(text)
    asked_fourcc = requested_fourcc(spec)

    def open_capture() -> Capture:
        node = check_device(path)
        capture: Capture = cv2.VideoCapture(node, cv2.CAP_V4L2, _device_parameters(spec, asked_fourcc))
        if not capture.isOpened():
            raise SourceLostError(
                f"{path} opens, but OpenCV cannot stream from it",
                cure="another program may hold it (`fuser -v`), or it is a metadata node: "
                "`v4l2-ctl --list-devices` shows its neighbours",
            )
        return capture

    return CaptureSource(
        open_capture, spec, Nature.DEVICE, description=f"device {path}", asked_fourcc=asked_fourcc
    )


def diagnose(url: str) -> str:
    """Why a stream did not open: name, network, refused, or something behind the connection."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme.lower())
    except ValueError:
        return "the address cannot be understood"
    if not host or not port:
        return "the protocol failed"
    try:
        socket.create_connection((host, port), timeout=DIAGNOSIS_TIMEOUT_S).close()
    except socket.gaierror:
        return f"the name {host} is not known"
    except ConnectionRefusedError:
        return f"{host}:{port} refuses connections"
    except OSError as error:
        return f"{host}:{port} is not reachable ({error.strerror or 'timed out'})"
    return f"{host}:{port} accepts connections, but gives no stream for this path and user"


@contextlib.contextmanager
def _ffmpeg_options(url: str) -> Iterator[None]:
    """OpenCV takes FFmpeg's options from the environment only; what the user set there stays."""
    if not url.lower().startswith("rtsp") or OPTIONS_VARIABLE in os.environ:
        yield
        return
    os.environ[OPTIONS_VARIABLE] = RTSP_OPTIONS
    try:
        yield
    finally:
        os.environ.pop(OPTIONS_VARIABLE, None)


def _stream_parameters(spec: SourceSpec) -> list[int]:
    parameters = [
        cv2.CAP_PROP_OPEN_TIMEOUT_MSEC,
        max(1, round(spec.open_timeout_s * 1000)),
        cv2.CAP_PROP_READ_TIMEOUT_MSEC,
        max(1, round(spec.stall_s * 1000)),
    ]
    threads = getattr(cv2, "CAP_PROP_N_THREADS", None)
    if threads is not None and spec.live is not False:
        # Frame threads hold back one frame each: with n threads a live picture is n - 1 frames older.
        parameters += [threads, 1]
    return parameters


def _device_parameters(spec: SourceSpec, fourcc: str) -> list[int]:
    parameters: list[int] = []
    if fourcc:
        parameters += [cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*fourcc)]
    wanted: Sequence[tuple[int, float]] = (
        (cv2.CAP_PROP_FRAME_WIDTH, spec.width),
        (cv2.CAP_PROP_FRAME_HEIGHT, spec.height),
        (cv2.CAP_PROP_FPS, spec.fps),
    )
    for prop, value in wanted:
        if value:
            parameters += [prop, max(1, round(value))]
    return parameters
