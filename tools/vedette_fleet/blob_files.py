"""Content-addressed blobs in files, and the full encoding of a release's file back to its bytes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.errors import BadInputError, UnavailableError
from vedette.wire.release import Codec, EncodingKind
from vedette_fleet.zstd_bytes import unpack_zstd

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.wire.release import Encoding, ReleaseFile


class BlobFolder:
    """`blobs/<sha256>`; a blob never changes, so it can be cached for ever."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, content: bytes) -> str:
        """Store bytes durably and give their name; bytes that are there are not written again.

        Raises:
            UnavailableError: They cannot be written.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.path / sha256
        try:
            if not path.is_file() or path.read_bytes() != content:
                fsops.write_durable(path, content, fsops.Point.PUBLISH, mode=0o644)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
            ) from error
        return sha256

    def holds(self, encoding: Encoding) -> bool:
        """Whether a blob of that name and size is there; its content is proven by whoever reads it."""
        try:
            return (self.path / encoding.sha256).stat().st_size == encoding.size_bytes
        except OSError:
            return False

    def read_file(self, file: ReleaseFile) -> bytes:
        """A released file, made from its full encoding and verified.

        Raises:
            BadInputError: No full encoding of it is here, whole.
        """
        for encoding in file.encodings:
            if encoding.kind is EncodingKind.FULL and self.holds(encoding):
                content = self._decode(encoding, file.size_bytes)
                if hashlib.sha256(content).hexdigest() == file.sha256:
                    return content
        raise BadInputError(
            f"no whole blob of {file.path!r} ({file.sha256[:12]}…) is in {self.path}",
            cure="bring the missing blobs back from a copy, or release the base's bundle again",
        )

    def _decode(self, encoding: Encoding, size_bytes: int) -> bytes:
        try:
            content = (self.path / encoding.sha256).read_bytes()
        except OSError:
            return b""
        if hashlib.sha256(content).hexdigest() != encoding.sha256:
            return b""
        if encoding.codec is Codec.RAW:
            return content
        return unpack_zstd(content, size_bytes + 1)
