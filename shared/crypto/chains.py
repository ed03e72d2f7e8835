"""One message as k independent AES-GCM chains (Fastrack's multi-chained authentication), sealed and opened side by side. Knows no grant.

A message is cut into k pieces, equal but for the last ones, each sealed under a key and in an IV space of its own, both derived from the
visit's key, k and the chain's number, and each followed by its tag. AAD of chain j of k > 1 = the message's AAD ‖ j ‖ k, and the message's
AAD (the copy record's header) states index, total, k and the whole length: so no chain is left out, repeated, exchanged, or moved into
another message. One chain is the plain channel, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from shared.claims.visit import MAX_CHAINS
from shared.crypto.aead import TAG_BYTES, Buffer, OpeningChannel, SealingChannel
from shared.crypto.schedule import chain_key
from shared.errors import VerificationFailed

ALONE_BYTES: Final = 128 * 1024
"""Below this another thread costs more than the cipher."""
_PLACE: Final = struct.Struct("<HH")
_BLOCK: Final = 16
_crew: Final = ThreadPoolExecutor(MAX_CHAINS - 1, thread_name_prefix="chain")  # threads begin with the first work


def cut(length: int, chains: int) -> list[tuple[int, int]]:
    """(start, end) of each chain's piece of a message of `length` bytes: whole cipher blocks, the last ones shorter or empty."""
    step = -(-length // (chains * _BLOCK)) * _BLOCK
    return [(min(number * step, length), min((number + 1) * step, length)) for number in range(chains)]


def dependent_steps(length: int, chains: int) -> int:
    """Multiplications over the longest piece's ciphertext of which each waits for the one before: what chains make fewer."""
    return max(-(-(end - start) // _BLOCK) for start, end in cut(length, chains))


class SealingChains:
    """The sender's end: what `SealingChannel` is to one chain.

    Args:
        key: 32 bytes, the visit's. chains: 1 to 32. The others are those of every chain's channel where there is one, and
            part of what each chain's own are derived from where there are more.
    """

    def __init__(self, key: bytes, chains: int, *, label: str, iv_mask: bytes, channel_counter: int) -> None:
        self._channels = [
            SealingChannel(own, label=name, iv_mask=mask, channel_counter=channel_counter)
            for own, mask, name in _keys(key, chains, iv_mask, label)
        ]

    @property
    def counter(self) -> int:
        """Messages sealed."""
        return self._channels[0].counter

    def seal(self, plaintext: Buffer, aad: bytes) -> bytes:
        """As `seal_into`, into new bytes."""
        out = bytearray(memoryview(plaintext).nbytes + len(self._channels) * TAG_BYTES)
        self.seal_into(plaintext, aad, out)
        return bytes(out)

    def seal_into(self, plaintext: Buffer, aad: bytes, out: Buffer) -> int:
        """Every piece with its tag, one after another, into `out` (plaintext length + 16 bytes a chain); the bytes written.

        Raises:
            ProtocolViolation: as `SealingChannel.seal`; ValueError: `out` has no room. The keys are erased then, because the chains may be
                out of step.
        """
        try:
            if len(self._channels) == 1:  # most records: nothing is cut
                return self._channels[0].seal_into(plaintext, aad, out)
            return self._seal(memoryview(plaintext), aad, memoryview(out))
        except BaseException:
            self.erase()
            raise

    def _seal(self, source: memoryview, aad: bytes, target: memoryview) -> int:
        length, chains = source.nbytes, len(self._channels)
        places = cut(length, chains)

        def seal(number: int) -> None:
            start, end = places[number]
            here = target[start + number * TAG_BYTES : end + (number + 1) * TAG_BYTES]
            self._channels[number].seal_into(source[start:end], bound(aad, number, chains), here)

        _together(seal, chains, length)
        return length + chains * TAG_BYTES

    def erase(self) -> None:
        """Forget every key; any later use raises."""
        for channel in self._channels:
            channel.erase()


class OpeningChains:
    """The receiver's end: what `OpeningChannel` is to one chain. After a failure it opens nothing any more."""

    def __init__(self, key: bytes, chains: int, *, label: str, iv_mask: bytes, channel_counter: int) -> None:
        self._label = label
        self._channels = [
            OpeningChannel(own, label=name, iv_mask=mask, channel_counter=channel_counter)
            for own, mask, name in _keys(key, chains, iv_mask, label)
        ]

    def open(self, ciphertext: Buffer, aad: bytes) -> bytes:
        """As `open_into`; the plaintext, of which nothing is given away unless every tag verifies."""
        out = bytearray(max(0, memoryview(ciphertext).nbytes - len(self._channels) * TAG_BYTES))
        self.open_into(ciphertext, aad, out)
        return bytes(out)

    def open_into(self, ciphertext: Buffer, aad: bytes, out: Buffer) -> int:
        """Into `out` (ciphertext length − 16 bytes a chain). It returns, or raises, when no chain works any more.

        Raises:
            VerificationFailed `tag-mismatch`: of one chain or more, or there is no room for all tags; `out` may hold anything: scrub it.
            ProtocolViolation: as `OpeningChannel.open`. ValueError: `out` has no room. The keys are erased then, because the chains may be
                out of step.
        """
        try:
            if len(self._channels) == 1:
                return self._channels[0].open_into(ciphertext, aad, out)
            return self._open(ciphertext, aad, memoryview(out))
        except BaseException:
            self.erase()
            raise

    def _open(self, ciphertext: Buffer, aad: bytes, target: memoryview) -> int:
        length, chains = self._length(ciphertext), len(self._channels)
        pieces, places = self._pieces(ciphertext, length), cut(length, chains)

        def open_(number: int) -> None:
            start, end = places[number]
            self._channels[number].open_into(pieces[number], bound(aad, number, chains), target[start:end])

        _together(open_, chains, length)
        return length

    def check_repeat(self, counter: int, ciphertext: Buffer, aad: bytes) -> None:
        """Whether a message at a used counter is the authentic one again; changes nothing. Raises: VerificationFailed."""
        pieces = self._pieces(ciphertext, self._length(ciphertext))
        for number, (channel, piece) in enumerate(zip(self._channels, pieces, strict=True)):
            channel.check_repeat(counter, piece, bound(aad, number, len(pieces)))

    def erase(self) -> None:
        """Forget every key; any later use raises."""
        for channel in self._channels:
            channel.erase()

    def _length(self, ciphertext: Buffer) -> int:
        """Of the plaintext. Raises: VerificationFailed: there is no room for all tags."""
        length = memoryview(ciphertext).nbytes - len(self._channels) * TAG_BYTES
        if length < 0:
            raise VerificationFailed(f"{self._label}: a record has too few tags", code="tag-mismatch")
        return length

    def _pieces(self, ciphertext: Buffer, length: int) -> list[memoryview]:
        """Each chain's ciphertext and tag, as they lie."""
        view = memoryview(ciphertext)
        return [
            view[start + number * TAG_BYTES : end + (number + 1) * TAG_BYTES]
            for number, (start, end) in enumerate(cut(length, len(self._channels)))
        ]


def bound(aad: bytes, number: int, chains: int) -> bytes:
    """The AAD of one chain: the message's, and where there are several, which of how many it is."""
    return aad if chains == 1 else aad + _PLACE.pack(number, chains)


def _keys(key: bytes, chains: int, iv_mask: bytes, label: str) -> list[tuple[bytes, bytes, str]]:
    """(key, IV mask, label) of each chain."""
    if not 1 <= chains <= MAX_CHAINS:
        raise VerificationFailed(f"{label}: {chains} chains, and at most {MAX_CHAINS} there are", code="bad-chains")
    if chains == 1:
        return [(key, iv_mask, label)]
    names = (f"{label}, chain {number} of {chains}" for number in range(chains))
    return [(*chain_key(key, iv_mask, chains, number), name) for number, name in enumerate(names)]


def _together(work: Callable[[int], None], chains: int, length: int) -> None:
    """`work` of every chain, side by side where it is worth a thread. Ends when all have ended; raises what the first to fail raised."""
    if chains == 1 or length < ALONE_BYTES:
        for number in range(chains):
            work(number)
        return
    others = [_crew.submit(work, number) for number in range(1, chains)]
    try:
        work(0)
    finally:
        wait(others)  # whoever erases the memory afterwards must not be overtaken by a chain that still writes
    for other in others:
        other.result()
