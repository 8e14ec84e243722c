"""Checks a delegate's library before the runtime loads it, so that a failure has a name (casebook 8).

The runtime's own loader answers with an empty text, an AttributeError or a traceback from a finaliser.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

from vedette.engine.accelerator import RungRefusedError
from vedette.engine.failures import reason

ENTRY_POINT = "tflite_plugin_create_delegate"
# Where a delegate of this name is looked for if engine.options names no other.
KNOWN_LIBRARIES: dict[str, str] = {"edgetpu": "libedgetpu.so.1"}

_ELF_HEAD_BYTES = 20
_MACHINES = {3: "x86", 40: "32-bit ARM", 62: "x86-64", 183: "64-bit ARM", 243: "RISC-V"}


def check_library(library: str) -> None:
    """Load a library by path or name and look for the delegate's entry point.

    Raises:
        RungRefusedError: Missing, unreadable, for another processor, damaged, or no delegate; the text says.
    """
    if "/" in library:
        _check_file(Path(library))
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise RungRefusedError(_load_failure(library, error)) from error
    if not hasattr(loaded, ENTRY_POINT):
        raise RungRefusedError(f"{library} is a library, but no TFLite delegate: it lacks {ENTRY_POINT}")


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(_ELF_HEAD_BYTES)
    except OSError as error:
        raise RungRefusedError(_open_failure(path, error)) from error
    machine = elf_machine(head)
    if machine is None:
        raise RungRefusedError(f"the delegate {path} is no shared library (not an ELF file)")
    own = _own_machine()
    if own is not None and machine != own:
        raise RungRefusedError(
            f"the delegate {path} is built for {_machine_name(machine)}, this Python for {_machine_name(own)}"
        )


def elf_machine(head: bytes) -> int | None:
    """The `e_machine` of an ELF header's first 20 bytes; None if it is no ELF file (System V ABI)."""
    if len(head) < _ELF_HEAD_BYTES or head[:4] != b"\x7fELF":
        return None
    machine: int = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)[0]
    return machine


def _own_machine() -> int | None:
    try:
        with Path(sys.executable or os.devnull).open("rb") as file:
            return elf_machine(file.read(_ELF_HEAD_BYTES))
    except OSError:
        return None


def _machine_name(machine: int) -> str:
    return _MACHINES.get(machine, f"processor {machine}")


def _open_failure(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"the delegate {path} is missing"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission to read the delegate {path}"
    return f"the delegate {path} cannot be read: {reason(error)}"


def _load_failure(library: str, error: OSError) -> str:
    text = reason(error)
    if "cannot open shared object file" in text and text.startswith(f"{library}:"):
        return f"the delegate {library} is not installed (not on the loader's path)"
    return f"the delegate {library} does not load: {text}"
