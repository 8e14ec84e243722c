"""Pipes with a writer thread, and small clips made by the ffmpeg of imageio-ffmpeg."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


@pytest.fixture
def feed() -> Iterator[Callable[[Iterable[bytes]], int]]:
    """`feed(chunks)` gives a pipe's read end; a thread writes the chunks one by one and closes."""
    threads: list[threading.Thread] = []

    def start(chunks: Iterable[bytes]) -> int:
        reader, writer = os.pipe()

        def write() -> None:
            try:
                for chunk in chunks:
                    view = memoryview(chunk)
                    while view:
                        view = view[os.write(writer, view) :]
            except BrokenPipeError:
                pass  # the test has seen enough
            finally:
                os.close(writer)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        threads.append(thread)
        return reader

    yield start
    for thread in threads:
        thread.join(timeout=5)


@pytest.fixture(scope="session")
def ffmpeg() -> Callable[..., None]:
    """Run ffmpeg with the given arguments."""
    import imageio_ffmpeg

    program = str(imageio_ffmpeg.get_ffmpeg_exe())

    def run(*arguments: str | Path) -> None:
        command = [program, "-nostdin", "-y", "-loglevel", "error", *map(str, arguments)]
        subprocess.run(command, check=True, timeout=60)

    return run


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., None]) -> Path:
    """`clip.mp4` (20 frames, 160x120, 10 fps, B-frames), `turned.mp4` (the same, container says rotate),
    `clip.y4m`, `clip.mjpeg`, `clip.h264`.
    """  # noqa: D205 - a list of files
    folder = tmp_path_factory.mktemp("clips")
    ffmpeg(
        *("-f", "lavfi", "-i", "testsrc=size=160x120:rate=10:duration=2", "-pix_fmt", "yuv420p"),
        *("-c:v", "libx264", "-bf", "2", folder / "clip.mp4"),
    )
    ffmpeg("-display_rotation", "90", "-i", folder / "clip.mp4", "-c", "copy", folder / "turned.mp4")
    ffmpeg("-i", folder / "clip.mp4", "-f", "yuv4mpegpipe", folder / "clip.y4m")
    ffmpeg("-i", folder / "clip.mp4", "-f", "mjpeg", "-q:v", "3", folder / "clip.mjpeg")
    return folder
