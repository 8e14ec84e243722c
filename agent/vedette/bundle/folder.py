"""Load a bundle from its folder, and seal one.

The order of the checks is a promise: (1) hashes, (2) schema and sense of `model.yaml`, (3) files, (4) engine
and opset. So nothing is interpreted that was not verified first. What needs a running engine (the tensors'
contract, golden outputs) is the engine's self-test.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.bundle import disk
from vedette.bundle.checksums import RESEAL_CURE, SUMS_NAME, bundle_digest, format_checksums, parse_checksums
from vedette.bundle.compatibility import check_onnx
from vedette.bundle.labels import parse_labels
from vedette.bundle.names import name_fault
from vedette.bundle.onnxfile import OnnxModel, read_onnx
from vedette.bundle.rules import find_problems, named_files
from vedette.bundle.tflitefile import SCHEMA_VERSION, is_tflite, read_tflite_version
from vedette.config.document import line_index, parse_document
from vedette.errors import BundleError, ConfigError
from vedette.fsops import temporary_path
from vedette.wire.bundle import EngineName, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SPEC_NAME = "model.yaml"
MAX_SPEC_BYTES = 1 << 20
MAX_LABELS_BYTES = 1 << 20
MAX_CALIBRATION_BYTES = 1 << 20
MAX_GOLDEN_BYTES = 64 << 20
MAX_MODEL_BYTES = (1 << 31) - 1  # protobuf and FlatBuffers end there
MAX_SIDECAR_BYTES = 1 << 36


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were verified.

    `root` is resolved, so that a moved "current" link cannot change it. `labels` are the lines of the label
    file (class i at i + `output.labels.offset`), empty without one. `sha256` is the digest of the canonical
    SHA256SUMS, so of everything inside. `files` maps each name to its SHA-256. `onnx` is None for TFLite.
    """

    root: Path
    spec: ModelSpec
    labels: tuple[str, ...]
    sha256: str
    model_path: Path
    model_sha256: str
    files: Mapping[str, str]
    onnx: OnnxModel | None = None

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read one listed file whole, verified again.

        Raises:
            BundleError: Not listed, larger than `max_bytes`, or changed since the bundle was loaded.
        """
        return _read_verified(self.root, name, self.files, max_bytes)


def load_bundle(root: Path) -> Bundle:
    """Verify and read a bundle's folder.

    Raises:
        BundleError: The first check that fails, with file, line or key, and what to do.
    """
    folder = disk.resolve_folder(root)
    files = _check_hashes(folder)
    spec = _read_spec(folder, files)
    _check_files(folder, spec, files)
    labels = _read_labels(folder, spec, files)
    onnx = _check_model(folder, spec)
    return Bundle(
        root=folder,
        spec=spec,
        labels=labels,
        sha256=bundle_digest(files),
        model_path=folder / spec.file,
        model_sha256=files[spec.file],
        files=files,
        onnx=onnx,
    )


def seal(root: Path) -> str:
    """Write SHA256SUMS over every file of a folder, durably.

    Returns:
        The bundle's digest.

    Raises:
        BundleError: A file that may not stand in a bundle, or the folder cannot be written.
    """
    folder = disk.resolve_folder(root)
    leftover = temporary_path(folder / SUMS_NAME).name  # of a seal that was cut short
    names = disk.list_files(folder) - {SUMS_NAME, leftover}
    if not names:
        raise BundleError(f"{folder}: holds no file to seal", cure="put model.yaml and the model there first")
    files = {name: disk.hash_file(folder, name) for name in names}
    disk.write_durably(folder, SUMS_NAME, format_checksums(files).encode())
    return bundle_digest(files)


def _check_hashes(folder: Path) -> dict[str, str]:
    present = disk.list_files(folder)
    if SUMS_NAME not in present:
        raise BundleError(
            f"{SUMS_NAME}: missing in {folder}",
            cure="the folder is no bundle, or was not copied in full; the list is made with `sha256sum`",
        )
    content = disk.read_file(folder, SUMS_NAME, MAX_SPEC_BYTES)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{SUMS_NAME}: not UTF-8 text", cure=RESEAL_CURE) from error
    files = parse_checksums(text)
    problems = [f"{name!r} is listed in {SUMS_NAME} but missing" for name in sorted(files.keys() - present)]
    unlisted = sorted(present - files.keys() - {SUMS_NAME})
    problems += [f"{name!r} is not listed in {SUMS_NAME}" for name in unlisted]
    for name in sorted(files.keys() & present):
        digest = disk.hash_file(folder, name)
        if digest != files[name]:
            problems.append(f"{name!r} has SHA-256 {digest[:16]}…, {SUMS_NAME} says {files[name][:16]}…")
    if problems:
        raise BundleError(f"{folder.name}: {'; '.join(problems)}", cure=RESEAL_CURE)
    return files


def _read_verified(folder: Path, name: str, files: Mapping[str, str], max_bytes: int) -> bytes:
    if name not in files:
        raise BundleError(f"{name!r} is not listed in {SUMS_NAME}", cure=RESEAL_CURE)
    content = disk.read_file(folder, name, max_bytes)
    if hashlib.sha256(content).hexdigest() != files[name]:
        raise BundleError(f"{name!r} changed while the bundle was in use", cure=RESEAL_CURE)
    return content


def _read_spec(folder: Path, files: Mapping[str, str]) -> ModelSpec:
    if SPEC_NAME not in files:
        raise BundleError(f"{SPEC_NAME}: missing", cure="a bundle describes its model in model.yaml")
    content = _read_verified(folder, SPEC_NAME, files, MAX_SPEC_BYTES)
    return parse_spec(content)


def parse_spec(content: bytes) -> ModelSpec:
    """Read and judge the bytes of a `model.yaml`.

    Raises:
        BundleError: Every problem of form or, when the form is right, of sense, each with its line.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BundleError(f"{SPEC_NAME} line {line}: not UTF-8", cure="save the file as UTF-8") from error
    try:
        spec = parse_document(text, ModelSpec, origin=SPEC_NAME)
    except ConfigError as error:
        raise _spec_error(error.cause, list(error.problems)) from error
    found = find_problems(spec)
    if found:
        lines = line_index(text)
        placed = sorted((_line_of(path, lines), ".".join(path), what) for path, what in found)
        count = "1 problem" if len(placed) == 1 else f"{len(placed)} problems"
        raise _spec_error(
            f"{SPEC_NAME}: {count}", [f"line {line}: {key}: {what}" for line, key, what in placed]
        )
    return spec


def _spec_error(headline: str, problems: list[str]) -> BundleError:
    cause = "\n".join([headline, *(f"  {problem}" for problem in problems)])
    return BundleError(cause, cure=f"correct {SPEC_NAME} where the bundle is made and seal it anew")


def _line_of(path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _check_files(folder: Path, spec: ModelSpec, files: Mapping[str, str]) -> None:
    limits = {"file": MAX_MODEL_BYTES, "golden": MAX_GOLDEN_BYTES, "calibration": MAX_CALIBRATION_BYTES}
    limits["output.labels.file"] = MAX_LABELS_BYTES
    for key, name in named_files(spec):
        fault = name_fault(name)
        if fault is not None:
            raise BundleError(
                f"{SPEC_NAME}: {key}: {name!r} {fault}", cure="name a file inside the bundle's folder"
            )
        if name not in files:
            raise BundleError(
                f"{SPEC_NAME}: {key}: {name!r} is not in the bundle",
                cure=f"add the file and seal the bundle anew, or correct `{key}`",
            )
        size_bytes = disk.size_bytes(folder, name)
        limit_bytes = limits.get(key, MAX_SIDECAR_BYTES)
        if not 0 < size_bytes <= limit_bytes:
            raise BundleError(
                f"{name}: {size_bytes} bytes; expected 1 to {limit_bytes}",
                cure="copy the file again, or make it smaller where the bundle is made",
            )
    _check_external(folder, spec)


def _check_external(folder: Path, spec: ModelSpec) -> None:
    """Weights outside an ONNX file must be named, or they would be neither shipped nor verified."""
    if spec.engine is not EngineName.ONNX or is_tflite(disk.head(folder, spec.file)):
        return
    for location in _read_onnx(folder, spec.file).external_files:
        name = posixpath.join(posixpath.dirname(spec.file), location)
        fault = name_fault(location)
        if fault is not None:
            raise BundleError(
                f"{spec.file}: keeps weights in {location!r}, which {fault}",
                cure="export the model with its external data beside it",
            )
        if name not in spec.sidecars:
            raise BundleError(
                f"{spec.file}: keeps weights in {location!r}, which is not among the sidecars",
                cure=f"add {name!r} to `sidecars` in {SPEC_NAME} and the file to the bundle",
            )


def _read_labels(folder: Path, spec: ModelSpec, files: Mapping[str, str]) -> tuple[str, ...]:
    labels = spec.output.labels
    if labels is None:
        return ()
    return parse_labels(_read_verified(folder, labels.file, files, MAX_LABELS_BYTES), labels)


def _check_model(folder: Path, spec: ModelSpec) -> OnnxModel | None:
    tflite = is_tflite(disk.head(folder, spec.file))
    if spec.engine is EngineName.ONNX:
        if tflite:
            raise BundleError(
                f"{spec.file}: is a TFLite file, but the engine is `onnx`",
                cure=f"set `engine: litert` in {SPEC_NAME}, or name the ONNX file",
            )
        model = _read_onnx(folder, spec.file)
        check_onnx(spec, model)
        return model
    with disk.mapped(folder, spec.file) as data:
        version = read_tflite_version(data, spec.file)
    if version != SCHEMA_VERSION:
        raise BundleError(
            f"{spec.file}: TFLite schema version {version}; runtimes read version {SCHEMA_VERSION}",
            cure="convert the model again with a current converter",
        )
    return None


def _read_onnx(folder: Path, name: str) -> OnnxModel:
    with disk.mapped(folder, name) as data:
        return read_onnx(data, name)
