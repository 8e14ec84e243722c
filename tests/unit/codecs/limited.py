"""Run as a child: applies blobs under a limit of memory and of CPU time, and tells what came of each."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from vedette.errors import BadInputError
from vedette.update.codecs.decode import FileDecoder
from vedette.wire.release import Codec

CPU_S = 60


def peak_bytes() -> int:
    """The most that was resident since `exec`; `ru_maxrss` would count the parent that forked, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    """FOLDER MIB: decode every blob `CODEC-*` of the folder against `base` into `out`."""
    folder, allowed_bytes = Path(sys.argv[1]), int(sys.argv[2]) << 20
    size_bytes = int(sys.argv[3])
    warm_up(folder)
    idle = peak_bytes()
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + allowed_bytes, now + allowed_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    verdicts: dict[str, str] = {}
    for blob in sorted(folder.glob("*-*")):
        codec = Codec(blob.name.partition("-")[0])
        try:
            FileDecoder().decode(codec, blob, folder / "base", folder / "out", size_bytes=size_bytes)
        except BadInputError:
            verdicts[blob.name] = "refused"
        except BaseException as error:  # noqa: BLE001 - the test wants to see whatever it was
            verdicts[blob.name] = repr(error)
        else:
            verdicts[blob.name] = "made"
    print(json.dumps({"verdicts": verdicts, "grown_bytes": peak_bytes() - idle}))  # noqa: T201 - the answer


def warm_up(folder: Path) -> None:
    """Import all that decoding imports."""
    for blob in folder.glob("warm.*"):
        codec = Codec(blob.suffix[1:])
        FileDecoder().decode(codec, blob, folder / "warm", folder / "out", size_bytes=len(b"warm" * 100))


if __name__ == "__main__":
    main()
