"""Texts of holders and programs that other people read: what cannot be seen in them is refused where it is handed in, and stays nowhere."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from shared.claims.archive import open_archive
from shared.errors import InvalidProgram
from tests.orchestrator.orchestrator_samples import approval, key, manifest
from tests.orchestrator.orchestrator_world import ARCHIVE, PROGRAM, World, archive, prepared, put, submit
from tests.workload.workload_helpers import repack

UNSEEN = {"turned round": "\u202e", "a terminal steered": "\x9b2J", "of no width": "\u200b", "written over": "\r"}
PLAIN = "two lines,\n\tand a tab"


@pytest.mark.parametrize("case", UNSEEN)
@pytest.mark.parametrize("decision", ["approve", "refuse"])
async def test_a_decisions_reason(world: World, decision: str, case: str) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    path, agreed = f"/v1/sessions/{session}/approvals", manifest(program=PROGRAM)
    holder = world.client(key(1))
    said = approval(0, agreed, decision, session, reason=f"no {UNSEEN[case]}consent").model_dump()
    refused = await holder.post(path, json=said)
    assert (refused.status_code, refused.json()["code"]) == (400, "unseen-text")
    assert f"U+{ord(UNSEEN[case][0]):04X}" in refused.json()["detail"]
    assert (await owner.get(path)).json()["items"] == []
    assert "h0 (approval)" in (await owner.get(f"/v1/sessions/{session}")).json()["waiting_for"]
    plain = approval(0, agreed, decision, session, reason=PLAIN).model_dump()
    assert (await holder.post(path, json=plain)).status_code == 201
    assert [one["reason"] for one in (await owner.get(path)).json()["items"]] == [PLAIN]


async def test_a_decision_from_before_the_rule_stands(world: World) -> None:
    """A holder that sends it again, unsure whether it arrived, hears that it did."""
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    path, holder = f"/v1/sessions/{session}/approvals", world.client(key(1))
    said = approval(0, manifest(program=PROGRAM), "refuse", session, reason="no \u202econsent").model_dump()
    with patch("orchestrator.sessions.decisions.unseen", lambda text, but: ""):
        assert (await holder.post(path, json=said)).status_code == 201
    assert (await holder.post(path, json=said)).status_code == 200


@pytest.mark.parametrize("case", UNSEEN)
@pytest.mark.parametrize("field", ["description", "loss_unit"])
async def test_a_programs_texts(world: World, field: str, case: str) -> None:
    owner = await prepared(world)
    text = f"na{UNSEEN[case]}ts"
    with pytest.raises(InvalidProgram, match="cannot be seen"):
        archive(**{field: text})  # nor is it built here
    data = repack(ARCHIVE, lambda declared, *_: declared.update({field: text}))
    path = f"/v1/programs/{open_archive(data).digest.hex()}"
    refused = await put(owner, f"{path}/archive", data)
    assert (refused.status_code, refused.json()["code"]) == (422, "unseen-text")
    assert (await owner.get(path)).status_code == 404
    plain = archive(**{field: PLAIN})
    path = f"/v1/programs/{open_archive(plain).digest.hex()}"
    assert (await put(owner, f"{path}/archive", plain)).status_code == 201
    assert (await owner.get(path)).json()[field] == PLAIN
