"""Which copy record is due next under a grant, how long it may be, and how many there can be in all. Pure; knows no key and no memory.

Every record of every visit passes here: what can be worked out once is in the grant, and a fault gets its words only when there is one.
"""

from __future__ import annotations

from gpu_agent.hardware.grants import LiveGrant
from shared.claims.visit import Grant
from shared.errors import BadRequest
from shared.wire.copy import CLOSING, DATA, HEADER_BYTES, MAX_CLOSING_BYTES, PROOF, CopyHeader, tags_bytes


def most_records(grant: Grant) -> int:
    """Data, proof and closing records that a visit can have."""
    return grant.chunks + -(-grant.proof_budget // grant.chunk_bytes) + 1


def most_bytes(grant: Grant) -> int:
    """Their bytes, sealed."""
    return grant.byte_budget + MAX_CLOSING_BYTES + most_records(grant) * (HEADER_BYTES + tags_bytes(grant))


def check_due(live: LiveGrant, header: CopyHeader, now: float | None) -> None:
    """The record of this header is the one that is due; from the first one on its total is the visit's. `now` None: it came in time.

    Raises:
        BadRequest: it is not. Nothing changed.
    """
    grant, accepted = live.grant, live.accepted
    total = header.total if live.total is None else live.total
    proofs = -(-live.proof_budget // grant.chunk_bytes)
    rules = (
        (now is None or now < grant.expires_at, "the grant has expired"),
        (header.index == accepted, "record {0.index} came where {1} was due"),
        (header.more_chains == grant.more_chains, "the record has other chains than the grant's {3.chains}"),
        (header.total == total, "the total is {0.total}, and was {2} before"),
        (0 <= total - live.chunks <= proofs, "the total is {2}, the grant has {3.chunks} chunks"),
        (header.kind == kind_due(live, total), "a data, proof or closing record came where another was due"),
        (header.length in lengths_due(live, total), "record {0.index} has {0.length} bytes"),
    )
    for holds, fault in rules:
        if not holds:
            raise BadRequest(fault.format(header, accepted, total, grant))
    live.total = total


def kind_due(live: LiveGrant, total: int) -> int:
    """Data, then what there is of the proof, then the closing record."""
    if live.accepted < live.chunks:
        return DATA
    return PROOF if live.accepted < total else CLOSING


def lengths_due(live: LiveGrant, total: int) -> range:
    """Plaintext lengths that the next record may have: only a proof's last piece and the closing record leave a choice."""
    chunk = live.grant.chunk_bytes
    if live.accepted == total:
        return range(1, MAX_CLOSING_BYTES + 1)
    if live.accepted >= live.chunks:
        left = live.proof_budget - len(live.proof)
        last = live.accepted == total - 1
        return range(1 if last else chunk, min(chunk, left) + 1)
    due = min(chunk, live.length - live.received)
    return range(due, due + 1)
