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


_HASH_BYTES = 1 << 20


class BlobFolder:
    """`blobs/<sha256>`; a blob never changes, so it can be cached for ever."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, content: bytes) -> str:
        """Store bytes durably and give their name; bytes that are there whole are not written again.

        Raises:
            UnavailableError: They cannot be written.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.path / sha256
        try:
            if self._fault(sha256, len(content)) is not None:
                fsops.write_durable(path, content, fsops.Point.PUBLISH, mode=0o644)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
            ) from error
        return sha256

    def fault(self, encoding: Encoding) -> str | None:
        """What is wrong with the blob of an encoding, from its bytes; None when it is there and whole."""
        return self._fault(encoding.sha256, encoding.size_bytes)

    def read_file(self, file: ReleaseFile) -> bytes:
        """A released file, made from its full encoding and verified.

        Raises:
            BadInputError: No full encoding of it is here, whole.
        """
        for encoding in file.encodings:
            if encoding.kind is EncodingKind.FULL:
                content = self._decode(encoding, file.size_bytes)
                if hashlib.sha256(content).hexdigest() == file.sha256:
                    return content
        raise BadInputError(
            f"no whole blob of {file.path!r} ({file.sha256[:12]}…) is in {self.path}",
            cure="release the base's bundle again, which puts them back, or bring them from a copy",
        )

    def _fault(self, sha256: str, size_bytes: int) -> str | None:
        path = self.path / sha256
        digest = hashlib.sha256()
        try:
            found_bytes = path.stat().st_size
            if found_bytes != size_bytes:
                return f"has {found_bytes} bytes instead of {size_bytes}"
            with path.open("rb") as file:
                while piece := file.read(_HASH_BYTES):
                    digest.update(piece)
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return None if digest.hexdigest() == sha256 else "has other bytes than its name says"

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
