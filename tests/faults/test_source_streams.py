"""Real streams from small real servers, and what cameras do to them (casebook 14)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.faults.source_servers.mjpeg_http import MjpegHttpServer
from tests.faults.source_servers.rtsp import Mode, RtspServer, h264_clip
from tests.stubs.sinks import ListSink, drain

from vedette.errors import SourceLostError
from vedette.source.opencv import OPTIONS_VARIABLE
from vedette.source.port import SourceSpec
from vedette.source.registry import open_source

if TYPE_CHECKING:
    from vedette.source.port import Source


def open_at(url: str, *, stall_s: float = 1.0, open_timeout_s: float = 3.0, **changes: object) -> Source:
    return open_source(
        SourceSpec(camera="front", input=url, stall_s=stall_s, open_timeout_s=open_timeout_s, **changes)  # type: ignore[arg-type]
    )


def test_frames_of_an_rtsp_camera_arrive() -> None:
    """Size, order of stamps, and no password in anything that is shown."""
    with RtspServer(h264_clip(), fps=50) as server:
        source = open_at(server.url)
        sink = drain(source, ListSink(stop_after=10))
        source.close()
    assert (source.info.format.width, source.info.format.height) == (160, 120)
    assert source.info.live
    assert "hunter2" not in source.info.description
    stamps = [captured_ns for _, _, captured_ns in sink.frames]
    assert stamps == sorted(stamps)
    assert len(set(sink.pixels)) > 1
    assert OPTIONS_VARIABLE not in os.environ


def test_case_14_a_camera_that_falls_silent_is_noticed_within_the_stall_time() -> None:
    """Case 14: frames, then silence on an open connection: the read time-out ends the wait."""
    with RtspServer(h264_clip(), fps=50, mode=Mode.MUTE, frames=15) as server:
        source = open_at(server.url, stall_s=1.0)
        sink = ListSink()
        began_s = time.monotonic()
        with pytest.raises(SourceLostError, match="gives no frame") as caught:
            drain(source, sink)
        took_s = time.monotonic() - began_s
        source.close()
    assert len(sink.frames) >= 10
    assert took_s < 15.0
    assert "hunter2" not in caught.value.diagnostics()


def test_case_14_a_server_that_accepts_and_says_nothing_does_not_hold_the_opening() -> None:
    """Case 14: the opening has its own time-out, and says what was reached."""
    with RtspServer(h264_clip(), mode=Mode.SILENT) as server:
        began_s = time.monotonic()
        with pytest.raises(SourceLostError, match="accepts connections") as caught:
            open_at(server.url, open_timeout_s=0.5)
        assert time.monotonic() - began_s < 15.0
    assert "hunter2" not in caught.value.diagnostics()


def test_a_closed_connection_is_a_loss_and_the_camera_can_be_opened_again() -> None:
    """Closed by the camera, refused while it is away, fine when it is back on the same port."""
    with RtspServer(h264_clip(), fps=50, mode=Mode.CLOSE, frames=15) as server:
        source = open_at(server.url)
        with pytest.raises(SourceLostError):
            drain(source, ListSink())
        source.close()
        server.stop()
        with pytest.raises(SourceLostError, match="refuses connections"):
            open_at(server.url)
        server.mode = Mode.PLAY
        server.start()
        source = open_at(server.url)
        assert len(drain(source, ListSink(stop_after=3)).frames) == 3
        source.close()
        assert server.connections >= 2


def test_a_path_that_does_not_exist_is_told_from_a_dead_host() -> None:
    """404 behind a living port."""
    with (
        RtspServer(h264_clip(), mode=Mode.REFUSE) as server,
        pytest.raises(SourceLostError, match="gives no stream for this path"),
    ):
        open_at(server.url)


@pytest.mark.parametrize("mute", [False, True])
def test_an_http_camera_delivers_and_its_end_is_a_loss(mute: bool) -> None:  # noqa: FBT001 - parametrised
    """Multipart MJPEG over HTTP: every frame that was sent, then a loss, silent or closed."""
    pictures = [
        cv2.imencode(".jpg", np.full((48, 64, 3), level, np.uint8))[1].tobytes() for level in (30, 120, 220)
    ]
    with MjpegHttpServer(pictures, fps=100, frames=30, mute=mute) as server:
        source = open_at(server.url)
        sink = ListSink()
        with pytest.raises(SourceLostError) as caught:
            drain(source, sink)
        source.close()
    assert len(sink.frames) >= 25
    assert "hunter2" not in caught.value.diagnostics() + source.info.description
