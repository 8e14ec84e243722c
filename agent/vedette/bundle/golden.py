"""Golden inputs: frames with the answers that a healthy engine must give; `.npz` files, never a pickle.

A file is a zip of `.npy` arrays: `frame_<i>`, `output_<i>_<j>`, `tolerance_<i>` and `top1_<i>` (-1 for none),
with `format` saying the version. Sizes are checked before anything is unpacked, and an array's header against
the bytes that are there before anything is allocated.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vedette.bundle import disk
from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from vedette.bundle.folder import Bundle
    from vedette.wire.bundle import Labels

FORMAT = 1
MAX_FILE_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 256 << 20
MAX_MEMBERS = 1024
MAX_OUTPUTS = 64
_CURE = "write the file again with the script that made the bundle"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold: the same arrays give the same bytes


@dataclass(frozen=True)
class GoldenCase:
    """One frame and what the model says of it.

    `frame` is uint8 HxWx3, RGB, at the model's input size so that resizing plays no part. `outputs` are the
    real (dequantised) values in output order, float32. `tolerances` are absolute, one per output. `top1` is
    the class index that must win, where the margin is clear.
    """

    frame: NDArray[np.uint8]
    outputs: tuple[NDArray[np.float32], ...]
    tolerances: tuple[float, ...]
    top1: int | None = None


@dataclass(frozen=True)
class Golden:
    """All cases of a bundle; never empty."""

    cases: tuple[GoldenCase, ...]


def load_golden(bundle: Bundle) -> Golden:
    """Read the golden inputs of a bundle, verified once more against its hash.

    Raises:
        BundleError: The bundle has none, or the file is damaged, too large or inconsistent.
    """
    name = bundle.spec.golden
    if name is None:
        raise BundleError(
            f"{bundle.spec.name} {bundle.spec.version} carries no golden inputs to prove its answers",
            cure="add golden.npz where the bundle is made",
        )
    golden = parse_golden(bundle.read(name, MAX_FILE_BYTES), name)
    _check_labels(golden, bundle.spec.output.labels, name)
    return golden


def parse_golden(content: bytes, name: str) -> Golden:
    """Read the bytes of a golden file.

    Args:
        content: The `.npz` file.
        name: For messages.

    Raises:
        BundleError: Damaged, too large, or not what this module writes.
    """
    arrays = _unpack(content, name)
    found = arrays.pop("format", None)
    if found is None or found.shape != () or found.dtype.kind not in "iu" or int(found) != FORMAT:
        raise BundleError(f"{name}: not a golden file of format {FORMAT}", cure=_CURE)
    cases: list[GoldenCase] = []
    while f"frame_{len(cases)}" in arrays:
        cases.append(_take_case(arrays, len(cases), name))
    if arrays:
        raise BundleError(f"{name}: array `{min(arrays)}` belongs to no case", cure=_CURE)
    if not cases:
        raise BundleError(f"{name}: holds no case", cure=_CURE)
    if len({tuple(output.shape for output in case.outputs) for case in cases}) != 1:
        raise BundleError(f"{name}: the cases' outputs differ in number or shape", cure=_CURE)
    return Golden(tuple(cases))


def write_golden(path: Path, cases: Sequence[GoldenCase]) -> None:
    """Write a golden file durably; the same cases give the same bytes.

    Raises:
        BundleError: The cases would not be read back, or the file cannot be written.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for key, array in _named_arrays(cases):
            member = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
            member.create_system = 3
            member.external_attr = 0o644 << 16
            packed = io.BytesIO()
            np.lib.format.write_array(packed, array, version=(1, 0), allow_pickle=False)
            archive.writestr(member, packed.getvalue(), zipfile.ZIP_DEFLATED, 9)
    content = buffer.getvalue()
    parse_golden(content, path.name)
    disk.write_durably(disk.resolve_folder(path.parent), path.name, content)


def _named_arrays(cases: Sequence[GoldenCase]) -> list[tuple[str, NDArray[np.generic]]]:
    named: list[tuple[str, NDArray[np.generic]]] = [("format", np.array(FORMAT, np.int64))]
    for index, case in enumerate(cases):
        named.append((f"frame_{index}", np.ascontiguousarray(case.frame)))
        named += [
            (f"output_{index}_{order}", np.ascontiguousarray(output))
            for order, output in enumerate(case.outputs)
        ]
        named.append((f"tolerance_{index}", np.asarray(case.tolerances, np.float64)))
        named.append((f"top1_{index}", np.array(-1 if case.top1 is None else case.top1, np.int64)))
    return named


def _unpack(content: bytes, name: str) -> dict[str, NDArray[np.generic]]:
    if len(content) > MAX_FILE_BYTES:
        raise BundleError(f"{name}: {len(content)} bytes, more than {MAX_FILE_BYTES}", cure=_CURE)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_sizes(members, name)
            return {
                member.filename.removesuffix(".npy"): _parse_array(
                    archive.read(member), member.filename, name
                )
                for member in members
            }
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,
        ValueError,
        OverflowError,
    ) as error:
        # RuntimeError: zipfile on encryption, and as NotImplementedError on foreign methods.
        raise BundleError(f"{name}: not a readable .npz file: {error}", cure=_CURE) from error


def _check_sizes(members: list[zipfile.ZipInfo], name: str) -> None:
    unpacked = sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS or unpacked > MAX_UNPACKED_BYTES:
        raise BundleError(
            f"{name}: {len(members)} arrays, {unpacked} bytes unpacked; "
            f"at most {MAX_MEMBERS} and {MAX_UNPACKED_BYTES}",
            cure=_CURE,
        )
    names = {member.filename for member in members}
    if len(names) != len(members):
        raise BundleError(f"{name}: an array is there twice", cure=_CURE)
    methods = {member.compress_type for member in members}
    if not methods <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise BundleError(f"{name}: packed with a method other than store and deflate", cure=_CURE)


def _parse_array(packed: bytes, member: str, name: str) -> NDArray[np.generic]:
    stream = io.BytesIO(packed)
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    except (
        ValueError,
        SyntaxError,
        TypeError,
        KeyError,
        tokenize.TokenError,
        RecursionError,
        MemoryError,
    ) as error:
        raise BundleError(f"{name}: array `{member}`: {error}", cure=_CURE) from error
    start = stream.tell()
    if (
        version != (1, 0)
        or fortran_order
        or dtype.hasobject
        or dtype.kind not in "iuf"
        or dtype.itemsize == 0
    ):
        raise BundleError(f"{name}: array `{member}`: not plain numbers, row by row, in .npy 1.0", cure=_CURE)
    if any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != len(packed) - start:
        raise BundleError(
            f"{name}: array `{member}`: its header says {shape} {dtype}, its bytes do not", cure=_CURE
        )
    array: NDArray[np.generic] = np.frombuffer(packed, dtype, offset=start).reshape(shape)
    return array


def _take_case(arrays: dict[str, NDArray[np.generic]], index: int, name: str) -> GoldenCase:
    frame = arrays.pop(f"frame_{index}")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise BundleError(
            f"{name}: frame_{index} is {frame.dtype} {frame.shape}; it must be uint8 height x width x 3",
            cure=_CURE,
        )
    outputs: list[NDArray[np.float32]] = []
    while len(outputs) < MAX_OUTPUTS and f"output_{index}_{len(outputs)}" in arrays:
        key = f"output_{index}_{len(outputs)}"
        output = arrays.pop(key)
        if output.dtype != np.float32 or output.size == 0 or not np.isfinite(output).all():
            raise BundleError(f"{name}: {key} must be finite float32 and not empty", cure=_CURE)
        outputs.append(output.astype(np.float32))
    if not outputs:
        raise BundleError(f"{name}: case {index} has no output", cure=_CURE)
    return GoldenCase(
        frame=frame.astype(np.uint8),
        outputs=tuple(outputs),
        tolerances=_take_tolerances(arrays, index, len(outputs), name),
        top1=_take_top1(arrays, index, outputs[0].size, name),
    )


def _take_tolerances(
    arrays: dict[str, NDArray[np.generic]], index: int, count: int, name: str
) -> tuple[float, ...]:
    given = arrays.pop(f"tolerance_{index}", None)
    if given is None or given.dtype != np.float64 or given.shape != (count,):
        raise BundleError(
            f"{name}: tolerance_{index} must be {count} float64, one for each output", cure=_CURE
        )
    tolerances = tuple(float(value) for value in given.astype(np.float64))
    if not all(math.isfinite(value) and value >= 0 for value in tolerances):
        raise BundleError(f"{name}: tolerance_{index} must be finite and 0 or more", cure=_CURE)
    return tolerances


def _take_top1(arrays: dict[str, NDArray[np.generic]], index: int, classes: int, name: str) -> int | None:
    given = arrays.pop(f"top1_{index}", None)
    if given is None or given.dtype != np.int64 or given.shape != ():
        raise BundleError(f"{name}: top1_{index} must be one int64", cure=_CURE)
    top1 = int(given.astype(np.int64))
    if not -1 <= top1 < classes:
        raise BundleError(
            f"{name}: top1_{index} is {top1}; the first output has {classes} values", cure=_CURE
        )
    return None if top1 < 0 else top1


def _check_labels(golden: Golden, labels: Labels | None, name: str) -> None:
    for index, case in enumerate(golden.cases):
        if case.top1 is not None and labels is not None and case.top1 >= labels.count:
            raise BundleError(
                f"{name}: top1_{index} is {case.top1}, but there are {labels.count} classes", cure=_CURE
            )
