"""A session's finished model on the disk, which is the platform's: sealed under the session's key. Knows no GPU and no output policy.

Once the session is removed its key is gone, and with it every copy of the model that was left somewhere.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.files import large_file
from orchestrator.sealed_file import Plaintext, SealedWriter, open_sealed
from shared.crypto.secret import Secret
from shared.service.clock import Entropy

SEALED: Final = "model.sealed"
PLAIN: Final = "model.safetensors"
"""Of sessions that releases before finished: not sealed."""


class ModelFile:
    """Where one session's model lies, or will lie.

    Args:
        folder: the session's. key: its sealing key.
    """

    def __init__(self, folder: Path, key: Secret, session: str, entropy: Entropy) -> None:
        self.path = folder / SEALED
        self._old, self._key, self._name, self._entropy = folder / PLAIN, key, f"model/{session}", entropy

    @asynccontextmanager
    async def making(self) -> AsyncIterator[Making]:
        """The file while it is written: it appears whole at the end, or not at all. Raises: Unavailable: as `large_file`."""
        async with large_file(self.path) as file:
            writer = SealedWriter(file, self._key, self._name, self._entropy)
            yield Making(file, writer, self._key, self._name)
            writer.finish()

    def open(self) -> Plaintext:
        """The model as it lies there; who reads it holds it against its digest.

        Raises:
            FileNotFoundError. VerificationFailed: changed on disk.
        """
        try:
            return open_sealed(self.path, self._key, self._name)
        except FileNotFoundError:
            file = self._old.open("rb")
        status = os.fstat(file.fileno())
        return Plaintext(file, status.st_size, status.st_mtime)


class Making:
    """A model's file that is being written, and is read back once before it counts."""

    def __init__(self, file: BinaryIO, writer: SealedWriter, key: Secret, name: str) -> None:
        self._path, self._writer, self._key, self._name = Path(file.name), writer, key, name
        self.write = writer.write

    @contextmanager
    def read_back(self) -> Iterator[tuple[BufferedReader, int]]:
        """Nothing is written any more: what the disk now holds, and its size in bytes."""
        self._writer.finish()
        found = open_sealed(self._path, self._key, self._name)
        with found.file:
            yield found.file, found.size
