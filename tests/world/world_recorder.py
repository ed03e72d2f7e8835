"""What a wire cannot show: every (key, IV) pair that was sealed with, and every command that was given to a GPU. Knows no service.

Patches stand where the code reaches for its cipher and for its GPU, so nothing in the product knows of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import shared.crypto.aead
import shared.crypto.spdm_record
from orchestrator.gpu_session.life import Batch, GpuLife


@dataclass
class Recorder:
    """`sealed`: (key hash, IV) -> how often; `batches`: the commands in the order they were given, with their answers' names."""

    sealed: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    batches: list[list[Any]] = field(default_factory=list)
    answers: list[list[str]] = field(default_factory=list)

    @property
    def reused(self) -> list[tuple[bytes, bytes]]:
        """Pairs that sealed more than once: law L4 says none."""
        return [pair for pair, count in self.sealed.items() if count > 1]

    def commands(self) -> list[Any]:
        return [command for batch in self.batches for command in batch]

    def names(self) -> list[str]:
        return [type(command).__name__ for command in self.commands()]

    def cipher(self) -> type[Any]:
        recorder = self

        class RecordingAESGCM:
            """AES-256-GCM that writes down what it sealed under."""

            def __init__(self, key: bytes) -> None:
                self._real, self._key = AESGCM(key), hashlib.sha256(key).digest()
                recorder.keys[self._key] = bytes(key)

            def _note(self, iv: Any) -> None:
                pair = (self._key, bytes(iv))
                recorder.sealed[pair] = recorder.sealed.get(pair, 0) + 1

            def encrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
                self._note(iv)
                return self._real.encrypt(iv, data, aad)

            def encrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
                self._note(iv)
                return self._real.encrypt_into(iv, data, aad, out)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

        return RecordingAESGCM


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record everything sealed and commanded inside the block."""
    recorder = Recorder()
    batch = GpuLife.batch

    async def watched(life: GpuLife, commands: Any, bulk: Any = ()) -> Batch:
        recorder.batches.append(list(commands))
        answer = await batch(life, commands, bulk)
        recorder.answers.append([type(item).__name__ for item in answer.answers])
        return answer

    rooms: list[Any] = [shared.crypto.aead, shared.crypto.spdm_record]
    cipher = recorder.cipher()
    for room in rooms:
        room.AESGCM = cipher
    GpuLife.batch = watched  # type: ignore[method-assign]  # the patch of this test
    try:
        yield recorder
    finally:
        for room in rooms:
            room.AESGCM = AESGCM
        GpuLife.batch = batch  # type: ignore[method-assign]  # as above
