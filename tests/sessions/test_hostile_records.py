"""A holder that sends a record outside the declared range: the GPU refuses it before training, and the session goes on without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_holder.datasets.arrays import ArrayDataset
from tests.adversary.rows import attack
from tests.sessions.session_world import Work
from tests.world.world_material import BATCH, CLASSES, HOLDERS, ROUNDS, STEPS, Material

BAD_RECORD, BAD_LABEL = 13, 7331
LIAR = "harbour"


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder whose inspection finds honest records, and whose tree and visits carry one with another label."""
    honest = ArrayDataset._gather

    def gather(dataset: Any, indexes: Any, out: Any) -> None:
        honest(dataset, indexes, out)
        if any(f"holder-{LIAR}" in str(held.path) for held in dataset._held):
            out[indexes == BAD_RECORD, -8:] = np.frombuffer(BAD_LABEL.to_bytes(8, "little"), np.uint8)

    monkeypatch.setattr(ArrayDataset, "_gather", gather)


@attack("H21", scoped="stopped: range checks in the GPU before a step")
@pytest.mark.usefixtures("liar")
async def test_a_record_out_of_range_is_refused_before_training(session_world: Any, material: Material) -> None:
    assert CLASSES <= BAD_LABEL
    async with session_world(Work(material.archive, material.weights)) as world:
        session = await world.submit()
        view = await world.completed(session)
        visits = await world.visits(session)
        statements = await world.statements(session)
        losses = await world.owner.items(f"sessions/{session}/losses")
        mine = (await world.operator(LIAR).get(f"receipts?session={session}"))["items"]

    dropped = {v["holder"] for v in visits if v["reason"] == "the visit before it was not kept"}
    assert dropped <= {"north"}  # it had its key already, and got another
    refused = [visit for visit in visits if visit["outcome"] not in ("closed", "recalled")]
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


@pytest.mark.usefixtures("liar")
async def test_whose_record_spoils_a_tour_is_found_and_visited_no_more(session_world: Any, material: Material) -> None:
    """The tour is rolled back as one; the GPU names the visit, and its holder alone is blamed."""
    async with session_world(Work(material.archive, material.weights)) as world:
        session = await world.submit(collect="tour", quorum=2)
        view = await world.completed(session)
        visits = await world.visits(session)
        statements = await world.statements(session)
    rejected = [visit for visit in visits if visit["outcome"] == "rejected"]
    assert [(v["holder"], v["round"]) for v in rejected] == [(name, 1) for name in HOLDERS]
    assert all(f"record {BAD_RECORD}" in v["reason"] and str(BAD_LABEL) not in v["reason"] for v in rejected)
    assert {h["holder"]: (h["rejected"], h["quarantined"]) for h in view["holders"]} == {
        name: (1, True) if name == LIAR else (0, False) for name in HOLDERS
    }
    first, later = statements[: len(HOLDERS)], statements[len(HOLDERS) :]
    assert {said["model_after"] for _, said in first} == {said["model_before"] for _, said in first}
    honest = [name for name in HOLDERS if name != LIAR] * (ROUNDS - 1)
    assert [(outcome, said["holder"]) for outcome, said in later] == [("closed", name) for name in honest]
