"""A holder that sends a record outside the declared range: the GPU refuses it before training, and the session goes on without it."""

from __future__ import annotations

from typing import Any

import pytest

import data_holder.visits
from data_holder.sealing import RecordSealer
from shared.claims.visit import CursorRange
from tests.sessions.session_world import Work
from tests.world.world_material import BATCH, CLASSES, HOLDERS, RECORD_BYTES, ROUNDS, STEPS, Material

BAD_RECORD, BAD_LABEL = 13, 7331
LIAR = "harbour"


class _Liar:
    """A dataset that changes one label on its way to the GPU; everything else is the honest one."""

    def __init__(self, honest: Any) -> None:
        self._honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def read_slice(self, cursor: CursorRange, offset: int, out: Any) -> None:
        self._honest.read_slice(cursor, offset, out)
        label = BAD_RECORD * RECORD_BYTES + RECORD_BYTES - 8
        if cursor.start == 0 and offset <= label and label + 8 <= offset + len(out):
            out[label - offset : label - offset + 8] = BAD_LABEL.to_bytes(8, "little")


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> None:
    def sealer(grant: Any, key: Any, dataset: Any, *rest: Any) -> RecordSealer:
        return RecordSealer(grant, key, _Liar(dataset) if grant.holder == LIAR else dataset, *rest)

    monkeypatch.setattr(data_holder.visits, "RecordSealer", sealer)


@pytest.mark.usefixtures("liar")
async def test_a_record_out_of_range_is_refused_before_training(session_world: Any, material: Material) -> None:
    assert CLASSES <= BAD_LABEL
    async with session_world(Work(material.archive, material.weights)) as world:
        session = await world.submit()
        view = await world.completed(session, 60)
        visits = await world.visits(session)
        statements = await world.statements(session)
        losses = await world.owner.items(f"sessions/{session}/losses")
        mine = (await world.operator(LIAR).get(f"receipts?session={session}"))["items"]

    refused = [visit for visit in visits if visit["outcome"] != "closed"]
    assert [(v["holder"], v["round"], v["outcome"]) for v in refused] == [(LIAR, 1, "rejected")]
    reason = refused[0]["reason"]
    assert f"record {BAD_RECORD}" in reason
    assert "'label'" in reason
    assert "above the declared maximum" in reason
    assert str(BAD_LABEL) not in reason
    assert refused[0]["id"] not in {item["visit"] for item in losses}, "nothing was trained"

    # The GPU's own words: the model before is the model after, and the next visit goes on from exactly there.
    at = HOLDERS.index(LIAR)
    outcome, said = statements[at]
    assert (outcome, said["holder"]) == ("rejected", LIAR)
    assert said["model_before"] == said["model_after"] == statements[at + 1][1]["model_before"]
    assert said["model_before"] == statements[at - 1][1]["model_after"]
    assert statements[at + 1][1]["first_step"] == said["first_step"] == at * STEPS
    assert view["step"] == (len(HOLDERS) * ROUNDS - 1) * STEPS
    assert len(losses) == view["step"]
    assert "rejected" in [item["outcome"] for item in mine]
    assert all(said["model_before"] != said["model_after"] for outcome, said in statements if outcome == "closed")
    assert BAD_RECORD < STEPS * BATCH
