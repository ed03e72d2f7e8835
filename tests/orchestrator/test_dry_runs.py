"""What a dry run answers is what the act then is answered, act by act and reason by reason; and nothing that it sends could be the act."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete

from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.owners_words import WORDS
from shared.attestation.key_rotations import sign_rotation
from shared.canonical import json_bytes, sha256
from shared.claims.manifest import Contributor, Predecessor, Validation
from shared.crypto.signing import PartyKey
from shared.names import Role, SessionPhase
from shared.protocol.session import SESSION, SessionFact
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from shared.service.tables import IDEMPOTENT_REPLIES
from tests.orchestrator.dry_run_world import Act, both, kept
from tests.orchestrator.orchestrator_samples import key, manifest, signed
from tests.orchestrator.orchestrator_world import BASE, BOB, OWNER, PROGRAM, World, prepared, put, submit

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


# ------------------------------------------------------------------ a submission


def submission(document: bytes, act: str = "once", gpu: str = "", who: PartyKey = OWNER) -> Act:
    unsigned = {"document": b64encode(document).decode(), "idempotency_key": act}
    body = signed(who, "gput/manifest", document).model_dump()
    return Act(f"/sessions{gpu and f'?gpu={gpu}'}", body, unsigned, who=who, headers={"idempotency-key": act})


def asked(**changes: Any) -> bytes:
    return manifest(program=PROGRAM, **changes).canonical()


def after(session: str) -> bytes:
    said = Predecessor(
        session=session, manifest="1" * 64, model="2" * 64, optimiser="3" * 64, step=4, log_size=5, log_root="4" * 64,
        contributors=(Contributor(holder="h0", key=key(1).fingerprint, records=10),),
    )  # fmt: skip
    return asked(predecessor=said)


REFUSED: dict[str, tuple[bytes, str]] = {
    "no program": (manifest().canonical(), "unknown-program"),
    "no program, weights and records": (
        manifest(initial_weights="d" * 64, validation=Validation(dataset="c" * 64, records=2)).canonical(), "unknown-program",
    ),
    "buffer and roster": (asked(holders=4, steps_per_visit=10_000), "buffer-too-small"),
    "a stranger": (asked(holders=4), "party-not-enrolled"),
    "no such weights": (asked(initial_weights="d" * 64), "unknown-weights"),
    "no such records": (asked(validation=Validation(dataset="c" * 64, records=2)), "unknown-validation-dataset"),
    "fewer records": (asked(validation=Validation(dataset=sha256(bytes(8)).hex(), records=2)), "validation-size-mismatch"),
    "a name that cannot be seen": (asked(name="study \u202egnp.exe"), "unseen-text"),
    "not canonical": (json_bytes(manifest(program=PROGRAM).model_dump(mode="json")) + b" ", "not-canonical"),
    "no such field": (json_bytes(manifest().model_dump(mode="json") | {"speed": 1}), "unsupported-feature"),
    "no JSON": (b"study", "invalid-manifest"),
    "nothing to go on from": (after("s_aaaaaaaaaaaaaaaa"), "unknown-predecessor"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_a_manifest_that_is_refused(world: World, name: str) -> None:
    owner = await prepared(world)
    await put(owner, f"/v1/validation-datasets/{sha256(bytes(8)).hex()}", bytes(8))
    document, code = REFUSED[name]
    assert await both(world, submission(document)) == (422, code)


async def test_a_manifest_names_every_file_that_is_missing_at_once(world: World) -> None:
    """Also where its program is not there, by which most else is judged."""
    refused = await (await prepared(world)).post(
        "/v1/dry-run/sessions", json=submission(REFUSED["no program, weights and records"][0]).dry
    )
    assert [error["code"] for error in refused.json()["errors"]] == [
        "unknown-program",
        "unknown-weights",
        "unknown-validation-dataset",
    ]


async def test_a_submission(world: World) -> None:
    owner, document = await prepared(world), asked()
    assert await both(world, submission(document, gpu="gpu-9")) == (422, "unknown-gpu")
    assert await both(world, submission(document, who=key(1))) == (403, "role-missing")
    assert await both(world, submission(document, gpu="gpu-0")) == (200, "changes")
    session = (await owner.get("/v1/sessions")).json()["items"][0]["id"]
    assert await both(world, submission(after(session), "next")) == (422, "predecessor-not-ended")
    await owner.post(f"/v1/sessions/{session}/cancel")
    assert await both(world, submission(after(session), "next")) == (422, "predecessor-without-model")


async def test_a_submission_under_a_key_that_was_used(world: World) -> None:
    owner, document = await prepared(world), asked()
    assert await both(world, submission(document)) == (200, "changes")
    assert await both(world, submission(document)) == (200, "said before")
    body = {"name": "h9", "role": "holder", "public_key": NEW.public.hex()}
    await owner.post("/v1/parties", json=body, headers={"idempotency-key": "enrolled"})
    assert await both(world, submission(document, "enrolled")) == (422, "idempotency-key-reused")
    # What the key names outlives the answer that is kept under it.
    store = world.app.state.orchestrator.store
    await store.write(lambda c: c.execute(delete(IDEMPOTENT_REPLIES)))
    assert await both(world, submission(asked(name="another"))) == (422, "idempotency-key-reused")
    assert await both(world, submission(document, gpu="gpu-9")) == (422, "idempotency-key-reused")
    assert await both(world, submission(document, "two words")) == (400, "idempotency-key-malformed")


async def test_given_weights_are_judged_by_what_they_hold(world: World) -> None:
    owner = await prepared(world)
    await put(owner, f"/v1/weights/{sha256(b'no weights').hex()}", b"no weights")
    status, code = await both(world, submission(asked(initial_weights=sha256(b"no weights").hex())))
    assert (status, code != "unknown-weights") == (422, True)


# ------------------------------------------------------------------ nothing that is sent is the act


async def test_what_a_dry_run_sends_is_taken_for_no_act(world: World) -> None:
    """Whoever has it, the orchestrator of another release among them, sends it where the act is done."""
    owner, before = await prepared(world), await kept(world)
    unsigned = submission(asked()).dry
    answer = await owner.post("/v1/sessions", json=unsigned, headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
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
