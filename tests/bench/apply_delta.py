"""Run as a child by `tests.bench.delta`: decodes one blob and tells what that took."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path

from vedette.update.codecs.decode import FileDecoder
from vedette.wire.release import Codec


def peak_bytes() -> int:
    """The most that was resident since `exec`; `ru_maxrss` would count the parent that forked, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    """CODEC BLOB BASE OUT BYTES WARM: decode WARM's tiny blob first, so that everything is imported."""
    codec, blob, base, out, size, warm = sys.argv[1:]
    tiny = Path(warm)
    if codec != "gzip":
        FileDecoder().decode(Codec(codec), tiny, Path(f"{tiny}.base"), Path(out), size_bytes=1000)
    idle = peak_bytes()
    wall_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
    if codec == "gzip":
        gzip_copy(Path(base), Path(out))
    else:
        FileDecoder().decode(Codec(codec), Path(blob), Path(base), Path(out), size_bytes=int(size))
    wall_s, cpu_s = (time.monotonic_ns() - wall_ns) / 1e9, (time.process_time_ns() - cpu_ns) / 1e9
    print(json.dumps({"grown_bytes": peak_bytes() - idle, "wall_s": wall_s, "cpu_s": cpu_s}))


def gzip_copy(source: Path, target: Path) -> None:
    """Copy a file compressed, in blocks, and sync it."""
    with source.open("rb") as reader, target.open("wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as packed:
            while block := reader.read(1 << 16):
                packed.write(block)
        raw.flush()
        os.fsync(raw.fileno())


if __name__ == "__main__":
    main()
