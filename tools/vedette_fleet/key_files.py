"""Signing keys in files: Ed25519, PKCS#8 in PEM, readable by their owner alone, never overwritten."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey

from vedette import fsops
from vedette.errors import BadInputError, UnavailableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tuf.api.metadata import Key

MAX_KEY_BYTES = 4096
_SUFFIX = ".pem"


@dataclass(frozen=True)
class KeyFile:
    """A private key and where it lies."""

    path: Path
    signer: CryptoSigner

    @property
    def keyid(self) -> str:
        """The key's TUF identifier."""
        return self.public.keyid

    @property
    def public(self) -> SSlibKey:
        """What verifies its signatures."""
        return self.signer.public_key


class KeyFolder:
    """A folder of private keys; which role a key has is said by the repository's metadata alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, KeyFile]:
        """Every key in the folder, by key id; none when there is no folder.

        Raises:
            BadInputError: A file is no key, or others may read it.
        """
        found = (load_key(path) for path in sorted(self.path.glob(f"*{_SUFFIX}")))
        return {key.keyid: key for key in found}

    def create(self, role: str) -> KeyFile:
        """Make a key in a new file, `<role>-<number>.pem`.

        Raises:
            UnavailableError: The folder cannot be written.
        """
        self._prepare()
        number = 1
        while (path := self._path(role, number)).exists():
            number += 1
        return create_key(path)

    def find_or_create(self, role: str, number: int) -> tuple[KeyFile, bool]:
        """The key of that number, made if it is missing; and whether it was made.

        Raises:
            BadInputError: The file is no key, or others may read it.
            UnavailableError: The folder cannot be written.
        """
        self._prepare()
        path = self._path(role, number)
        return (load_key(path), False) if path.exists() else (create_key(path), True)

    def _path(self, role: str, number: int) -> Path:
        return self.path / f"{role}-{number}{_SUFFIX}"

    def _prepare(self) -> None:
        try:
            fsops.make_folder(self.path, fsops.Point.KEY)
            self.path.chmod(0o700)
        except OSError as error:
            raise UnavailableError(
                f"{self.path}: cannot be made: {error.strerror}", cure="check the folder above it"
            ) from error


def create_key(path: Path) -> KeyFile:
    """Make a new private key in a file that does not exist yet.

    Raises:
        UsageError: There is a file of that name.
        UnavailableError: It cannot be written.
    """
    signer = CryptoSigner.generate_ed25519()
    _write_new(path, signer.private_bytes, mode=0o600)
    return KeyFile(path, signer)


def write_public_key(path: Path, key: KeyFile) -> None:
    """Write the public half, to be carried to the machine of the repository.

    Raises:
        UsageError: There is a file of that name.
        UnavailableError: It cannot be written.
    """
    public = load_private(key.path).public_key()
    _write_new(path, public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), mode=0o644)


def load_key(path: Path) -> KeyFile:
    """Read a private key.

    Raises:
        BadInputError: No Ed25519 key in PEM, or others may read it.
    """
    private = load_private(path)
    return KeyFile(path, CryptoSigner(private))


def load_private(path: Path) -> Ed25519PrivateKey:
    """Read the key as the signing library has it.

    Raises:
        BadInputError: No Ed25519 key in PEM, or others may read it.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        content = _read(path)
        private = load_pem_private_key(content, password=None)
    except OSError as error:
        raise BadInputError(
            f"{path}: cannot be read: {error.strerror}", cure="name the file of a private key"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInputError(
            f"{path}: no unencrypted private key in PEM: {error}",
            cure="make one with: vedette-fleet keys new",
        ) from error
    if mode & 0o077:
        raise BadInputError(
            f"{path}: others may read this private key (mode {mode:04o})",
            cure=f"chmod 600 {path}, and rotate the key if the machine has other users",
        )
    if not isinstance(private, Ed25519PrivateKey):
        raise BadInputError(f"{path}: not an Ed25519 key", cure="make one with: vedette-fleet keys new")
    return private


def load_public_key(path: Path) -> Key:
    """Read the public half of a key that was made elsewhere.

    Raises:
        BadInputError: No Ed25519 public key in PEM.
    """
    cure = "give the .pub file that `vedette-fleet keys new` wrote"
    try:
        public = load_pem_public_key(_read(path))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}", cure=cure) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInputError(f"{path}: no public key in PEM: {error}", cure=cure) from error
    if not isinstance(public, Ed25519PublicKey):
        raise BadInputError(f"{path}: not an Ed25519 key", cure=cure)
    return SSlibKey.from_crypto(public)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_KEY_BYTES)


def _write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file durably; a link cannot replace what is there, as a rename would."""
    temporary = fsops.temporary_path(path)
    try:
        with fsops.DurableFile.create(temporary, fsops.Point.KEY) as file:
            os.fchmod(file.descriptor, mode)
            file.write_at(content, 0)
            file.sync()
        os.link(temporary, path)
        fsops.unlink(temporary, fsops.Point.KEY)
        fsops.sync_folder(path.parent, fsops.Point.KEY)
    except FileExistsError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            f"{path} is there already, and keys are never overwritten", cure="name another file"
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{path}: cannot be written: {error.strerror}", cure="check space and mode of the folder"
        ) from error
