"""Which copy record is due next under a grant, how long it may be, and how many there can be in all. Pure; knows no key and no memory."""

from __future__ import annotations

from gpu_agent.hardware.grants import LiveGrant
from shared.claims.visit import Grant
from shared.wire.copy import CLOSING, DATA, HEADER_BYTES, MAX_CLOSING_BYTES, PROOF, tags_bytes


def most_records(grant: Grant) -> int:
    """Data, proof and closing records that a visit can have."""
    return grant.chunks + -(-grant.proof_budget // grant.chunk_bytes) + 1


def most_bytes(grant: Grant) -> int:
    """Their bytes, sealed."""
    return grant.byte_budget + MAX_CLOSING_BYTES + most_records(grant) * (HEADER_BYTES + tags_bytes(grant))


def kind_due(live: LiveGrant, total: int) -> int:
    """Data, then what there is of the proof, then the closing record."""
    if live.accepted < live.grant.chunks:
        return DATA
    return PROOF if live.accepted < total else CLOSING


def lengths_due(live: LiveGrant, total: int) -> range:
    """Plaintext lengths that the next record may have: only a proof's last piece and the closing record leave a choice."""
    grant, chunk = live.grant, live.grant.chunk_bytes
    if live.accepted == total:
        return range(1, MAX_CLOSING_BYTES + 1)
    if live.accepted >= grant.chunks:
        left = grant.proof_budget - len(live.proof)
        last = live.accepted == total - 1
        return range(1 if last else chunk, min(chunk, left) + 1)
    due = min(chunk, grant.length - live.received)
    return range(due, due + 1)
