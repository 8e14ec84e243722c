"""The list of a bundle's files and their SHA-256, in the format of coreutils. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from vedette.bundle.names import name_fault
from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMS_NAME = "SHA256SUMS"
MAX_FILES = 256
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.*)")
RESEAL_CURE = (
    f"run `sha256sum -c {SUMS_NAME}` in the folder to see every difference, then copy the bundle again from "
    "where it was made; seal it anew only if the change was meant"
)


def parse_checksums(text: str) -> dict[str, str]:
    """Read a list of checksums into name -> lower-case hex digest.

    Raises:
        BundleError: A line is malformed, repeats a file, or names one outside the folder.
    """
    files: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, digest = _parse_line(line, number)
        if name in files:
            raise BundleError(f"{SUMS_NAME} line {number}: {name!r} is listed twice", cure=RESEAL_CURE)
        files[name] = digest
        if len(files) > MAX_FILES:
            raise BundleError(
                f"{SUMS_NAME}: lists more than {MAX_FILES} files", cure="a bundle holds one model"
            )
    if not files:
        raise BundleError(f"{SUMS_NAME}: lists no file", cure=RESEAL_CURE)
    return files


def _parse_line(line: str, number: int) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise BundleError(
            f"{SUMS_NAME} line {number}: expected 64 hexadecimal digits, two spaces and a file name",
            cure="write the list with `sha256sum`, one line a file",
        )
    digest, name = match.groups()
    fault = name_fault(name)
    if fault is None and name == SUMS_NAME:
        fault = "is the list itself"
    if fault is not None:
        raise BundleError(f"{SUMS_NAME} line {number}: {name!r} {fault}", cure=RESEAL_CURE)
    return name, digest.lower()


def format_checksums(files: Mapping[str, str]) -> str:
    """Write the canonical list: sorted by the bytes of the name, text mode, one newline after each line."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files, key=str.encode))


def bundle_digest(files: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the canonical list: one digest for all that a bundle holds."""
    return hashlib.sha256(format_checksums(files).encode()).hexdigest()
