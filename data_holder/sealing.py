"""One visit's records and their proof as sealed copy records: read, commit, seal, in order, each once. Blocking; knows no HTTP and no GPU.

Law L4: the sealing channel counts its own messages and this class never seals the same chunk twice; whoever needs bytes again keeps them.
The commitment is keyed with a fresh 32-byte salt, so that nobody can try out guesses against it. It is over the records' leaves, which
the dataset's tree has: nothing is hashed here. Whatever the tree says wrong the GPU, which hashes what it was given, refuses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from data_holder.datasets import Dataset
from shared.claims.visit import Grant
from shared.crypto.chains import SealingChains
from shared.crypto.secret import Secret
from shared.crypto.visit_key import VisitKey
from shared.errors import ProtocolViolation
from shared.protocol.membership import commitment
from shared.protocol.merkle import HASH_BYTES
from shared.wire.codec import encode
from shared.wire.copy import (
    CLOSING,
    DATA,
    HEADER_BYTES,
    MAX_CLOSING_BYTES,
    MAX_INLINE_PROOF,
    PROOF,
    Closing,
    CopyHeader,
    copy_context,
    pack_header,
    tags_bytes,
)

_UNKNOWN: Final = bytes(HASH_BYTES).hex()
"""As long as any commitment."""


@dataclass(slots=True)
class SealedRecord:
    """One copy record in a caller's buffer. `plaintext_bytes`: record data in it; `proof_bytes`: membership proof in it."""

    index: int
    total: int
    data: memoryview
    plaintext_bytes: int
    proof_bytes: int

    @property
    def closing(self) -> bool:
        return self.index == self.total


@dataclass(frozen=True)
class Membership:
    """What proves to the GPU that the visit's records are the approved ones: the dataset's salt, for it alone, and the multi-proof.

    `leaves`: of the records, in the cursor's order, 32 bytes each.
    """

    salt: Secret
    proof: bytes
    leaves: bytes

    def pieces(self, chunk_bytes: int) -> int:
        """Copy records of its own that the proof takes; 0 where it rides in the closing record."""
        return 0 if len(self.proof) <= MAX_INLINE_PROOF else -(-len(self.proof) // chunk_bytes)


class RecordSealer:
    """Seals a visit's data chunks, its proof, and then the closing record, each into a buffer of `buffer_bytes`.

    `read`: plaintext of its first data chunks, where that was read before; erased with the rest.
    `total`: number of copy records before the closing one.
    `read_s`, `seal_s`: seconds spent reading and sealing so far. Not thread-safe: one chunk after another.
    """

    def __init__(
        self, grant: Grant, key: VisitKey, dataset: Dataset, membership: Membership, salt: bytes,
        read: Sequence[bytearray] = (),
    ) -> None:  # fmt: skip
        if len(membership.leaves) != grant.records * HASH_BYTES:
            raise ProtocolViolation("the membership is of another number of records", code="records-not-planned")
        if dataset.record_bytes != grant.record_bytes:
            raise ProtocolViolation(
                "the dataset's records are of another size than the grant's", code="records-not-planned"
            )
        self._grant, self._dataset, self._membership, self._salt, self._ahead = grant, dataset, membership, salt, read
        # Worked out once: every record asks for them.
        self._chunks, self._length, self._tags = grant.chunks, grant.length, tags_bytes(grant)
        self._channel: SealingChains | None = SealingChains(
            key.key, grant.chains, label="visit h2d", iv_mask=key.iv_mask, channel_counter=key.channel_counter
        )
        self._context = copy_context(grant)
        self._scratch = bytearray()
        self._pieces = membership.pieces(grant.chunk_bytes)
        self.total = self._chunks + self._pieces
        self._next = 0
        self.read_s = 0.0
        self.seal_s = 0.0

    @property
    def sealed(self) -> int:
        """Copy records sealed so far."""
        return self._next

    @property
    def plain_bytes(self) -> int:
        """Of all records and their proof."""
        return self._length + len(self._membership.proof)

    @property
    def buffer_bytes(self) -> int:
        """Bytes a buffer needs for any of this visit's copy records."""
        proof = len(self._membership.proof)
        closing = MAX_CLOSING_BYTES - MAX_INLINE_PROOF + (0 if self._pieces else proof)
        return (
            HEADER_BYTES
            + max(min(self._grant.chunk_bytes, self._length), min(proof, self._grant.chunk_bytes), closing)
            + self._tags
        )

    def record_bytes(self, index: int) -> int:
        """Of copy record `index`, header and tags included, which may yet be sealed; `total` is the closing one's."""
        size = self._grant.chunk_bytes
        if index < self._chunks:
            plain = min(size, self._length - index * size)
        elif index < self.total:
            plain = min(size, len(self._membership.proof) - (index - self._chunks) * size)
        else:
            plain = len(self._closing(_UNKNOWN))
        return HEADER_BYTES + plain + self._tags

    @property
    def commitment(self) -> str:
        """What is stated of all records (`shared.protocol.membership`), hex; only after the last chunk."""
        if self._next < self._chunks:
            raise ProtocolViolation("the commitment exists only after the last chunk", code="out-of-order")
        return commitment(self._salt, self._membership.leaves).hex()

    def seal_next(self, buffer: bytearray | memoryview) -> SealedRecord:
        """Seal the next copy record into `buffer`; the closing one last.

        Raises:
            ProtocolViolation: everything was sealed, or the key was erased. UnfitData: the file changed under us.
        """
        if self._channel is None or self._next > self.total:
            raise ProtocolViolation("this visit's records are sealed or its key is erased", code="visit-key-erased")
        data = proof = 0
        as_it_lies = False
        if self._next < self._chunks:
            (plaintext, as_it_lies), kind = self._read(), DATA
            data = len(plaintext)
        elif self._next < self.total:
            start = (self._next - self._chunks) * self._grant.chunk_bytes
            plaintext, kind = memoryview(self._membership.proof)[start : start + self._grant.chunk_bytes], PROOF
            proof = len(plaintext)
        else:
            plaintext, kind = memoryview(self._closing(self.commitment)), CLOSING
            proof = 0 if self._pieces else len(self._membership.proof)
        record = self._seal(self._channel, kind, plaintext, buffer)
        if as_it_lies:
            self._dataset.believe()
        self._next += 1
        return SealedRecord(self._next - 1, self.total, record, data, proof)

    def erase(self) -> None:
        """Drop the visit key and all plaintext; nothing can be sealed any more."""
        if self._channel is not None:
            self._channel.erase()
        self._channel = None
        for plaintext in (self._scratch, *self._ahead):
            plaintext[:] = bytes(len(plaintext))

    def _read(self) -> tuple[memoryview, bool]:
        """The chunk that is due, and whether it lies in the dataset's file: sealed from there it is copied nowhere."""
        if self._next < len(self._ahead):
            return memoryview(self._ahead[self._next]), False
        offset = self._next * self._grant.chunk_bytes
        length = min(self._grant.chunk_bytes, self._length - offset)
        lying = self._dataset.lying(self._grant.cursor, offset, length)
        if lying is not None:
            return lying, True
        started = time.perf_counter()
        if len(self._scratch) < length:
            self._scratch = bytearray(length)
        chunk = memoryview(self._scratch)[:length]
        self._dataset.read_slice(self._grant.cursor, offset, chunk)
        self.read_s += time.perf_counter() - started
        return chunk, False

    def _seal(
        self, channel: SealingChains, kind: int, plaintext: memoryview, buffer: bytearray | memoryview
    ) -> memoryview:
        started = time.perf_counter()
        grant = self._grant
        header = pack_header(
            CopyHeader(kind, grant.epoch, grant.region, self._next, self.total, len(plaintext), grant.more_chains)
        )
        end = HEADER_BYTES + len(plaintext) + self._tags
        view = memoryview(buffer)
        view[:HEADER_BYTES] = header
        channel.seal_into(plaintext, header + self._context, view[HEADER_BYTES:end])
        self.seal_s += time.perf_counter() - started
        return view[:end]

    def _closing(self, stated: str) -> bytes:
        grant, membership = self._grant, self._membership
        closing = Closing(
            visit=grant.visit, chunks=self._chunks, records=grant.records, length=self._length, salt=self._salt,
            commitment=stated, dataset_salt=membership.salt.reveal(),
            proof=b"" if self._pieces else membership.proof,
        )  # fmt: skip
        return encode(closing)
