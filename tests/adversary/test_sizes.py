"""What the platform learns from sizes (V17): nothing that approvals do not say in clear. Whoever has read them predicts every length."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from orchestrator.visits import granting
from shared.claims.visit import CursorRange
from shared.names import TravelMode
from shared.protocol.record_order import records_of
from shared.wire.codec import encode
from shared.wire.copy import HEADER_BYTES, TAG_BYTES, Closing, parse_record, record_length
from tests import dataset_tree
from tests.adversary.platform import record
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World
from tests.world.world_material import BATCH, HOLDERS, RECORD_BYTES, RECORDS, ROUNDS, STEPS, rows

CHUNK_BYTES = 700
LENGTH = STEPS * BATCH * RECORD_BYTES
AROUND = HEADER_BYTES + TAG_BYTES
SIZES = "out: timing is told; sizes follow from the manifest and from what approvals say in clear"


def predicted(visit: Any, records: int) -> list[int]:
    """Lengths of a visit's records, from its plan and the number of its holder's records alone."""
    indexes = records_of(CursorRange.model_validate(visit["cursor"]), records).tolist()
    proof = dataset_tree.proof(bytes(32), [bytes(RECORD_BYTES)] * records, indexes)
    chunks = [min(CHUNK_BYTES, LENGTH - at) for at in range(0, LENGTH, CHUNK_BYTES)]
    closing = Closing(
        visit=visit["id"], chunks=len(chunks), records=STEPS * BATCH, length=LENGTH, salt=bytes(32), commitment="00" * 32,
        dataset_salt=bytes(32), proof=bytes(len(proof)),
    )  # fmt: skip
    return [AROUND + length for length in (*chunks, len(encode(closing)))]


def apart(body: bytes) -> Iterator[bytes]:
    """A request's records, which lie there end to end."""
    while body:
        length = record_length(body[:HEADER_BYTES])
        yield body[:length]
        body = body[length:]


def said_in_clear(world: World, holder: str, records: int) -> bool:
    """Whether the platform can read the number in the holder's approval."""
    bodies = [e.call.body for e in world.wire.calls(f"holder-{holder}", "orchestrator", "/approvals")]
    told = [base64.b64decode(piece + b"==") for body in bodies for piece in body.split(b'"') if len(piece) > 200]
    return any(f'"records":{records},'.encode() in document for document in told)


@pytest.mark.slow
@attack("V17", scoped=SIZES, direct=SIZES, paper=SIZES)
@pytest.mark.parametrize("mode", TravelMode)
@pytest.mark.parametrize("records", [(RECORDS, RECORDS, RECORDS), (RECORDS, 24, 333)], ids=["alike", "different"])
async def test_every_size_is_known_before(
    mode: TravelMode, records: tuple[int, ...], new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets of one size: all visits have the same bytes and chunks. Of different ones: the same, but for the proofs' lengths."""
    monkeypatch.setattr(granting, "MAX_CHUNK_BYTES", CHUNK_BYTES)
    has = dict(zip(HOLDERS, records, strict=True))
    async with new_world() as world:
        for number, (name, count) in enumerate(has.items()):
            features, label = rows(count, number)
            np.savez(world.folder / f"holder-{name}" / "ehr.npz", features=features, label=label)
        session = await world.submit(travel_mode=mode)
        await world.completed(session)
        visits = await world.visits(session)
        seen: dict[int, list[int]] = {}
        for call in (e.call for e in world.wire.transcript if e.status == 200 and record(e.call)):
            for one in apart(call.body):
                seen.setdefault(parse_record(one)[0].epoch, []).append(len(one))
        assert all(said_in_clear(world, name, count) for name, count in has.items())
    assert len(seen) == len(visits) == len(HOLDERS) * ROUNDS
    assert all(seen[visit["epoch"]] == predicted(visit, has[visit["holder"]]) for visit in visits)
    assert len({tuple(lengths[:-1]) for lengths in seen.values()}) == 1
    assert (len({tuple(lengths) for lengths in seen.values()}) == 1) == (len(set(records)) == 1)
