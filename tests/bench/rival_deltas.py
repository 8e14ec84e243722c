"""Patches of other tools, each at the strongest setting in reach; `None` is a tool that is not here."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import bsdiff4
from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL_TIMEOUT_S = 120
_HDIFF_STAGES = ("lzma2", "zstd", "brotli")
_ZSTD_LONG = 27


def bsdiff4_bytes(old: bytes, new: bytes) -> int:
    """`bsdiff`, from PyPI."""
    return len(bsdiff4.diff(old, new))


def hdiffpatch_bytes(old: bytes, new: bytes) -> int | None:
    """`hdiffz` in memory, the best of its strong stages: the package, else the program (LZMA2 only)."""
    if importlib.util.find_spec("hdiffpatch") is not None:
        package = importlib.import_module("hdiffpatch")
        return min(len(package.diff(old, new, compression=stage)) for stage in _HDIFF_STAGES)
    return _by_program(["hdiffz", "-f", "-m-1", "-c-lzma2-9-16m", "OLD", "NEW", "OUT"], old, new)


def xdelta3_bytes(old: bytes, new: bytes) -> int | None:
    """`xdelta3`, the best of its secondary stages; its windows hold both files."""
    window = max(1 << 19, 1 << max(len(old), len(new)).bit_length())
    common = ["xdelta3", "-e", "-9", "-f", "-B", str(window), "-W", str(min(window, 1 << 24)), "-I", "0"]
    sizes = [
        _by_program([*common, "-S", stage, "-s", "OLD", "NEW", "OUT"], old, new) for stage in ("lzma", "djw")
    ]
    return min((size for size in sizes if size is not None), default=None)


def zstd_bytes(old: bytes, new: bytes) -> int:
    """What `zstd --patch-from=OLD -19 --long=27` does: the old file is the prefix of the window."""
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: 19,
        zstd.CompressionParameter.window_log: _ZSTD_LONG,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    prefix = zstd.ZstdDict(old, is_raw=True).as_prefix
    return len(zstd.compress(new, options=options, zstd_dict=prefix))


RIVALS: dict[str, Callable[[bytes, bytes], int | None]] = {
    "bsdiff4": bsdiff4_bytes,
    "HDiffPatch": hdiffpatch_bytes,
    "xdelta3": xdelta3_bytes,
    "zstd": zstd_bytes,
}
HOW_TO_GET = {
    "HDiffPatch": "pip install hdiffpatch, or hdiffz of github.com/sisong/HDiffPatch on the PATH",
    "xdelta3": "apt-get install xdelta3",
}


def _by_program(command: list[str], old: bytes, new: bytes) -> int | None:
    program = shutil.which(command[0])
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        paths = {word: Path(name) / word for word in ("OLD", "NEW", "OUT")}
        paths["OLD"].write_bytes(old)
        paths["NEW"].write_bytes(new)
        filled = [str(paths.get(word, word)) for word in command[1:]]
        subprocess.run([program, *filled], check=True, capture_output=True, timeout=TOOL_TIMEOUT_S)
        return paths["OUT"].stat().st_size
