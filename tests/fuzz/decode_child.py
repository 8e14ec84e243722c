"""Run as a child: decodes what comes in on standard input, a verdict a line, under a limit of memory.

An input is a line `CODEC BASE SIZE BLOB_BYTES`, then the blob; BASE names a file of the folder that is the
first argument, and the file that would be right is BASE with `.new`.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from tests.unit.codecs.limited import peak_bytes

from vedette.errors import BadInputError
from vedette.update.codecs.decode import FileDecoder
from vedette.wire.release import Codec


def main() -> None:
    """FOLDER ALLOWED_BYTES WARM: the first WARM inputs only import what decoding imports."""
    folder, allowed_bytes, warm = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    idle, number = 0, 0
    while head := sys.stdin.buffer.readline():
        codec, base, size, blob_bytes = head.split()
        (folder / "blob").write_bytes(sys.stdin.buffer.read(int(blob_bytes)))
        started_s = time.process_time()
        said = verdict(Codec(codec.decode()), folder, base.decode(), int(size))
        spent_s = time.process_time() - started_s
        number += 1
        if number == warm:
            idle = peak_bytes()
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + allowed_bytes, now + allowed_bytes))
        grown = peak_bytes() - idle if idle else 0
        print(f"{spent_s:.3f} {grown} {said}", flush=True)  # noqa: T201 - the answer


def verdict(codec: Codec, folder: Path, base: str, size_bytes: int) -> str:
    """`refused`, `right`, `another file`, or what else came of it."""
    try:
        FileDecoder().decode(codec, folder / "blob", folder / base, folder / "out", size_bytes=size_bytes)
    except BadInputError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - whatever it was is the finding
        return f"raised {error!r}".replace("\n", " ")
    right = (folder / "out").read_bytes() == (folder / f"{base}.new").read_bytes()
    return "right" if right else "another file"


if __name__ == "__main__":
    main()
