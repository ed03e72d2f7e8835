"""What a dry run of a submission answers is what the submission then is answered, reason by reason, also under a key that was used."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from orchestrator.tables import HEADS, SESSIONS
from shared.canonical import json_bytes, sha256
from shared.claims.manifest import Contributor, Predecessor, Validation
from shared.crypto.signing import PartyKey
from shared.service.tables import IDEMPOTENT_REPLIES
from tests.orchestrator.dry_run_world import Act, both, kept
from tests.orchestrator.orchestrator_samples import key, manifest, signed
from tests.orchestrator.orchestrator_world import OWNER, PROGRAM, World, prepared, put


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
    same = submission(document)
    for said in (same, submission(document, gpu="gpu-0"), replace(same, body=dict(reversed(same.body.items())))):
        assert await both(world, said) == (200, "said before")
    assert await both(world, submission(document, gpu="gpu-9")) == (422, "idempotency-key-reused")
    assert await both(world, submission(asked(name="another"))) == (422, "idempotency-key-reused")
    body = {"name": "h9", "role": "holder", "public_key": key(41).public.hex()}
    await owner.post("/v1/parties", json=body, headers={"idempotency-key": "enrolled"})
    assert await both(world, submission(document, "enrolled")) == (422, "idempotency-key-reused")
    # What the key names outlives the answer that is kept under it.
    store = world.app.state.orchestrator.store
    await store.write(lambda c: c.execute(delete(IDEMPOTENT_REPLIES)))
    assert await both(world, submission(asked(name="another"))) == (422, "idempotency-key-reused")
    assert await both(world, submission(document, gpu="gpu-9")) == (422, "idempotency-key-reused")
    assert await both(world, submission(document, "two words")) == (400, "idempotency-key-malformed")


async def test_an_answer_that_a_former_release_kept_is_given_again(world: World) -> None:
    """It kept the digest of every byte."""
    owner, act = await prepared(world), submission(asked())
    body = json_bytes(act.body)
    headers = act.headers | {"content-type": "application/json"}
    first = await owner.post("/v1/sessions", content=body, headers=headers)
    whole = sha256(sha256(b"POST /v1/sessions?\n") + sha256(body))
    store = world.app.state.orchestrator.store
    await store.write(lambda c: c.execute(update(IDEMPOTENT_REPLIES).values(request_digest=whole)))
    again = await owner.post("/v1/sessions", content=body, headers=headers)
    assert (again.status_code, again.headers["idempotent-replayed"], again.json()) == (201, "true", first.json())


async def test_a_submission_whose_session_is_gone(world: World) -> None:
    """For a day the first answer is given again; after that the key is one under which a session was."""
    owner, document = await prepared(world), asked()
    assert await both(world, submission(document)) == (200, "changes")
    session = (await owner.get("/v1/sessions")).json()["items"][0]["id"]
    head = {"session": session, "size": 1, "root": "", "time": 1, "signature": b"", "signing_key": ""}
    parts = world.app.state.orchestrator
    await parts.store.write(lambda c: c.execute(insert(HEADS).values(head)))
    await parts.store.write(lambda c: c.execute(delete(SESSIONS)))
    assert await both(world, submission(document)) == (200, "said before")
    await parts.store.write(lambda c: c.execute(delete(IDEMPOTENT_REPLIES)))
    assert await both(world, submission(document)) == (409, "session-removed")


async def test_given_weights_are_judged_by_what_they_hold(world: World) -> None:
    owner = await prepared(world)
    await put(owner, f"/v1/weights/{sha256(b'no weights').hex()}", b"no weights")
    status, code = await both(world, submission(asked(initial_weights=sha256(b"no weights").hex())))
    assert (status, code != "unknown-weights") == (422, True)


async def test_what_a_dry_run_sends_is_taken_for_no_submission(world: World) -> None:
    """Whoever has it, the orchestrator of another release among them, sends it where the act is done."""
    owner = await prepared(world)
    before = await kept(world)
    answer = await owner.post("/v1/sessions", json=submission(asked()).dry, headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert await kept(world) == before
