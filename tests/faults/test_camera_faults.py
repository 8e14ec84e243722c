"""Cameras that die, hang, grow or want too much memory: the others go on, every frame is accounted for."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.faults.source_servers.rtsp import Mode, RtspServer, h264_clip
from tests.stubs.processes import alive
from tests.stubs.running import Running, camera, plan, worker
from tests.stubs.waiting import until

from vedette.errors import ConfigError, UnavailableError
from vedette.runtime.camera import CameraState

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.runtime.camera import Camera

LIVE = "synthetic:64x48@40"
SLOT_320 = 320 * 240 * 3
SLOT_640 = 640 * 480 * 3


def camera_of(run: Running, name: str) -> Camera:
    return next(camera for camera in run.daemon.cameras if camera.name == name)


def jpeg(width: int, height: int, level: int) -> bytes:
    return cv2.imencode(".jpg", np.full((height, width, 3), level, np.uint8))[1].tobytes()


def growing_stream(path: Path, *, small: int, large: int) -> str:
    """An MJPEG file whose pictures become larger on the way."""
    path.write_bytes(jpeg(320, 240, 40) * small + jpeg(640, 480, 200) * large)
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_live_source_that_dies_is_started_again_and_counts_on(bundle: Path, number: signal.Signals) -> None:
    """Killed or crashed: sequence numbers go on, nothing is answered twice, the other camera is untouched."""
    cameras = [camera(name, LIVE, live=True) for name in ("left", "right")]
    with Running(plan(worker(bundle), *cameras)) as run:
        run.until_answers("left", 3)
        run.until_answers("right", 1)
        other = run.source_pid("right")
        last_seq = run.sink.of("left")[-1].seq
        os.kill(run.source_pid("left"), number)
        until(lambda: camera_of(run, "left").restarts.total == 1, "the death is noticed")
        run.until_answers("right", 3)
        run.until_answers("left", 3)
        assert run.source_pid("right") == other
        assert run.sink.of("left")[-1].seq > last_seq
    assert run.error is None
    assert any(number.name in line and "trying again in" in line for line in run.said)


def test_case_14_a_stopped_source_is_killed_after_the_stall_time_and_comes_back(bundle: Path) -> None:
    """Case 14: SIGSTOP plays a decoder that hangs in the kernel; the other camera's frames keep coming."""
    cameras = [camera(name, LIVE, live=True, stall_s=0.5) for name in ("left", "right")]
    with Running(plan(worker(bundle), *cameras)) as run:
        run.until_answers("left", 2)
        stuck = run.source_pid("left")
        os.kill(stuck, signal.SIGSTOP)
        run.until_answers("right", 5)
        until(lambda: camera_of(run, "left").restarts.total == 1, "the stuck source is killed")
        until(lambda: not alive(stuck), "it is gone")
        run.until_answers("left", 2)
    assert any("no sign of life for 0.5 s" in line for line in run.said)
    assert camera_of(run, "right").restarts.total == 0


def test_a_source_that_was_replaced_after_a_stall_is_not_killed_for_the_old_pulse(bundle: Path) -> None:
    """The ring still holds the dead child's pulse when the next child gets it: one loss, one restart."""
    with Running(plan(worker(bundle), camera("front", "synthetic:64x48@20", live=True, stall_s=0.4))) as run:
        for losses in (1, 2, 3):
            run.until_answers("front", 1)
            os.kill(run.source_pid("front"), signal.SIGSTOP)
            until(lambda: camera_of(run, "front").restarts.total == losses, "the loss")  # noqa: B023 - used at once
            run.until_answers("front", 2)
        assert camera_of(run, "front").restarts.total == 3


def test_case_14_a_mute_rtsp_camera_is_reconnected_and_the_daemon_stops_quickly_meanwhile(
    bundle: Path,
) -> None:
    """Case 14: frames, then silence on an open connection; frames again; then a server that says nothing."""
    with RtspServer(h264_clip(), fps=25) as server:
        gate = camera("gate", server.url, stall_s=0.8, open_timeout_s=2.0)
        with Running(plan(worker(bundle), gate, camera("yard", LIVE, live=True))) as run:
            run.until_answers("gate", 5)
            server.frames, server.mode = 0, Mode.MUTE
            until(lambda: camera_of(run, "gate").restarts.total >= 1, "the silence is noticed")
            run.until_answers("yard", 5)
            server.mode = Mode.PLAY
            run.until_answers("gate", 3)
            server.mode = Mode.SILENT
            losses = camera_of(run, "gate").restarts.total
            until(lambda: camera_of(run, "gate").restarts.total > losses, "the second silence is noticed")
            until(lambda: camera_of(run, "gate").state is CameraState.OPENING, "it tries to connect")
            began_s = time.monotonic()
            run.stop()
            assert time.monotonic() - began_s < 10.0
    assert run.error is None
    assert not any("hunter2" in line for line in run.said)


def test_stopping_is_quick_while_a_source_hangs_in_the_middle(bundle: Path) -> None:
    """A source that cannot listen is killed; the frames that it published are accounted for."""
    with Running(plan(worker(bundle), camera("front", LIVE, live=True))) as run:
        run.until_answers("front", 2)
        stuck = run.source_pid("front")
        os.kill(stuck, signal.SIGSTOP)
        began_s = time.monotonic()
        run.stop()
        assert time.monotonic() - began_s < 10.0
    assert not alive(stuck)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_file_whose_decoder_dies_or_hangs_has_failed_and_is_not_played_again(
    bundle: Path, number: signal.Signals
) -> None:
    """Frames of a file are never repeated or skipped silently: the loss is said, the other camera goes on."""
    slow = worker(bundle, run_s="0.01")
    file_like = camera("file", "synthetic:64x48?frames=5000", stall_s=0.5)
    with Running(plan(slow, file_like, camera("yard", LIVE, live=True))) as run:
        run.until_answers("file", 5)
        os.kill(run.source_pid("file"), number)
        until(lambda: camera_of(run, "file").over, "the loss is noticed")
        run.until_answers("yard", 5)
        said = [line for line in run.said if "file is given up; the other cameras go on" in line]
        assert len(said) == 1
        answered = run.sink.answered("file")
        run.until_answers("yard", 5)
        assert run.sink.answered("file") - answered <= file_like.slots
    assert isinstance(run.error, UnavailableError)
    assert run.error.exit_code == 69
    assert [result.seq for result in run.sink.of("file")] == list(range(1, run.counts("file").ok + 1))


def test_a_camera_device_that_is_missing_at_the_start_is_waited_for(bundle: Path) -> None:
    """Case 56: a camera that is not plugged in yet is no reason to end; the pauses grow with jitter."""
    missing = camera("door", "/dev/video-vedette-none", open_timeout_s=0.5)
    with Running(plan(worker(bundle), missing, camera("yard", LIVE, live=True))) as run:
        until(lambda: camera_of(run, "door").restarts.total >= 2, "two tries")
        run.until_answers("yard", 1)
        assert not camera_of(run, "door").over
    assert run.error is None


def test_a_ring_that_is_too_large_is_refused_at_once_with_the_figure(bundle: Path) -> None:
    """Single camera: exit code 78 before the model has loaded, with the bytes that would do."""
    with Running(
        plan(
            worker(bundle, load_hang="yes"),
            camera("front", "synthetic:640x480?frames=5"),
            ring_memory_bytes=1_000_000,
        )
    ) as run:
        run.wait(within_s=60)
    assert isinstance(run.error, ConfigError)
    assert run.error.exit_code == 78
    assert "needs 3,694,592 bytes (4 slots of 921,600)" in run.error.cause
    assert run.error.cure is not None
    assert "3694592" in run.error.cure


def test_a_camera_without_memory_does_not_keep_the_other_from_running(bundle: Path) -> None:
    """Two cameras, memory for one: the small one runs, the refusal is said once and decides the exit code."""
    cameras = [camera("large", "synthetic:640x480@30", live=True), camera("small", LIVE, live=True)]
    with Running(plan(worker(bundle), *cameras, ring_memory_bytes=1_000_000)) as run:
        run.until_answers("small", 5)
    assert isinstance(run.error, ConfigError)
    assert len([line for line in run.said if "large is given up" in line]) == 1
    assert run.counts("large").frames_in == 0


def test_pictures_that_grow_on_the_way_are_all_answered_in_order(bundle: Path, tmp_path: Path) -> None:
    """320x240, then 640x480, lossless: the ring is replaced when it was read out, nothing is lost."""
    stream = growing_stream(tmp_path / "grow.mjpeg", small=20, large=20)
    slow = worker(bundle, run_s="0.005")
    with Running(plan(slow, camera("front", stream, container="mjpeg"))) as run:
        run.wait()
    assert run.error is None
    assert [result.seq for result in run.sink.of("front")] == list(range(1, 41))
    assert run.counts("front").dropped == {}


def test_pictures_that_grow_on_a_live_camera_lose_nothing_uncounted(bundle: Path, tmp_path: Path) -> None:
    """Newest wins over the change of rings: the last frame is answered, what was passed over is counted."""
    stream = growing_stream(tmp_path / "grow.mjpeg", small=30, large=30)
    slow = worker(bundle, run_s="0.005")
    with Running(plan(slow, camera("front", stream, container="mjpeg", live=True))) as run:
        run.wait()
    counts = run.counts("front")
    assert counts.frames_in == 60
    assert run.sink.of("front")[-1].seq == 60
    assert set(counts.dropped) <= {"superseded", "no_worker", "stale"}


def test_pictures_that_outgrow_the_memory_are_counted_as_oversize(bundle: Path, tmp_path: Path) -> None:
    """The larger ring is refused once, not for each frame: small pictures are answered, others counted."""
    path = tmp_path / "mixed.mjpeg"
    path.write_bytes((jpeg(320, 240, 40) * 3 + jpeg(640, 480, 200) * 2) * 4)
    with Running(
        plan(
            worker(bundle),
            camera("front", str(path), container="mjpeg"),
            ring_memory_bytes=4 * SLOT_320 + 100_000,
        )
    ) as run:
        run.wait()
    assert run.error is None
    counts = run.counts("front")
    assert (counts.frames_in, counts.ok, counts.dropped) == (20, 12, {"oversize": 8})
    assert len([line for line in run.said if f"{SLOT_640:,}" in line]) == 1


def test_case_15_the_age_of_answers_is_bounded_while_the_engine_is_slower_than_the_camera(
    bundle: Path,
) -> None:
    """Case 15: 25 fps into a 200 ms engine: one inference plus one frame, at the end as at the beginning."""
    with Running(plan(worker(bundle, run_s="0.2"), camera("front", "synthetic:64x48@25", live=True))) as run:
        run.until_answers("front", 14)
    ages_ms = [result.latency_ms.total for result in run.sink.of("front") if result.latency_ms]
    assert max(ages_ms[1:]) < 200 + 200 + 150
    assert sum(ages_ms[-5:]) < sum(ages_ms[1:6]) + 5 * 100
    counts = run.counts("front")
    assert counts.dropped["superseded"] > counts.ok


def test_case_46_no_stage_of_a_frame_takes_less_than_no_time(bundle: Path) -> None:
    """Case 46: a fast engine under a faster camera, where a newer frame slips in between clock and lease."""
    with Running(plan(worker(bundle), camera("front", "synthetic:16x16@1000", live=True))) as run:
        run.until_answers("front", 800)
    for result in run.sink.of("front"):
        assert result.latency_ms
        stages = result.latency_ms
        parts = (stages.transport, stages.queue, stages.preprocess, stages.infer, stages.postprocess)
        assert min(parts) >= 0
        assert abs(sum(parts) - stages.total) < 0.01
    assert run.daemon.meter.rejected == 0
