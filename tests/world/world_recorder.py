"""What a wire cannot show: every (key, IV) pair that was sealed and opened with, and every batch given to a GPU. Knows no service.

Patches stand where the code reaches for its cipher and for its GPU, so nothing in the product knows of them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import shared.crypto.aead
import shared.crypto.spdm_record
from orchestrator.gpu_session.life import Batch, GpuLife
from shared.crypto.aead import OpeningChannel
from tests.world.world_service import INCARNATION

HEAD_BYTES = 16
GPU = "gpu"


@dataclass(frozen=True)
class Sealed:
    """One message sealed. `by`: the service, GPU for the device's own threads; `key`: its SHA-256; `head`: how the ciphertext begins."""

    by: str
    key: bytes
    iv: bytes
    head: bytes
    at_rest: bool


@dataclass(frozen=True)
class Opened:
    """One message that authenticated. `repeat`: only compared with what was accepted before, to no effect."""

    by: str
    key: bytes
    iv: bytes
    repeat: bool
    at_rest: bool


@dataclass(frozen=True)
class Ordered:
    """One batch as the orchestrator gives it."""

    commands: tuple[Any, ...]


@dataclass
class Recorder:
    """`timeline`: what happened, in order, whoever did it. `keys`: raw keys by their SHA-256."""

    timeline: list[Any] = field(default_factory=list)
    keys: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def reused(self) -> list[tuple[bytes, bytes]]:
        """(key hash, IV) pairs that sealed more than once: law L4 says none."""
        used = Counter((event.key, event.iv) for event in self.timeline if isinstance(event, Sealed))
        return [pair for pair, count in used.items() if count > 1]

    @property
    def latest_batch(self) -> tuple[Any, ...]:
        """The batch that the orchestrator gave last; batches never overlap."""
        return next((event.commands for event in reversed(self.timeline) if isinstance(event, Ordered)), ())

    def cipher(self) -> type[Any]:
        """AES-256-GCM that writes down what it sealed and opened under."""
        recorder = self

        class RecordingAESGCM:
            def __init__(self, key: bytes) -> None:
                self._real, self.key, self._at_rest = AESGCM(key), hashlib.sha256(key).digest(), _now("storing")
                recorder.keys[self.key] = bytes(key)

            def encrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
                sealed = self._real.encrypt(iv, data, aad)
                self._sealed(iv, sealed)
                return sealed

            def encrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
                written = self._real.encrypt_into(iv, data, aad, out)
                self._sealed(iv, memoryview(out)[:HEAD_BYTES])
                return written

            def decrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
                plain = self._real.decrypt(iv, data, aad)
                self._opened(iv)
                return plain

            def decrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
                written = self._real.decrypt_into(iv, data, aad, out)
                self._opened(iv)
                return written

            def _sealed(self, iv: Any, sealed: Any) -> None:
                head = bytes(sealed[:HEAD_BYTES])
                recorder.timeline.append(Sealed(_somebody(), self.key, bytes(iv), head, self._at_rest))

            def _opened(self, iv: Any) -> None:
                opened = Opened(_somebody(), self.key, bytes(iv), _now("comparing"), self._at_rest)
                recorder.timeline.append(opened)

        return RecordingAESGCM


_doing = threading.local()


def _now(what: str) -> bool:
    return getattr(_doing, what, False)


def _marked(what: str, function: Any) -> Any:
    """The function, during which this thread is known to be at `what`."""

    def marked(*arguments: Any) -> Any:
        setattr(_doing, what, True)
        try:
            return function(*arguments)
        finally:
            setattr(_doing, what, False)

    return marked


def _somebody() -> str:
    incarnation = INCARNATION.get()  # the device's threads belong to no service's tasks
    return GPU if incarnation is None else incarnation.name


@contextmanager
def recording(recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Record everything sealed, opened and commanded inside the block."""
    recorder = Recorder() if recorder is None else recorder
    batch = GpuLife.batch

    async def watched(life: GpuLife, commands: Any, bulk: Any = (), *, behind: Any = None) -> Batch:
        if behind is not None:  # ordered once it may leave
            await behind()
        recorder.timeline.append(Ordered(tuple(commands)))
        return await batch(life, commands, bulk)

    cipher, aead = recorder.cipher(), shared.crypto.aead
    with ExitStack() as patches:
        for target, name, value in (
            (aead, "AESGCM", cipher),
            (shared.crypto.spdm_record, "AESGCM", cipher),
            (aead, "_at_rest", _marked("storing", aead._at_rest)),
            (OpeningChannel, "check_repeat", _marked("comparing", OpeningChannel.check_repeat)),
            (GpuLife, "batch", watched),
        ):
            patches.enter_context(patch.object(target, name, value))
        yield recorder
