"""Nothing runs before everybody agreed; a veto, a refusal, an absence and a lease each have the effect that the manifest says."""

from __future__ import annotations

import asyncio
import base64

import httpx2
import pytest

from shared.canonical import json_bytes
from shared.errors import GputError
from shared.wire.visit import Approval, Signed
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap
from tests.world.world_material import HOLDERS
from tests.world.world_wire import Call, Deliver, cut

GPU_ACTS = ("/spdm", "/commands", "/copy")


async def _decide_all(world: World, session: str, *names: str) -> None:
    for name in names:
        await world.operator(name).decide(session, "approve", dataset="ehr")


async def test_nothing_runs_before_the_last_approval(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        await _decide_all(world, session, "city", "harbour")
        view = await world.until(session, lambda v: len(v["waiting_for"]) == 1)
        assert view["phase"] == "AWAITING_APPROVAL"
        assert view["waiting_for"] == ["north (approval)"]
        await asyncio.sleep(0.3)
        assert not [e for e in world.wire.transcript if e.call.path.endswith(GPU_ACTS)]
        await _decide_all(world, session, "north")
        await world.completed(session)
        approvals = await world.owner.items(f"sessions/{session}/approvals")
        assert sorted(a["holder"] for a in approvals) == list(HOLDERS)


async def test_the_operator_sees_what_it_approves(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        operator = world.operator("city")
        shown = await operator.request(session)
        while shown["program"] is None:  # it is fetched after the request has arrived
            shown = await operator.request(session)
        assert shown["document"]["rounds"] == 2
        assert shown["document"]["privacy_floor"] == 8
        assert {entry["holder"] for entry in shown["document"]["roster"]} == set(HOLDERS)
        assert shown["document"]["output"]["release_to"] == ["owner"]
        assert shown["program"]["digest"] == world.material.program
        assert shown["program"]["operators"]
        assert shown["owner"] == world.material.keys["owner"].fingerprint


async def test_another_manifest_than_the_shown_one_cannot_be_approved(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        operator = world.operator("city")
        await operator.request(session)
        answer = await operator.post(
            f"requests/{session}/approve", {"manifest": "ab" * 32, "dataset": "ehr"}, expect=409
        )
        assert answer["code"] == "manifest-changed"


async def test_an_approval_of_another_manifest_is_refused_by_the_orchestrator(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        key = world.key("city")
        document = json_bytes(
            Approval(
                session=session,
                holder="city",
                manifest="ab" * 32,
                decision="approve",
                at=1,
                records=40,
                record_bytes=72,
                dataset_root="d0" * 32,
            ).model_dump(mode="json")
        )
        signature = base64.b64encode(key.sign("gput/approval", document)).decode()
        signed = Signed(document=base64.b64encode(document).decode(), signature=signature)
        from gput.client import UNATTESTED, AsyncClient

        async with AsyncClient("http://orchestrator.test", key, trust=UNATTESTED, peers=_peers(world)) as city:
            with pytest.raises(GputError, match="manifest"):
                await city._peer.post_json(f"/v1/sessions/{session}/approvals", signed.model_dump(mode="json"))
        assert (await world.owner.session(session))["phase"] == "AWAITING_APPROVAL"


def _peers(world: World) -> object:
    from shared.service.http import Peers
    from tests.world.world_wire import Link

    return Peers(transports={"http://orchestrator.test": Link(world.wire, "somebody", "orchestrator")})


async def test_a_refusal_ends_the_session_without_a_quorum(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        await world.operator("harbour").decide(session, "refuse", reason="not our kind of study")
        view = await world.until(session, lambda v: any(h["decision"] == "refuse" for h in v["holders"]), seconds=10)
        await _decide_all(world, session, "city", "north")
        await asyncio.sleep(0.3)
        view = await world.owner.session(session)
        assert view["phase"] in ("AWAITING_APPROVAL", "FAILED")
        assert not [e for e in world.wire.transcript if e.call.path.endswith(GPU_ACTS)]


async def test_a_refusal_is_survived_with_a_quorum(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit(quorum=2)
        await world.operator("harbour").decide(session, "refuse")
        await _decide_all(world, session, "city", "north")
        await world.completed(session)
        assert {v["holder"] for v in await world.visits(session)} == {"city", "north"}
        assert not world.wire.calls("holder-harbour", "agent")


async def test_a_veto_stops_that_holder_only(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(quorum=2, rounds=3)
        await world.until(session, lambda v: v["visits_closed"] >= 2)
        await world.operator("harbour").decide(session, "veto", reason="enough")
        mark = len(world.wire.calls("holder-harbour", "agent", "/copy"))
        await world.completed(session)
        assert len(world.wire.calls("holder-harbour", "agent", "/copy")) <= mark + 2, "at most the visit under way"
        closed = [v["holder"] for v in await world.visits(session) if v["outcome"] == "closed"]
        assert closed.count("city") == closed.count("north") == 3
        assert closed.count("harbour") < 3


async def test_a_veto_without_quorum_fails_the_session_and_names_the_reason(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda v: v["visits_closed"] >= 1)
        await world.operator("north").decide(session, "veto")
        view = await world.finish(session)
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "quorum-lost")


async def test_a_veto_while_the_gpu_is_there_recalls_the_visit(new_world: NewWorld) -> None:
    async with new_world() as world:

        async def veto() -> None:
            await world.operator("city").decide(session, "veto")

        async def hold(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.link == ("holder-city", "agent"):
                await asyncio.sleep(0.4)  # the GPU is at city's port, and its data is on the way
            return await deliver(call)

        world.wire.hooks.append(hold)
        trap = Trap(world, Point("platform", "agent", "/mux", "after", 2), veto)
        session = await world.submit(quorum=2)
        await trap.done()
        await world.completed(session)
        visits = [v for v in await world.visits(session) if v["holder"] == "city"]
        assert {v["outcome"] for v in visits} == {"recalled"}
        assert any("recalled" in event for event in await world.events(session))


async def test_an_absent_holder_is_waited_for_by_name(new_world: NewWorld, recorded: object) -> None:
    async with new_world() as world:

        async def away(call: Call, deliver: Deliver) -> httpx2.Response:
            return cut(call) if call.client == "holder-harbour" and offline else await deliver(call)

        offline = False
        world.wire.hooks.append(away)
        session = await world.submit()
        await world.until(session, lambda v: v["visits_closed"] >= 1)
        offline = True
        await world["holder-harbour"].kill()
        view = await world.until(session, lambda v: any("harbour" in w for w in v["waiting_for"]))
        assert view["phase"] == "RUNNING"
        offline = False
        await world["holder-harbour"].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]  # type: ignore[attr-defined]  # a Recording


@attack("H12", scoped="stopped: the lease ends, the visit is recalled, the others go on")
async def test_a_lease_that_expires_is_recalled_and_repeated(new_world: NewWorld, recorded: object) -> None:
    async with new_world() as world:
        late = True

        async def silent(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal late
            if late and call.link == ("holder-city", "agent"):
                late = False
                await asyncio.sleep(30.0)  # longer than the lease; the holder gives up at its end
            return await deliver(call)

        world.wire.hooks.append(silent)
        session = await world.submit(lease_s=1)
        view = await world.completed(session)
        visits = await world.visits(session)
        first = [v for v in visits if v["index"] == 1]
        assert [v["outcome"] for v in first] == ["recalled"] * (len(first) - 1) + ["closed"]
        assert len(first) >= 2
        assert view["model"]["digest"] == recorded.view["model"]["digest"]  # type: ignore[attr-defined]  # a Recording


async def test_a_cancelled_session_ends_and_gives_the_gpu_back(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(rounds=50)
        await world.until(session, lambda v: v["visits_closed"] >= 1)
        await world.owner.act(session, "cancel")
        assert (await world.finish(session))["phase"] == "CANCELLED"
        again = await world.owner.submit(world.material.manifest(name="the next one"))
        await world.completed(again["id"])
