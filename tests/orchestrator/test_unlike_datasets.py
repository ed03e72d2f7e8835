"""A session whose holders' datasets contradict each other is held before it begins; a lying or malformed profile changes nothing else."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.sessions.approvals import agreed, judge
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.views import summary
from shared.attestation.approvals import verify_approval
from shared.canonical import json_bytes, json_value
from shared.claims.manifest import Manifest
from shared.claims.profile import DatasetProfile, FieldProfile, Scale
from shared.errors import BadRequest, Conflict, VerificationFailed
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.wire.visit import Signed
from tests.orchestrator.orchestrator_samples import SESSION, Room, approval, key, manifest, signed
from tests.orchestrator.orchestrator_world import OWNER, PROGRAM, World, opened, prepared, submit

MG, G = (
    DatasetProfile(fields=(FieldProfile(name="x", dtype="float32", shape=(2,), units=(unit,)),)) for unit in ("mg", "g")
)


def waiting(of: Manifest) -> SessionState:
    state = SessionState(SESSION, of, "alice", "gpu-0")
    submitted = new_fact(SessionFact.SUBMITTED, Role.OWNER, owner_key="0f" * 32, start_model=None, inherited=None)
    state.apply(submitted.kind, submitted.body, 1.0)
    return state


def say(state: SessionState, holder: int, decision: str = "approve", **changes: Any) -> None:
    """As `decide` does it: judged, written down, and agreed if that is enough now."""
    said = verify_approval(
        approval(holder, state.manifest, decision, **changes),
        key(holder + 1).public,
        session=SESSION,
        manifest=state.manifest,
    )
    fact = new_fact(judge(state, said.approval), Role.HOLDER, **said.body())
    state.apply(fact.kind, fact.body, 1.0)
    if state.phase is SessionPhase.AWAITING_APPROVAL and agreed(state):
        done = new_fact(SessionFact.AGREED)
        state.apply(done.kind, done.body, 1.0)


def test_a_mismatch_holds_the_session_and_names_who_and_what() -> None:
    state = waiting(manifest(2))
    say(state, 0, profile=MG)
    say(state, 1, profile=G)
    view = summary(state)
    assert (view["phase"], view["agreement"]["held"]) == ("AWAITING_APPROVAL", True)
    assert view["waiting_for"] == ["h0, h1 (dataset-units-differ)"]
    [found] = view["agreement"]["findings"]
    assert found["detail"] == "field x: h0: mg; h1: g"
    say(state, 1, profile=MG)
    assert (state.phase, summary(state)["agreement"]) == (
        SessionPhase.READY,
        {"compared": ["h0", "h1"], "held": False, "findings": []},
    )


def test_whoever_cannot_correct_itself_leaves_and_the_quorum_goes_on() -> None:
    state = waiting(manifest(3, quorum=2))
    for holder, profile in enumerate((MG, G, MG)):
        say(state, holder, profile=profile)
    assert state.phase is SessionPhase.AWAITING_APPROVAL
    say(state, 1, "veto")
    assert (state.phase, state.active) == (SessionPhase.READY, ("h0", "h2"))


def test_who_comes_late_with_another_unit_stays_out_and_nothing_changed() -> None:
    state = waiting(manifest(3, quorum=2))
    say(state, 0, profile=MG)
    say(state, 2, profile=MG)
    before = (state.seq, dict(state.decisions))
    with pytest.raises(Conflict) as refused:
        say(state, 1, profile=G)
    assert refused.value.code == "dataset-mismatch"
    assert "h1: g" in refused.value.detail
    assert (state.seq, dict(state.decisions), state.phase) == (*before, SessionPhase.READY)
    say(state, 1, profile=MG)
    assert state.active == ("h0", "h1", "h2")


def test_holders_of_before_there_were_profiles_are_agreed_with_as_ever() -> None:
    state = waiting(manifest(2))
    say(state, 0)
    say(state, 1, profile=G)
    assert state.phase is SessionPhase.READY
    assert [finding.code for finding in state.unlike] == ["dataset-not-profiled"]


def test_warnings_hold_nothing() -> None:
    state = waiting(manifest(2))
    for holder, decade in ((0, -2), (1, 4)):
        scales = (Scale(size=decade, spread=0), None)
        field = FieldProfile(name="x", dtype="float32", shape=(2,), scales=scales)
        say(state, holder, records=400, profile=DatasetProfile(fields=(field,)))
    assert state.phase is SessionPhase.READY
    assert [finding.code for finding in state.unlike] == ["dataset-size-differs"]


def test_a_quarantine_or_a_new_word_is_compared_anew() -> None:
    state = waiting(manifest(3))
    say(state, 0, profile=MG)
    assert state.unlike == []
    say(state, 1, profile=G)
    assert len(state.unlike) == 1
    say(state, 1, "veto")
    assert state.unlike == []


def lies(of: Manifest, session: str = SESSION) -> list[tuple[str, Signed]]:
    """Approvals that no honest service signs, each under its holder's own key."""
    honest = json_value(b64decode(approval(0, of, session=session, profile=MG).document))

    def with_field(**changes: Any) -> dict[str, Any]:
        return {**honest, "profile": {"fields": [{**honest["profile"]["fields"][0], **changes}]}}

    scale = {"size": 0, "spread": 0}
    wrong = [
        ("malformed-profile", with_field(scales=[scale, scale])),  # of 40 records nothing may be said
        ("malformed-profile", with_field(shape=[3])),
        (
            "malformed-profile",
            {**honest, "decision": "veto", "records": None, "record_bytes": None, "dataset_root": None},
        ),
        ("malformed-approval", with_field(units=["mg", "g", "kg"])),
        ("malformed-approval", with_field(units=["m\ng"])),
        ("malformed-approval", with_field(classes=["cat"])),
        ("malformed-approval", with_field(scales=[{"size": 99, "spread": 0}, scale])),
        ("malformed-approval", with_field(mean=5.1)),
        ("malformed-approval", {**honest, "profile": {"fields": honest["profile"]["fields"] * 2}}),
        ("malformed-approval", {**honest, "profile": {"fields": []}}),
        ("not-canonical", {**honest, "profile": None}),
    ]
    return [(code, signed(key(1), "gput/approval", json_bytes(document))) for code, document in wrong]


def test_a_lie_is_refused_by_name_before_anything_is_written() -> None:
    of = manifest(2)
    for code, said in lies(of):
        with pytest.raises(BadRequest) as refused:
            verify_approval(said, key(1).public, session=SESSION, manifest=of)
        assert refused.value.code == code, said


async def approve(world: World, holder: int, session: str, of: Manifest, **changes: Any) -> httpx2.Response:
    said = approval(holder, of, session=session, **changes).model_dump()
    return await world.client(key(holder + 1)).post(f"/v1/sessions/{session}/approvals", json=said)


async def test_the_service_holds_it_over_a_restart_until_it_is_corrected(installation: Path, tmp_path: Path) -> None:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    of = manifest(program=PROGRAM)
    async with opened(tmp_path) as world:
        owner = await prepared(world)
        session = (await submit(owner)).json()["id"]
        for holder, profile in enumerate((MG, G, MG)):
            assert (await approve(world, holder, session, of, profile=profile)).status_code == 201
        [listed] = (await owner.get("/v1/sessions")).json()["items"]
        assert listed["agreement"]["held"] is True
    async with opened(tmp_path) as world:
        owner = world.client(OWNER)
        view = (await owner.get(f"/v1/sessions/{session}")).json()
        assert (view["phase"], view["waiting_for"]) == ("AWAITING_APPROVAL", ["h0, h2, h1 (dataset-units-differ)"])
        before = view["version"]
        for code, said in lies(of, session):
            refused = await world.client(key(1)).post(f"/v1/sessions/{session}/approvals", json=said.model_dump())
            assert (refused.status_code, refused.json()["code"]) == (400, code)
        assert (await owner.get(f"/v1/sessions/{session}")).json()["version"] == before
        assert (await approve(world, 1, session, of, profile=MG)).status_code == 201
        assert (await owner.get(f"/v1/sessions/{session}")).json()["phase"] != "AWAITING_APPROVAL"
        stated = (await owner.get(f"/v1/sessions/{session}/approvals")).json()["items"]
        assert [one["profile"]["fields"][0]["units"] for one in stated] == [["mg"], ["g"], ["mg"], ["mg"]]


async def test_a_profile_changed_in_the_journal_is_found(tmp_path: Path) -> None:
    """What was signed is compared with what stands beside it whenever a session is read."""
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue(), holders=1)
    said = verify_approval(
        approval(0, book.state.manifest, profile=MG), key(1).public, session=SESSION, manifest=book.state.manifest
    )
    body = {**said.body(), "profile": G.model_dump(mode="json")}
    book.stage(new_fact(SessionFact.APPROVED, Role.HOLDER, **body))
    await book.commit()
    with pytest.raises(VerificationFailed, match="not what its holder signed"):
        await (await room.catalogue()).open(SESSION)
    await room.store.close()
