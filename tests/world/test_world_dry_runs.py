"""What a dry run says an act would come to is what the act then comes to, over acts that are taken and acts that are refused."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from data_holder.api import requests as holder_room
from orchestrator.app import ROOMS
from shared.claims.archive import open_archive
from shared.claims.manifest import Manifest
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest
from shared.service.data_dir import held
from tests.workload.workload_helpers import repack
from tests.world.test_world_keys import client_of
from tests.world.world import NewWorld
from tests.world.world_hand import Hand, at_hand, operator_at_hand


async def same(hand: Hand, *words: str) -> bool:
    """Whether these words are taken: first asked by a dry run, then said. A refusal's code is the same."""
    dry, _, tried = await hand(*words, "--dry-run")
    real, _, said = await hand(*words, *(["--yes"] if words[1] in ("cancel", "veto", "replace-key") else []))
    assert (dry == 0) == (real == 0), (words, tried, said)
    assert dry == 0 or ((dry, "[would-be-refused]" in tried) == (2, True)), tried
    assert dry == 0 or re.findall(r"\[[a-z-]+\]", said)[-1] in tried, (tried, said)
    assert f"nothing was {'submitted' if words[1] == 'submit' else 'done'}" in tried
    return real == 0


@pytest.fixture
async def asked(
    new_world: NewWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[tuple[Hand, str]]:
    """A person at hand, as owner and as one holder's operator, and a session that waits for all holders."""
    async with new_world(approve="manual") as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        operator_at_hand(world, monkeypatch)
        session = await world.submit()
        await world.operator("city").request(session)
        yield hand, session


async def test_an_owners_words(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    assert [await same(hand, "session", word, session) for word in ("pause", "resume", "cancel")] == [
        False,
        False,
        True,
    ]
    assert [await same(hand, "session", word, session) for word in ("pause", "resume", "cancel")] == [
        False,
        False,
        True,
    ]


async def test_what_was_said_before_would_change_nothing(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    assert await same(hand, "session", "cancel", session)
    code, _, said = await hand("session", "cancel", session, "--dry-run")
    assert (code, f"would change nothing, for the same was said before: cancel {session}" in said) == (0, True), said


async def test_what_was_submitted_before_would_change_nothing(asked: tuple[Hand, str]) -> None:
    hand, _ = asked
    manifest = hand.write("m.json", hand.world.material.manifest(name="again").canonical())
    submit = ("session", "submit", manifest, "--idempotency-key", "k", "--format", "json")
    code, out, said = await hand(*submit, "--dry-run")
    assert (code, json.loads(out)["changes"], "would change nothing" in said) == (0, True, False), said
    assert (await hand(*submit))[0] == 0
    code, out, said = await hand(*submit, "--dry-run")
    assert (code, json.loads(out)["changes"]) == (0, False), said
    assert "would change nothing, for the same was said before: submit again; nothing was submitted" in said


async def test_another_owners_session(asked: tuple[Hand, str], monkeypatch: pytest.MonkeyPatch) -> None:
    hand, session = asked
    other = PartyKey.generate()
    other.save(hand.folder / "other.pem")
    (hand.world.folder / "owners" / "other.pub").write_bytes(other.public_pem)
    monkeypatch.setenv("GPUT_KEY", str(hand.folder / "other.pem"))
    assert not await same(hand, "session", "cancel", session)


async def test_a_holders_words(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    manifest = (await hand.world.operator("city").request(session))["manifest"]

    async def taken(verb: str, *more: str) -> bool:
        return await same(hand, "party", verb, session, "--manifest", manifest, *more)

    assert not await taken("veto")
    assert not await taken("approve", "--anew")
    assert await taken("approve")
    assert await taken("approve")  # the very same is answered as the first time
    assert await taken("approve", "--anew")
    assert not await taken("approve", "--reason", "and again")
    assert not await taken("refuse")
    assert await taken("veto")
    assert not await taken("approve")


async def test_of_an_ended_session(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    operator = hand.world.operator("city")
    manifest = (await operator.request(session))["manifest"]
    await hand.world.owner.act(session, "cancel")
    await operator.request(session, phase="CANCELLED")
    for verb in ("approve", "refuse", "veto"):
        assert not await same(hand, "party", verb, session, "--manifest", manifest)


async def test_of_an_ended_session_that_was_decided(
    new_world: NewWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with new_world(approve="manual") as world:
        hand, operator = at_hand(world, tmp_path, capsys, monkeypatch), world.operator("city")
        operator_at_hand(world, monkeypatch)
        for decision, again, withdrawn in (("refuse", "refuse", False), ("approve", "approve", True)):
            session = await world.submit(name=decision)
            manifest = (await operator.decide(session, decision))["manifest"]
            await world.owner.act(session, "cancel")
            assert (await operator.request(session, phase="CANCELLED"))["decision"] == decision
            taken = [
                await same(hand, "party", verb, session, "--manifest", manifest, *more)
                for verb, more in ((again, []), (again, ["--reason", "and again"]), ("veto", []))
            ]
            assert taken == [True, False, withdrawn], "what was said before is answered as the first time"


@pytest.fixture
def no_dry_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services of a release that had none; to be asked for before `asked`."""
    for room in (*ROOMS, holder_room):
        known = [route for route in room.router.routes if not getattr(route, "path", "").startswith("/v1/dry-run/")]
        monkeypatch.setattr(room.router, "routes", known)


async def test_a_service_of_before_is_named_and_does_nothing(no_dry_runs: None, asked: tuple[Hand, str]) -> None:
    hand, session = asked
    manifest = (await hand.world.operator("city").request(session))["manifest"]
    public = hand.write("new.pub", PartyKey.generate().public_pem)
    key = str(hand.world.folder / "holder-city" / "identity.pem")
    await hand.world["holder-north"].stop()
    north = str(hand.world.folder / "holder-north" / "identity.pem")
    agreed = hand.write("manifest.json", hand.world.material.manifest(name="another").canonical())
    before = await hand.world.owner.session(session)
    owners = (
        *(("session", verb, session) for verb in ("pause", "resume", "cancel")), ("party", "enrol", "new", public),
        ("session", "submit", agreed), ("party", "replace-key", "city", public), ("party", "rotate-key", "--key", north),
    )  # fmt: skip
    operators = [("party", verb, session, "--manifest", manifest) for verb in ("approve", "refuse", "veto")]
    for service, acts in (("orchestrator", owners), ("holder service", operators)):
        for words in acts:
            code, out, said = await hand(*words, "--dry-run")
            assert (code, out, "[no-dry-run]" in said, f"Have {service} updated" in said) == (2, "", True, True), said
    assert (await hand.world.owner.session(session))["version"] == before["version"]
    assert [view["id"] for view in await hand.world.owner.items("sessions")] == [session]
    assert len(await hand.world.owner.items("parties")) == len(hand.world.holders)
    assert (await hand.world.operator("city").request(session))["state"] == "waiting"
    assert PartyKey.load(Path(key)).fingerprint == hand.world.key("city").fingerprint


async def test_a_dataset_that_is_not_there_is_no_service_of_before(asked: tuple[Hand, str]) -> None:
    """It has the code of a path that is not there."""
    hand, session = asked
    manifest = (await hand.world.operator("city").request(session))["manifest"]
    assert not await same(hand, "party", "approve", session, "--manifest", manifest, "--dataset", "other")
    assert not await same(hand, "party", "approve", session, "--manifest", "00" * 32)


async def test_what_a_real_approval_would_read_is_said(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    manifest = (await hand.world.operator("city").request(session))["manifest"]
    words = ("party", "approve", session, "--manifest", manifest, "--dry-run", "--format", "json")
    code, out, said = await hand(*words)
    size = (hand.world.folder / "holder-city" / "ehr.npz").stat().st_size
    (left,) = json.loads(out)["unjudged"]
    assert (code, f"not judged: {left}" in said, left.startswith(f"dataset 'ehr' ({size} bytes)")) == (0, True, True)


async def test_what_is_sent_beforehand_is_not_signed(hand: Hand) -> None:
    """A signed manifest in the orchestrator's hand is a submission, and a signed rotation is one."""
    world = hand.world
    await world.enrol()
    await world["holder-north"].stop()
    manifest = hand.write("manifest.json", world.material.manifest().canonical())
    north = str(world.folder / "holder-north" / "identity.pem")
    for words in (("session", "submit", manifest), ("party", "rotate-key", "--key", north)):
        code, _, said = await hand(*words, "--dry-run")
        assert code == 0, said
    sent = world.wire.calls("owner", "orchestrator", "/v1/dry-run/")
    bodies = [json.loads(exchange.call.body) for exchange in sent]
    assert [sorted(body) for body in bodies] == [["document"], ["public_key"]]


async def test_keys(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    keys = [PartyKey.generate() for _ in range(3)]
    first, second, third = (hand.write(f"{n}.pub", key.public_pem) for n, key in enumerate(keys))

    async def taken(verb: str, name: str, key: str, *more: str) -> bool:
        return await same(hand, "party", verb, name, key, *more)

    assert [await taken("enrol", *words) for words in (("new", first), ("new", first))] == [True, True]
    assert [await taken("enrol", *words) for words in (("new", second), ("other", first))] == [False, False]
    assert not await taken("enrol", "new", first, "--role", "auditor")
    _, _, said = await hand("party", "enrol", "other", first, "--dry-run")
    assert (
        "would be refused: orchestrator: other or this key is enrolled already, differently (Use another name" in said
    ), "with what to do"
    assert not await taken("replace-key", "city", second)  # its session goes on
    await hand.world.owner.act(session, "cancel")
    assert await taken("replace-key", "new", second)
    assert [await taken("replace-key", "city", key) for key in (first, second, third)] == [False, False, True]
    assert not await taken("enrol", "other", first)  # it was new's once
    assert not await taken("enrol", "Bad Name", hand.write("bad.pub", PartyKey.generate().public_pem))
    await hand.world.owner.revoke_key("new", keys[1].fingerprint)
    assert not await taken("enrol", "new", second)


async def test_a_holders_own_key(asked: tuple[Hand, str]) -> None:
    hand, session = asked
    folder = hand.world.folder / "holder-city"
    rotate = ("party", "rotate-key", "--key", str(folder / "identity.pem"))
    await hand.world["holder-city"].stop()
    assert not await same(hand, *rotate)  # its session goes on
    await hand.world.owner.act(session, "cancel")
    with held(folder):
        assert not await same(hand, *rotate)  # its service runs
    assert await same(hand, *rotate)
    # Interrupted before the new one's file was in its place: the same command finishes it, and the dry run says so.
    old, draft = PartyKey.load(folder / "identity.pem"), PartyKey.generate()
    draft.save(folder / "identity.next.pem")
    async with client_of(hand.world, old) as city:
        await city.rotate_key(old, draft)
    assert await same(hand, *rotate)
    assert PartyKey.load(folder / "identity.pem").fingerprint == draft.fingerprint


async def test_a_submission(hand: Hand) -> None:
    """One world of three holders and an auditor: who is in the roster, and under which Idempotency-Key."""
    world, made = hand.world, hand.world.material.manifest()
    await world.enrol()
    auditor = PartyKey.generate()
    await world.owner.enrol("watcher", auditor.public, "auditor")

    async def taken(manifest: Manifest) -> bool:
        return await same(hand, "session", "submit", hand.write("manifest.json", manifest.canonical()))

    watched = made.roster[0].model_copy(update={"holder": "watcher", "key": auditor.fingerprint})
    assert not await taken(made.model_copy(update={"roster": (watched, *made.roster[1:])}))
    assert await taken(made)
    await world.owner.revoke_key("city", world.key("city").fingerprint)
    assert not await taken(made)


async def test_a_malformed_key_is_refused_before_anything_is_uploaded(hand: Hand) -> None:
    manifest = hand.write("manifest.json", hand.world.material.manifest().canonical())
    program = hand.write("program.gput", hand.world.material.archive)
    words = ("session", "submit", manifest, "--upload", program, "--idempotency-key", "two words")
    for more in (["--dry-run"], []):
        code, _, said = await hand(*words, *more)
        assert (code, "[idempotency-key-malformed]" in said) == (2, True), said
    async with client_of(hand.world, hand.world.key("owner")) as client:
        with pytest.raises(BadRequest, match="Idempotency-Key"):
            await client.sessions.submit(Path(manifest), upload_files=[program], idempotency_key="two words")
    assert await hand.world.owner.items("programs") == []


async def test_a_program_that_may_not_be_new_is_told_before_it_is_uploaded(asked: tuple[Hand, str]) -> None:
    """Its archive opens, and only who has it can say more: the orchestrator has not. Once it is stored, nobody asks that of it again."""

    def beyond(declared: dict[str, Any], *_: dict[str, Any]) -> None:
        declared["description"] = "of a release \u202e before the rule"

    hand, _ = asked
    archive = repack(hand.world.material.archive, beyond)
    manifest = hand.world.material.manifest(name="another", program=open_archive(archive).digest.hex())
    words = ("session", "submit", hand.write("m.json", manifest.canonical()), "--upload", hand.write("p.gput", archive))
    for more in (["--dry-run"], []):
        code, _, said = await hand(*words, *more)
        assert (code, "[unseen-text]" in said) == (2, True), said
    assert [one["digest"] for one in await hand.world.owner.items("programs")] == [hand.world.material.program]
