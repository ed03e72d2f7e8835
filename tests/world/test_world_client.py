"""The typed client against a world: attestation before the first word, sessions from submission to verified receipts, in both manners."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx2
import pytest

from gput import UNATTESTED, AsyncClient, Client, Trust
from gput.model_file import model_digest
from gput.models import Session
from gput.trust import KNOWN
from gput.trust import Trust as Believed
from shared.canonical import sha256
from shared.claims.manifest import EvidencePolicy
from shared.crypto.signing import PartyKey, load_public
from shared.errors import BadRequest, ConfigurationError, NotFound, TimedOut, VerificationFailed
from shared.service.http import Peers
from tests.world.world import PATIENCE_S, World, url
from tests.world.world_hand import across
from tests.world.world_model import a_broken_stream_is_taken_up, only_the_model_of_the_receipts
from tests.world.world_wire import Call, Deliver, Link

ORCH = "orchestrator"


def trusting(world: World, **changes: Any) -> Trust:
    return Believed(world.folder / "trust", **{"allow_emulated": True, **changes})


def client_of(world: World, trust: Any) -> AsyncClient:
    peers = Peers(transports={url(ORCH): Link(world.wire, "owner", ORCH)})
    return AsyncClient(url(ORCH), world.key("owner"), trust=trust, peers=peers)


def asked(world: World) -> list[str]:
    return [exchange.call.path for exchange in world.wire.calls("owner", ORCH, "/v1/")]


async def test_the_orchestrator_is_attested_before_the_first_word(world: World) -> None:
    async with client_of(world, trusting(world)) as client:
        before = len(asked(world))
        me, other = await asyncio.gather(client.parties.me(), client.gpus.list())
        assert asked(world)[before] == "/v1/attestation"
        assert asked(world)[before:].count("/v1/attestation") == 1, "two first calls attest once"
        assert (me.name, me.role, other[0].id) == ("owner", "owner", "gpu-0")
        found = await client.attest()
        identity = load_public((world.folder / "orchestrator" / "orchestrator.pub").read_bytes())
        assert (found.identity_key, found.cvm.root_set) == (identity, "EMULATED")


@pytest.mark.parametrize(("changes", "code"), [
    ({"allow_emulated": False}, "quote-root-set"),
    ({"policy": EvidencePolicy(roots=("EMULATED",), measurements=("00" * 48,))}, "cvm-measurement"),
])  # fmt: skip
async def test_an_orchestrator_that_is_not_believed_is_told_nothing(
    world: World, changes: dict[str, Any], code: str
) -> None:
    async with client_of(world, trusting(world, **changes)) as client:
        before = len(asked(world))
        for _ in range(2):  # and not the second time either
            with pytest.raises(VerificationFailed) as found:
                await client.sessions.submit(world.material.manifest())
            assert found.value.code == code
            assert ("GPUT_ALLOW_EMULATED" in (found.value.remedy or "")) == (code == "quote-root-set")
        assert set(asked(world)[before:]) == {"/v1/attestation"}


STRANGER = PartyKey.generate().public_pem
"""Of somebody whose orchestrator runs the same code."""


@pytest.mark.parametrize(("pinned", "code"), [
    ("{own}", None), ("{other}{own}", None), ("{other}", "another-orchestrator"), ("", "trust-file"), ("{cut}", "trust-file"),
])  # fmt: skip
async def test_the_orchestrator_that_the_folder_names_is_the_only_one(
    world: World, tmp_path: Path, pinned: str, code: str | None
) -> None:
    own = (world.folder / "orchestrator" / "orchestrator.pub").read_text()
    folder = copytree(world.folder / "trust", tmp_path / "trust")
    (folder / KNOWN).write_text(pinned.format(own=own, other=STRANGER.decode(), cut=own.replace("MCow", "MCo")))
    async with client_of(world, replace(trusting(world), folder=folder)) as client:
        before = len(asked(world))
        if code is None:
            assert (await client.parties.me()).name == "owner"
            return
        with pytest.raises((VerificationFailed, ConfigurationError)) as found:
            await client.parties.me()
        assert found.value.code == code
        assert asked(world)[before:] == ["/v1/attestation"], "nothing else was said to it"


async def test_a_proof_that_answers_another_is_refused(world: World) -> None:
    kept: list[httpx2.Response] = []

    async def again(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.path != "/v1/attestation":
            return await deliver(call)
        kept.append(await deliver(call))
        return kept[0]

    world.wire.hooks.append(again)
    async with client_of(world, trusting(world)) as client:
        await client.attest()
        with pytest.raises(VerificationFailed) as found:
            await client.attest()
        assert found.value.code == "statement-nonce"


async def test_a_folder_that_is_none_is_said(world: World) -> None:
    async with client_of(world, replace(trusting(world), folder=world.folder / "absent")) as client:
        with pytest.raises(ConfigurationError) as found:
            await client.parties.me()
        assert found.value.code == "no-trust"


async def test_a_session_from_its_submission_to_verified_receipts(world: World, tmp_path: Path) -> None:
    async with client_of(world, trusting(world)) as client:
        for name in world.holders:
            assert (await client.parties.enrol(name, world.key(name).public)).name == name
        assert [party.name for party in await client.parties.list()] == sorted(world.holders)
        files = {"m": world.material.manifest().canonical(), "p": world.material.archive, "w": world.material.weights}
        for file, content in {**files, "v": world.material.validation}.items():
            (tmp_path / file).write_bytes(content)
        session = await client.sessions.submit(tmp_path / "m", upload_files=[tmp_path / f for f in "pwv"])
        assert isinstance(session, Session)
        assert [stored.digest for stored in await client.programs.list()] == [world.material.program]
        prefix = session.id[:6]
        with pytest.raises(NotFound) as nobody:
            await client.sessions.show("s_zzz")
        assert nobody.value.code == "unknown-session"
        with pytest.raises(TimedOut):
            await client.sessions.wait(prefix, timeout_s=0.0)
        events = [event async for event in client.sessions.events(prefix)]
        done = await client.sessions.wait(prefix)
        assert (done.phase.value, done.ended, done.visits_closed) == ("COMPLETED", True, done.visits_total)
        assert (events[0].fact, events[-1].fact) == ("submitted", "completed")
        rest = [event async for event in client.sessions.events(prefix, after=events[3].id)]
        assert [e.id for e in rest if e.kind != "loss"] == [e.id for e in events[4:] if e.kind != "loss"]
        async with asyncio.timeout(PATIENCE_S):
            assert [event async for event in client.sessions.events(prefix, after=events[-1].id)] == [], "it had ended"
        assert {visit.holder for visit in await client.sessions.visits(prefix)} == set(world.holders)
        assert [item.id for item in await client.sessions.list()] == [session.id]
        model = await client.sessions.model(prefix, tmp_path / "model.safetensors")
        assert done.model is not None
        assert sha256(model.read_bytes()).hex() == done.model["sha256"]
        held = await client.receipts.verify(prefix)
        assert (held.session, held.receipts, held.backends) == (session.id, done.visits_total, ["EMULATED"])
        folder = await client.receipts.save(prefix, tmp_path / "receipts")
        assert held.models == [done.model["digest"]] == [model_digest(model)]
        await only_the_model_of_the_receipts(world, client, held, tmp_path)
    await a_broken_stream_is_taken_up(world, session.id, model)
    async with client_of(world, trusting(world, allow_emulated=False)) as strict:
        with pytest.raises(VerificationFailed) as refused:
            await strict.receipts.verify_folder(folder)
        assert refused.value.code == "emulated-root-refused"
    async with client_of(world, UNATTESTED) as blind:
        assert (await blind.receipts.verify_folder(folder)).root == held.root
        with pytest.raises(BadRequest):
            await blind.receipts.verify(prefix)


async def test_a_model_that_changed_on_its_way_is_not_kept(world: World, tmp_path: Path) -> None:
    session = await world.submit()
    await world.completed(session)

    async def spoil(call: Call, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(call)
        if not call.path.endswith("/model"):
            return answer
        return httpx2.Response(200, headers={"etag": answer.headers["etag"]}, content=answer.content[:-1] + b"?")

    world.wire.hooks.append(spoil)
    async with client_of(world, UNATTESTED) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.sessions.model(session, tmp_path / "m")
    assert found.value.code == "model-altered"
    assert not [name for name in os.listdir(tmp_path) if name.startswith("m")]


async def test_the_synchronous_client_does_the_same(world: World) -> None:
    await world.enrol()
    peers = across(world)

    def use() -> tuple[str, list[str | None], int]:
        with Client(url(ORCH), world.key("owner"), trust=trusting(world), peers=peers) as client:
            session = client.sessions.submit(world.material.manifest(rounds=1))
            facts = [event.fact for event in client.sessions.events(session.id) if event.kind == "session"]
            client.sessions.wait(session.id)
            return client.sessions.show(session.id).phase.value, facts, client.receipts.verify(session.id).receipts

    phase, facts, receipts = await asyncio.to_thread(use)
    assert (phase, facts[-1], receipts) == ("COMPLETED", "completed", len(world.holders))
