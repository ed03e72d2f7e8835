"""A file on the untrusted disk that only its key reads: sealed in pieces, so that any part of it opens by itself. Knows no session.

Format: MAGIC (16 bytes) ‖ salt (16 bytes) ‖ pieces of PIECE bytes, the last one shorter or empty, each with its tag. The salt names the
key, so that the same name sealed twice is never under one.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from orchestrator.files import PIECE
from shared.crypto.aead import TAG_BYTES, AtRestStream
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed
from shared.service.clock import Entropy

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC: Final = b"gput/sealed/1".ljust(16, b"\0")
SALT_BYTES: Final = 16
_HEAD: Final = len(MAGIC) + SALT_BYTES
_SEALED_PIECE: Final = PIECE + TAG_BYTES


def _stream(key: Secret, name: str, salt: bytes) -> AtRestStream:
    return AtRestStream(key, f"{name}/{salt.hex()}")


class SealedWriter:
    """Seals what is written to it into `file`; whole once `finish` was called, and never readable without.

    Args:
        name: what the file is, which its key is bound to.
    """

    def __init__(self, file: BinaryIO, key: Secret, name: str, entropy: Entropy) -> None:
        salt = entropy(SALT_BYTES)
        self._file, self._stream = file, _stream(key, name, salt)
        self._held, self._number, self._finished = bytearray(), 0, False
        file.write(MAGIC + salt)

    def write(self, data: bytes | memoryview) -> int:
        """Take all of `data`; its length."""
        self._held += data
        while len(self._held) > PIECE:  # what may be the last piece is held back
            self._put(bytes(self._held[:PIECE]), last=False)
            del self._held[:PIECE]
        return len(data)

    def finish(self) -> None:
        """Nothing comes any more; said again it changes nothing."""
        if not self._finished:
            self._put(bytes(self._held), last=True)
            self._finished = True
            self._held.clear()
            self._file.flush()

    def _put(self, piece: bytes, *, last: bool) -> None:
        self._file.write(self._stream.seal(self._number, piece, last=last))
        self._number += 1


class _Opened(io.RawIOBase):
    """The plaintext of a sealed file, piece by piece as it is asked for."""

    def __init__(self, file: BinaryIO, key: Secret, name: str, size: int) -> None:
        self._file, head = file, file.read(_HEAD)
        if len(head) < _HEAD or not head.startswith(MAGIC) or size <= _HEAD:
            raise _changed()
        self._stream = _stream(key, name, head[len(MAGIC) :])
        self._pieces = -(-(size - _HEAD) // _SEALED_PIECE)
        self.size = size - _HEAD - self._pieces * TAG_BYTES
        self._at = 0
        self._piece(self._pieces - 1)  # so that the end is known to be the end, whoever reads how far

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("before the beginning")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As much as one piece gives. Raises: VerificationFailed: it was changed on disk."""
        with memoryview(buffer).cast("B") as wanted:
            number, start = divmod(self._at, PIECE)
            if self._at >= self.size or not len(wanted):
                return 0
            piece = self._piece(number)[start : start + len(wanted)]
            wanted[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _piece(self, number: int) -> bytes:
        self._file.seek(_HEAD + number * _SEALED_PIECE)
        sealed = self._file.read(_SEALED_PIECE)
        if len(sealed) < TAG_BYTES:
            raise _changed()
        try:
            return self._stream.open(number, sealed, last=number == self._pieces - 1)
        except VerificationFailed:
            raise _changed() from None

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _changed() -> VerificationFailed:
    return VerificationFailed("A sealed file was changed or cut short on disk", code="stored-file-changed")


@dataclass(frozen=True)
class Plaintext:
    """A file's plaintext, to be read and sought in; its size in bytes; when the file was written (UNIX time)."""

    file: io.BufferedReader
    size: int
    modified: float


def open_sealed(path: Path, key: Secret, name: str) -> Plaintext:
    """The plaintext of a file that `SealedWriter` made under this name.

    Raises:
        FileNotFoundError. VerificationFailed: it is another file, or was cut short or changed (`stored-file-changed`); the
            same while it is read.
    """
    file = path.open("rb")
    try:
        status = os.fstat(file.fileno())
        opened = _Opened(file, key, name, status.st_size)
    except BaseException:
        file.close()
        raise
    return Plaintext(io.BufferedReader(opened, PIECE), opened.size, status.st_mtime)
