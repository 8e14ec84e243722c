"""What accelerators compile is kept: a folder per model, runtime, driver, device and shape (casebook 2)."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# What identifies the device and its driver where it can be read without a vendor library.
_FINGERPRINTS: tuple[str, ...] = (
    "/proc/driver/nvidia/version",
    "/etc/nv_tegra_release",
    "/proc/device-tree/model",
)
_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")
_COMPILER_PACKAGES: tuple[str, ...] = (
    "tensorrt",
    "tensorrt-cu12",
    "tensorrt-cu13",
    "openvino",
    "onnxruntime-openvino",
)
_TENSORRT_FOLDERS: tuple[str, ...] = (
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/local/tensorrt/lib",
)
MAX_FINGERPRINT_BYTES = 4096


def cache_key(parts: Sequence[str]) -> str:
    """A folder's name from everything the cached engine depends on; any other part gives another folder."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:32]


def box_fingerprint() -> tuple[str, ...]:
    """Architecture, driver, GPU and compiler versions, as far as this box tells them."""
    texts = [platform.machine()]
    texts += [_head(Path(name)) for name in _FINGERPRINTS]
    if _GPU_FOLDER.is_dir():
        texts += [_head(card / "information") for card in sorted(_GPU_FOLDER.iterdir())]
    texts += [f"{package} {_package_version(package)}" for package in _COMPILER_PACKAGES]
    for folder in _TENSORRT_FOLDERS:
        # JetPack installs TensorRT as a Debian package: its version stands in the library's full name.
        texts += sorted(path.name for path in Path(folder).glob("libnvinfer.so.*"))
    return tuple(texts)


def prepare(cache_dir: Path, key: str) -> Path:
    """Make the folder for one key, readable by its owner only.

    Raises:
        OSError: The folder cannot be made.
    """
    folder = cache_dir / key
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def holds_files(folder: Path) -> bool:
    """Whether an earlier start left something here."""
    return folder.is_dir() and any(folder.iterdir())


def discard(folder: Path) -> None:
    """Empty a folder; a cache that cannot be deleted is an error, not a loop."""
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)


def _package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FINGERPRINT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
