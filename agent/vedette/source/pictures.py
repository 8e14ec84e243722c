"""Still pictures from a folder, a glob or a list file, in natural order (casebook 19).

What each kind of picture becomes is written in `vedette.source.decoding`. A picture that cannot be used is
counted as damaged, and the next one is read; a folder without a single usable picture is an error.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.clock import Clock, SystemClock
from vedette.errors import BadInputError, FrameError
from vedette.source.decoding import copy_into, decode_picture
from vedette.source.pacing import Playback
from vedette.source.port import SourceInfo, SourceSpec
from vedette.source.waiting import sleep_s, wait_until
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from vedette.source.decoding import Pixels
    from vedette.source.port import FrameSink
    from vedette.source.waiting import Sleep
    from vedette.wire.pixels import FrameFormat

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})
MAX_FILE_BYTES = 256 << 20
MAX_LIST_BYTES = 64 << 20
DEFAULT_LIVE_FPS = 1.0
MAX_NAMED_DAMAGED = 50


class PicturesSource:
    """One frame a picture. `live` plays them at `fps` (1 a second if not given), `loop` starts again."""

    def __init__(
        self,
        paths: list[Path],
        spec: SourceSpec,
        *,
        description: str,
        clock: Clock | None = None,
        sleep: Sleep = sleep_s,
    ) -> None:
        """Decode up to the first good picture.

        Raises:
            BadInputError: None of them can be used; the last fault is named.
        """
        self._paths = paths
        self._loop = spec.loop
        self._live = bool(spec.live)
        self._fps = spec.fps or DEFAULT_LIVE_FPS
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._playback = Playback()
        self._next = 0
        self._shown = 0
        self._shown_before_round = 0
        self._names = dict(zip(paths, file_names(paths), strict=True))
        self._owed: list[tuple[Path, str]] = []
        self._damaged: set[Path] = set()
        self._first = self._find_first()
        self.info = SourceInfo(
            format=self._first[0],
            live=self._live,
            fps=self._fps if self._live else 0.0,
            description=description,
        )

    def _find_first(self) -> tuple[FrameFormat, Pixels]:
        fault = "no file"
        for path in self._paths:
            self._next += 1
            try:
                return load_picture(path)
            except FrameError as error:
                self._owed.append((path, error.cause))
                fault = f"{path.name}: {error.cause}"
        raise BadInputError(
            f"none of {len(self._paths)} pictures can be used; the last fault: {fault}",
            cure="see whether an image viewer opens them; JPEG, PNG, WebP, BMP and TIFF are read",
        )

    def read(self, sink: FrameSink) -> bool:
        """Move one picture, or count one that cannot be used.

        Raises:
            BadInputError: A loop in which no picture can be used any more.
            OutOfMemoryError: A picture is too large for this box.
        """
        if self._owed:
            self._damage(sink, *self._owed.pop(0))
            return True
        picture = self._first
        path = self._paths[self._next - 1]
        if self._shown:
            if self._next >= len(self._paths):
                if not self._loop:
                    return False
                self._start_round()
            path = self._paths[self._next]
            self._next += 1
            try:
                picture = load_picture(path)
            except FrameError as error:
                self._damage(sink, path, error.cause)
                return not sink.stopping
        return self._hand_on(picture, self._names[path], sink)

    def _damage(self, sink: FrameSink, path: Path, fault: str) -> None:
        """Count a picture that cannot be used, and name it: once, and not thousands of them."""
        sink.drop(DropCause.DAMAGED)
        named = len(self._damaged)
        if path in self._damaged or named > MAX_NAMED_DAMAGED:
            return
        self._damaged.add(path)
        if named == MAX_NAMED_DAMAGED:
            sink.remark("more pictures cannot be used; they are counted as damaged and no longer named")
        else:
            sink.remark(f"{self._names[path]} cannot be used: {fault}")

    def _start_round(self) -> None:
        """Begin again; a round that showed nothing would be followed by others as fast as they can."""
        if self._shown == self._shown_before_round:
            raise BadInputError("none of the pictures can be read any more", cure="put the files back")
        self._shown_before_round = self._shown
        self._next = 0

    def _hand_on(self, picture: tuple[FrameFormat, Pixels], file: str, sink: FrameSink) -> bool:
        if self._live:
            media_ns = round(self._shown / self._fps * 1e9)
            due_ns = self._playback.due_ns(media_ns, self._clock.monotonic_ns())
            if not wait_until(due_ns, sink, clock=self._clock, sleep=self._sleep):
                return False
        captured_ns = self._clock.monotonic_ns()
        memory = sink.acquire(picture[0])
        if memory is None:
            return False
        copy_into(memory, picture[1])
        sink.publish(captured_ns, file)
        self._shown += 1
        return True

    def close(self) -> None:
        """Nothing is held open between pictures."""


def file_names(paths: list[Path]) -> list[str]:
    """A name for each path that tells it from the others: relative to the folder that they share.

    Bytes of a name that are no UTF-8 are replaced, so that a result can carry it.
    """
    folders = {path.parent for path in paths}
    shared = Path(os.path.commonpath(folders)) if len({path.is_absolute() for path in paths}) == 1 else Path()
    return [
        os.fsencode(path.relative_to(shared) if path.is_relative_to(shared) else path).decode(
            "utf-8", "replace"
        )
        for path in paths
    ]


def load_picture(path: Path) -> tuple[FrameFormat, Pixels]:
    """Read and decode one file.

    Raises:
        FrameError: It cannot be read or used.
        OutOfMemoryError: No memory for it.
    """
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise FrameError(f"the file has {size_bytes} bytes, above {MAX_FILE_BYTES}", kind="damaged")
        data = path.read_bytes()
    except OSError as error:
        raise FrameError(f"the file cannot be read: {error.strerror}", kind="damaged") from error
    if not data:
        raise FrameError("the file is empty", kind="damaged")
    return decode_picture(data)


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Sort key that puts `frame10` after `frame9`."""
    return [
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]+)", str(path).casefold())
        if part
    ]


def find_pictures(text: str) -> list[Path]:
    """The pictures that an input names.

    Args:
        text: A picture, a folder (not its subfolders), a glob, or a `.txt` file with one path a line,
            relative to the list; there `#` starts a comment line and the given order is kept.

    Raises:
        BadInputError: It names none, or cannot be read.
    """
    path = Path(text)
    try:
        if path.is_dir():
            found = [
                entry for entry in path.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file()
            ]
        elif path.suffix.lower() == ".txt":
            return _listed(path)
        elif glob.has_magic(text) and not path.exists():
            found = [Path(name) for name in glob.glob(text, recursive=True)]  # noqa: PTH207 - absolute patterns
            found = [entry for entry in found if entry.suffix.lower() in SUFFIXES]
        else:
            found = [path]
    except OSError as error:
        raise BadInputError(f"{text} cannot be read: {error.strerror}") from error
    if not found:
        raise BadInputError(
            f"{text} holds no pictures", cure=f"expected names that end in {', '.join(sorted(SUFFIXES))}"
        )
    return sorted(found, key=natural_key)


def _listed(path: Path) -> list[Path]:
    if path.stat().st_size > MAX_LIST_BYTES:
        raise BadInputError(f"the list {path} is above {MAX_LIST_BYTES} bytes")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInputError(f"the list {path} is not UTF-8 text: byte {error.start}") from error
    names = [line.strip() for line in lines]
    found = [path.parent / name for name in names if name and not name.startswith("#")]
    if not found:
        raise BadInputError(f"the list {path} names no pictures")
    return found


def open_pictures(text: str, spec: SourceSpec) -> PicturesSource:
    """Open what `find_pictures` finds.

    Raises:
        BadInputError: Nothing is found, or nothing of it can be used.
    """
    paths = find_pictures(text)
    return PicturesSource(paths, spec, description=f"{len(paths)} pictures from {text}")
