"""What a dry run answers is what the act then is answered, act by act and reason by reason; and nothing that it sends could be the act."""

from __future__ import annotations

import httpx2
import pytest

from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.owners_words import WORDS
from shared.attestation.key_rotations import sign_rotation
from shared.crypto.signing import PartyKey
from shared.names import Role, SessionPhase
from shared.protocol.session import SESSION, SessionFact
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from tests.orchestrator.dry_run_world import Act, both, kept
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import BASE, BOB, OWNER, World, prepared, submit

NEW = key(41)
SMALL = "01" + "00" * 31
"""The neutral key, under which anything verifies."""


@pytest.fixture
def world(two_owners: World) -> World:
    return two_owners


# ------------------------------------------------------------------ an owner's words


def word(session: str, verb: str, who: PartyKey = OWNER) -> Act:
    return Act(f"/sessions/{session}/{verb}", who=who)


PHASES = tuple(phase for phase in SessionPhase if phase in SESSION.phases() and phase is not SessionPhase.DRAFT)
"""In which a session can be found: it is submitted with its first fact."""
TAKEN = {
    ("pause", SessionPhase.RUNNING): "changes", ("pause", SessionPhase.PAUSED): "said before",
    ("resume", SessionPhase.PAUSED): "changes", ("resume", SessionPhase.RUNNING): "said before",
    ("cancel", SessionPhase.CANCELLED): "said before",
} | {("cancel", phase): "changes" for phase in PHASES if not SESSION.final(phase)}  # fmt: skip
CODES = {"pause": "not-running", "resume": "not-paused", "cancel": "session-ended"}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("verb", WORDS)
async def test_an_owners_word_in_every_phase(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, phase: SessionPhase
) -> None:
    async def nothing_runs(_: Supervisor) -> None:
        """Without a GPU; what a runner does with the word is tested elsewhere."""

    monkeypatch.setattr(Supervisor, "look", nothing_runs)
    session = (await submit(await prepared(world))).json()["id"]
    book = await world.app.state.orchestrator.catalogue.open(session)
    book.state.phase = book.durable.phase = phase
    expected = (200, TAKEN[verb, phase]) if (verb, phase) in TAKEN else (409, CODES[verb])
    assert await both(world, word(session, verb)) == expected
    if expected[1] == "changes":
        assert await both(world, word(session, verb)) == (200, "said before")


async def test_a_pause_that_has_not_begun_is_taken_back(world: World) -> None:
    session = (await submit(await prepared(world))).json()["id"]
    book = await world.app.state.orchestrator.catalogue.open(session)
    book.state.phase = book.durable.phase = SessionPhase.RUNNING
    said = [(await both(world, word(session, verb)))[1] for verb in ("pause", "pause", "resume", "resume", "pause")]
    assert said == ["changes", "said before", "changes", "said before", "changes"]


async def test_what_is_on_its_way_to_the_journal_is_not_hurried_there(world: World) -> None:
    """A refusal of the act waits for it; who only asks has it judged as it seems to be."""
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    book = await world.app.state.orchestrator.catalogue.open(session)
    book.state.phase = SessionPhase.RUNNING
    book.stage(new_fact(SessionFact.PAUSE_ASKED, Role.OWNER, party="alice"))
    path = f"/v1/dry-run/sessions/{session}"
    assert (await owner.post(f"{path}/pause")).json()["changes"] is False
    book.state.phase = SessionPhase.FAILED
    assert (await owner.post(f"{path}/cancel")).json()["code"] == "session-ended"
    assert [fact.kind for fact in book._facts] == ["session.pause_asked"]


async def test_nobody_else_has_a_word(world: World) -> None:
    session = (await submit(await prepared(world))).json()["id"]
    for verb in WORDS:
        assert await both(world, word(session, verb, BOB)) == (403, "not-the-owner")
        assert await both(world, word(session, verb, key(1))) == (403, "role-missing")
        assert await both(world, word(session, verb, key(77))) == (401, "signature-key-unknown")
        assert await both(world, word("s_nothingnothing2", verb)) == (404, "unknown-session")


# ------------------------------------------------------------------ parties and their keys


def enrolment(name: str, public: str, role: str = "holder", who: PartyKey = OWNER) -> Act:
    return Act("/parties", {"name": name, "role": role, "public_key": public}, who=who)


def rotation(name: str = "h0", new: PartyKey = NEW, who: PartyKey | None = None, old: PartyKey | None = None) -> Act:
    signer = old or key(1)
    said = sign_rotation(name, signer, new, 5).model_dump(mode="json")
    return Act(f"/parties/{name}/key", said, {"public_key": new.public.hex()}, "PUT", who or signer)


def replacement(name: str, public: str, replaces: str, who: PartyKey = OWNER) -> Act:
    return Act(f"/parties/{name}/replacement", {"public_key": public, "replaces": replaces}, None, "PUT", who)


async def test_an_enrolment(world: World) -> None:
    owner = await prepared(world)
    h0 = key(1).public.hex()
    assert await both(world, enrolment("h9", NEW.public.hex())) == (200, "changes")
    assert await both(world, enrolment("h9", NEW.public.hex())) == (200, "said before")
    for act, code in (
        (enrolment("h9", BOB.public.hex()), (409, "party-exists")), (enrolment("h8", h0), (409, "party-exists")),
        (enrolment("h0", h0, "auditor"), (409, "party-exists")), (enrolment("h8", SMALL), (400, "bad-public-key")),
        (enrolment("Bad Name", NEW.public.hex()), (422, "invalid-request")),
        (enrolment("h8", BOB.public.hex(), who=key(1)), (403, "role-missing")),
    ):  # fmt: skip
        assert await both(world, act) == code
    await owner.put("/v1/parties/h0/revocation", json={"key": key(1).fingerprint})
    assert await both(world, enrolment("h0", h0)) == (409, "party-exists")


async def test_a_rotation(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    assert await both(world, rotation()) == (409, "key-in-use")
    await owner.post(f"/v1/sessions/{session}/cancel")
    for act, code in (
        (rotation(new=key(2)), (409, "key-was-used")), (rotation(new=key(1)), (400, "malformed-rotation")),
        (rotation(who=key(2), old=key(2)), (403, "not-your-key")), (rotation("h9"), (404, "unknown-party")),
        (rotation(who=OWNER), (403, "role-missing")),
    ):  # fmt: skip
        assert await both(world, act) == code
    assert await both(world, rotation()) == (200, "changes")
    again = rotation()
    assert await both(world, Act(again.path, again.body, again.dry, "PUT", NEW)) == (200, "said before")


async def test_a_new_key_under_which_anything_verifies(world: World) -> None:
    """Nobody can sign a rotation to it; asked about, it is refused as anywhere."""
    await prepared(world)
    answer = await world.client(key(1)).post("/v1/dry-run/parties/h0/key", json={"public_key": SMALL})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-public-key")


async def test_a_replacement(world: World) -> None:
    owner = await prepared(world)
    session, new, lost = (await submit(owner)).json()["id"], NEW.public.hex(), key(1).fingerprint
    assert await both(world, replacement("h0", new, lost)) == (409, "key-in-use")
    await owner.post(f"/v1/sessions/{session}/cancel")
    for act, code in (
        (replacement("h0", key(2).public.hex(), lost), (409, "key-was-used")),
        (replacement("h0", new, BOB.fingerprint), (409, "key-mismatch")),
        (replacement("h9", new, lost), (404, "unknown-party")), (replacement("h0", SMALL, lost), (400, "bad-public-key")),
        (replacement("h0", new, lost, key(1)), (403, "role-missing")),
    ):  # fmt: skip
        assert await both(world, act) == code
    assert await both(world, replacement("h0", new, lost)) == (200, "changes")
    assert await both(world, replacement("h0", new, lost)) == (200, "said before")


# ------------------------------------------------------------------ nothing that is sent is the act


async def test_what_a_dry_run_sends_is_taken_for_no_act(world: World) -> None:
    """Whoever has it, the orchestrator of another release among them, sends it where the act is done."""
    await prepared(world)
    before = await kept(world)
    answer = await world.client(key(1)).put("/v1/parties/h0/key", json=rotation().dry)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert await kept(world) == before


@pytest.mark.parametrize("act", [enrolment("h9", NEW.public.hex()), word("s_mfrggzdfmztwq2lk", "cancel")])
async def test_a_signed_dry_run_cannot_be_sent_to_the_acts_path(world: World, act: Act) -> None:
    owner, before = await prepared(world), await kept(world)
    asked_at = httpx2.Request("POST", f"{BASE}/v1/dry-run{act.path}", json=act.body)
    SignedAuth(OWNER, system_clock, system_entropy).sign(asked_at)
    plain = httpx2.AsyncClient(transport=httpx2.ASGITransport(world.app), base_url=BASE)
    stolen = await plain.post(f"/v1{act.path}", content=asked_at.content, headers=asked_at.headers)
    assert (stolen.status_code, stolen.json()["code"]) == (401, "signature-invalid")
    assert await kept(world) == before
    assert (await owner.get("/v1/whoami")).status_code == 200
