"""Manifests and rollout documents are signed, and may still be nonsense: refused, never half read."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.wire.release import (
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    Codec,
    Encoding,
    EncodingKind,
    ManifestError,
    ReleaseFile,
    ReleaseManifest,
    ReleaseNeeds,
    build_manifest,
    parse_manifest,
)
from vedette.wire.rollout import (
    BUCKETS,
    MAX_DOCUMENT_BYTES,
    Guards,
    Rollout,
    RolloutDocument,
    RolloutError,
    Window,
    build_rollouts,
    parse_rollouts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SHA = "ab" * 32
NEEDS = ReleaseNeeds("onnx", ">=1.18", (13, 21), ("aarch64",), ("cpu",), 64, ">=0.1")
FULL = Encoding(EncodingKind.FULL, Codec.ZSTD, SHA, 900)
DELTA = Encoding(EncodingKind.DELTA, Codec.TENSOR, SHA[::-1], 30, SHA)
MANIFEST = ReleaseManifest(
    1, "acme", "tiny", "2", 2, SHA, (ReleaseFile("model.onnx", SHA, 1000, (FULL, DELTA)),), NEEDS
)
DOCUMENT = RolloutDocument(
    1,
    7,
    1_800_000_000,
    (
        Rollout(
            "second",
            "tiny",
            "models/acme/tiny/2.json",
            SHA,
            "salt",
            BUCKETS,
            shadow=Window(60.0, 10, 600.0),
            guards=Guards(disagreement=0.05),
        ),
    ),
)

SHA256S = st.text("0123456789abcdef", min_size=64, max_size=64)
SIZES = st.integers(0, MAX_FILE_BYTES)
FILES = st.builds(
    lambda name, sha256, size: ReleaseFile(
        name, sha256, size, (Encoding(EncodingKind.FULL, Codec.RAW, sha256, size),)
    ),
    st.text("abcdefgh_0123.", min_size=1, max_size=20).filter(lambda name: ".." not in name),
    SHA256S,
    SIZES,
)


@given(st.lists(FILES, min_size=1, max_size=5, unique_by=lambda file: file.path), st.integers(1, 1 << 40))
def test_a_manifest_comes_back_as_it_was(files: list[ReleaseFile], counter: int) -> None:
    """Equal manifests give equal bytes."""
    manifest = ReleaseManifest(1, "acme", "tiny", "1", counter, SHA, tuple(files), NEEDS)
    raw = build_manifest(manifest)
    assert parse_manifest(raw) == manifest
    assert build_manifest(parse_manifest(raw)) == raw


def test_a_rollout_document_comes_back_as_it_was() -> None:
    raw = build_rollouts(DOCUMENT)
    assert parse_rollouts(raw) == DOCUMENT
    assert build_rollouts(parse_rollouts(raw)) == raw


def changed(raw: bytes, *path: str | int, value: object) -> bytes:
    """JSON with one value put in its place; `...` takes it out."""
    document = json.loads(raw)
    *parents, last = path
    place: Any = document
    for key in parents:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


FILE = ("files", 0)
DELTA_OF = (*FILE, "encodings", 1)
HOSTILE_MANIFESTS: dict[str, tuple[tuple[str | int, ...], object]] = {
    "newer schema": (("schema",), 2),
    "counter of nothing": (("counter",), 0),
    "no files": (("files",), []),
    "absolute path": ((*FILE, "path"), "/etc/passwd"),
    "path that leaves": ((*FILE, "path"), "a/../../b"),
    "path of another system": ((*FILE, "path"), "a\\b"),
    "path with a NUL": ((*FILE, "path"), "a\0b"),
    "no digest": ((*FILE, "sha256"), "AB" * 32),
    "digest that is a path": ((*FILE, "encodings", 0, "sha256"), "../" * 21 + "a"),
    "negative size": ((*FILE, "size_bytes"), -1),
    "absurd size": ((*FILE, "size_bytes"), MAX_FILE_BYTES + 1),
    "blob of absurd size": ((*DELTA_OF, "size_bytes"), 1 << 60),
    "negative blob": ((*DELTA_OF, "size_bytes"), -5),
    "unknown codec": ((*DELTA_OF, "codec"), "rot13"),
    "delta without a base": ((*DELTA_OF, "base_sha256"), None),
    "delta with a full codec": ((*DELTA_OF, "codec"), "zstd"),
    "case 38: nothing but a delta": ((*FILE, "encodings", 0), ...),
    "case 64: no needs": (("needs",), ...),
    "case 64: no arch": (("needs", "arch"), ...),
    "case 64: no memory": (("needs", "memory_mb"), ...),
    "case 5: no runtime": (("needs", "runtime"), ...),
    "number as text": (("counter",), "2"),
    "float as number": (("counter",), 2.5),
}


@pytest.mark.parametrize(("path", "value"), HOSTILE_MANIFESTS.values(), ids=HOSTILE_MANIFESTS.keys())
def test_a_manifest_that_makes_no_sense_is_refused(path: tuple[str | int, ...], value: object) -> None:
    """Casebook 5, 38, 64: sizes bound every later allocation, a missing requirement field refuses."""
    raw = build_manifest(MANIFEST)
    assert parse_manifest(raw) == MANIFEST
    with pytest.raises(ManifestError):
        parse_manifest(changed(raw, *path, value=value))


HOSTILE_DOCUMENTS: dict[str, tuple[tuple[str | int, ...], object]] = {
    "newer schema": (("schema",), 2),
    "share below nobody": (("rollouts", 0, "share"), -1),
    "share above everybody": (("rollouts", 0, "share"), BUCKETS + 1),
    "share in per cent": (("rollouts", 0, "share"), "50%"),
    "unknown field": (("rollouts", 0, "force"), True),
    "no salt": (("rollouts", 0, "salt"), ...),
    "label that is no text": (("rollouts", 0, "select"), {"class": 3}),
    "no counter": (("counter",), ...),
}


@pytest.mark.parametrize(("path", "value"), HOSTILE_DOCUMENTS.values(), ids=HOSTILE_DOCUMENTS.keys())
def test_a_rollout_document_that_makes_no_sense_is_refused(
    path: tuple[str | int, ...], value: object
) -> None:
    """Casebook 62: a share is within 0 and all buckets; an unknown field is not passed over."""
    with pytest.raises(RolloutError):
        parse_rollouts(changed(build_rollouts(DOCUMENT), *path, value=value))


PARSERS: tuple[tuple[Callable[[bytes], object], type[Exception], bytes, int], ...] = (
    (parse_manifest, ManifestError, build_manifest(MANIFEST), MAX_MANIFEST_BYTES),
    (parse_rollouts, RolloutError, build_rollouts(DOCUMENT), MAX_DOCUMENT_BYTES),
)


@pytest.mark.parametrize(("parse", "error", "raw", "limit"), PARSERS, ids=["manifest", "rollouts"])
def test_what_is_too_large_or_nested_without_end_is_refused(
    parse: Callable[[bytes], object], error: type[Exception], raw: bytes, limit: int
) -> None:
    with pytest.raises(error, match="is the limit"):
        parse(raw + b" " * limit)
    with pytest.raises(error):
        parse(b"[" * (limit // 2))


@pytest.mark.parametrize(("parse", "error", "raw", "limit"), PARSERS, ids=["manifest", "rollouts"])
@settings(max_examples=200)
@given(data=st.data())
def test_any_bytes_are_read_or_refused_by_name(
    parse: Callable[[bytes], object], error: type[Exception], raw: bytes, limit: int, data: st.DataObject
) -> None:
    """Fuzz: noise, and good documents with a few bytes changed."""
    del limit
    mutant = bytearray(raw)
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        mutant[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(error):
        parse(bytes(mutant))
    with contextlib.suppress(error):
        parse(data.draw(st.binary(max_size=64)))
