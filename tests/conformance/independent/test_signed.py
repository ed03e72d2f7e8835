"""What the product signs, hashes and logs is what docs/formats.md says; each is made a second time from the page and compared."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from contextlib import nullcontext
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.log import event_leaf, sign_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions.submission import read_manifest
from shared.attestation.approvals import verify_approval
from shared.attestation.channel import build_orchestrator_runtime, gpu_evidence_digest, report_data
from shared.attestation.dealing import deal_share
from shared.attestation.head_statements import sign_head_statement
from shared.attestation.key_rotations import sign_rotation
from shared.attestation.nonces import gpu_nonce
from shared.attestation.offers import seal_offer
from shared.attestation.one_time_keys import LABEL, SHARE_KEY_LABEL, VerifiedOneTimeKey, verify_one_time_key
from shared.attestation.orchestrator_proof import build_statement, statement_report_data
from shared.attestation.recovery import recovery_report_data, recovery_runtime, take_share
from shared.claims.event_log import Event, replay_events
from shared.claims.faults import ManifestRefused
from shared.claims.visit import CursorRange, Grant
from shared.crypto.cose import sign1
from shared.crypto.hpke import OneTimeKey
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest
from shared.protocol.merkle import leaf_hash
from shared.wire.visit import GpuEvidence, OfferDocument, Signed
from tests.conformance.independent import page_sealed, page_signed
from tests.orchestrator.orchestrator_samples import approval, key, manifest

SESSION, CHANNEL, NONCE = "s_0123456789abcdef", "c_0123456789abcdef", "0a" * 32
LABELS = st.from_regex(r"\A[a-z][a-z0-9/._-]{0,63}\Z")
ORCHESTRATOR, HOLDER = key(11), key(12)
APPROVAL: dict[str, Any] = {
    "session": "s_aaaaaaaaaaaaaaaa", "holder": "h0", "manifest": hashlib.sha256(manifest().canonical()).hexdigest(),
    "decision": "approve", "reason": "", "records": 40, "record_bytes": 8, "dataset_root": "d0" * 32, "at": 1,
}  # fmt: skip
VISIT_KEY = VisitKey(key=bytes(range(32)), iv_mask=bytes(range(12)), engine=3, channel_counter=7)


def one_time(own: page_sealed.HpkeKey, label: str) -> VerifiedOneTimeKey:
    """A key that another implementation made and stated, as the orchestrator believes it."""
    document = page_signed.json_of({
        "session": SESSION, "holder": "north", "channel": CHANNEL, "nonce": NONCE, "share": None,
        "suite": "MLKEM768_X25519/HKDF_SHA256/AES_256_GCM", "key": page_signed.b64(own.public),
    })  # fmt: skip
    private = Ed25519PrivateKey.from_private_bytes(bytes([12]) * 32)
    signature = private.sign(page_signed.labelled(label, document))
    signed = Signed(document=page_signed.b64(document), signature=page_signed.b64(signature))
    return verify_one_time_key(
        signed, signing_key=HOLDER.public, session=SESSION, holder="north", channel=CHANNEL, label=label
    )


def hpke_key() -> page_sealed.HpkeKey:
    return page_sealed.HpkeKey(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())


def offered(to: VerifiedOneTimeKey) -> OfferDocument:
    grant = Grant(
        session=SESSION, visit="v_0123456789abcdef", life=1, epoch=2, holder="north", port="holder-north", region=3,
        byte_budget=10_000, cursor=CursorRange(start=0, count=8), dataset_root="d0" * 32, dataset_records=40, record_bytes=8,
        chunk_bytes=4096, recipient=to.digest, expires_at=2_000_000_000,
    )  # fmt: skip
    return OfferDocument(
        channel=CHANNEL, manifest="ab" * 32, grant=grant, gpu="gpu-0", agent_url="http://agent", one_time_key=to.digest, iv_epoch=2,
        round=1, index=1, attempt=1, log_size=0, log_root="e3" * 32, log_time=1, log_signature="",
    )  # fmt: skip


@given(LABELS, st.binary(max_size=300), st.binary(min_size=32, max_size=32))
def test_a_labelled_signature(label: str, document: bytes, seed: bytes) -> None:
    theirs = PartyKey.generate(lambda _: seed).sign(label, document)
    assert theirs == Ed25519PrivateKey.from_private_bytes(seed).sign(page_signed.labelled(label, document))


def test_an_offer_is_signed_and_sealed_as_the_page_says() -> None:
    own = hpke_key()
    to = one_time(own, LABEL)
    made = seal_offer(offered(to), visit_key=VISIT_KEY, one_time_key=to, signing_key=ORCHESTRATOR)
    document, sealed, signature = (b64decode(part) for part in (made.document, made.sealed, made.signature))
    assert page_signed.holds(ORCHESTRATOR.public, page_signed.offer_signed(to.document, document, sealed), signature)
    plain = own.open(sealed, page_signed.report_data("gput/asc/1 seal", document))
    assert plain == page_signed.cbor(
        {"key": VISIT_KEY.key, "iv_mask": VISIT_KEY.iv_mask, "engine": 3, "channel_counter": 7}
    )


def test_a_dealt_share_is_signed_and_sealed_as_the_page_says() -> None:
    own = hpke_key()
    to = one_time(own, SHARE_KEY_LABEL)
    dealt = deal_share(Secret(bytes(range(33))), share_key=to, signing_key=ORCHESTRATOR)
    sealed, signature = b64decode(dealt.sealed), b64decode(dealt.signature)
    assert page_signed.holds(ORCHESTRATOR.public, page_signed.dealt_signed(to.document, sealed), signature)
    assert own.open(sealed, page_signed.report_data("gput/asc/1 share", to.document)) == bytes(range(33))


def test_a_share_that_another_implementation_gives_is_taken() -> None:
    own = OneTimeKey.generate()
    runtime = recovery_runtime(
        session=SESSION, holder="north", manifest="ab" * 32, peer_nonce=NONCE, enrolled_key=ORCHESTRATOR.public, key=own.public
    )  # fmt: skip
    assert runtime == page_signed.json_of({
        "profile": "gput/recovery/1", "role": "orchestrator", "session": SESSION, "holder": "north", "manifest": "ab" * 32,
        "peer_nonce": NONCE, "enrolled_key": ORCHESTRATOR.public.hex(), "key": page_signed.b64(own.public),
    })  # fmt: skip
    assert recovery_report_data(runtime) == page_signed.report_data("gput/recovery/1 orchestrator", runtime)
    info = page_signed.report_data("gput/recovery/1 seal", runtime)
    sealed = page_sealed.hpke_seal(own.public, bytes(range(33)), info)
    assert take_share(sealed, key=own, runtime_data=runtime).reveal() == bytes(range(33))


def test_documents_that_parties_sign() -> None:
    said = approval(0, manifest())
    document = page_signed.json_of(APPROVAL)
    assert b64decode(said.document) == document
    signature = b64decode(said.signature)
    assert page_signed.holds(key(1).public, page_signed.labelled("gput/approval", document), signature)
    head = sign_head_statement(
        HOLDER, session=SESSION, holder="north", challenge=NONCE, size=3, root=bytes(32), receipt=None
    )
    expected = page_signed.json_of({
        "profile": "gput/head-statement/1", "session": SESSION, "holder": "north", "challenge": NONCE, "size": 3,
        "root": "00" * 32, "receipt": None,
    })  # fmt: skip
    assert b64decode(head.document) == expected
    signature = b64decode(head.signature)
    assert page_signed.holds(HOLDER.public, page_signed.labelled("gput/head-statement", expected), signature)


@pytest.mark.parametrize(
    "changes", [{}, {"profile": None}, {"reason": ...}], ids=["one form", "null where absent", "default left out"]
)
def test_an_approval_has_one_form(changes: dict[str, Any]) -> None:
    """Another implementation's: every field is written, but for those that came later and are unset."""
    document = page_signed.json_of({name: value for name, value in (APPROVAL | changes).items() if value is not ...})
    private = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
    signature = private.sign(page_signed.labelled("gput/approval", document))
    signed = Signed(document=page_signed.b64(document), signature=page_signed.b64(signature))
    expected = pytest.raises(BadRequest, match="canonical form") if changes else nullcontext()
    with expected as caught:
        verify_approval(signed, key(1).public, session=APPROVAL["session"], manifest=manifest())
    assert (caught is None) == (not changes)
    assert caught is None or caught.value.code == "not-canonical"


@pytest.mark.parametrize(
    ("field", "instead"), [(b'"privacy_floor":', b'"privacy":null,"privacy_floor":'), (b'"gpus":1,', b"")],
    ids=["null where absent", "default left out"],
)  # fmt: skip
def test_a_manifest_has_one_form(field: bytes, instead: bytes) -> None:
    whole = manifest().canonical()
    assert read_manifest(whole) == manifest()
    assert whole.count(field) == 1
    with pytest.raises(ManifestRefused) as caught:
        read_manifest(whole.replace(field, instead))
    assert caught.value.code == "not-canonical"


def test_a_rotation_is_signed_by_both_keys() -> None:
    made = sign_rotation("north", HOLDER, ORCHESTRATOR, 7)
    document = page_signed.json_of(
        {"party": "north", "old": page_signed.fingerprint(HOLDER.public), "new": ORCHESTRATOR.public.hex(), "at": 7}
    )
    assert b64decode(made.document) == document
    for public, label, signature in (
        (HOLDER.public, "gput/key-rotation", made.old_signature),
        (ORCHESTRATOR.public, "gput/key-rotation/new", made.new_signature),
    ):
        assert page_signed.holds(public, page_signed.labelled(label, document), b64decode(signature))


@given(st.binary(max_size=200))
def test_report_data(document: bytes) -> None:
    assert report_data("orchestrator", document) == page_signed.report_data("gput/asc/1 orchestrator", document)
    assert report_data("holder", document) == page_signed.report_data("gput/asc/1 holder", document)
    assert statement_report_data(document) == page_signed.report_data("gput/orchestrator/1", document)


def test_an_orchestrators_statement() -> None:
    made = build_statement(nonce=NONCE, caller="cc" * 32, identity_key=ORCHESTRATOR.public)
    assert made == page_signed.json_of({
        "profile": "gput/orchestrator/1", "nonce": NONCE, "caller": "cc" * 32, "identity_key": ORCHESTRATOR.public.hex(),
    })  # fmt: skip


def test_runtime_data_and_the_digest_of_the_gpus_evidence() -> None:
    said = {"report": "AAAA", "chain": "PEM", "challenge": "11" * 32, "th2": "22" * 48, "epoch": 0, "statement_key": ""}
    evidence = GpuEvidence.model_validate(said)
    digest = hashlib.sha256(page_signed.json_of(said)).hexdigest()
    assert gpu_evidence_digest(evidence) == digest
    made = build_orchestrator_runtime(
        session=SESSION, holder="*", manifest="ab" * 32, peer_nonce="00" * 32, nonce=NONCE, signing_key=HOLDER.public,
        enrolled_key=ORCHESTRATOR.public, gpu_evidence=evidence, not_after=9,
    )  # fmt: skip
    assert made == page_signed.json_of({
        "profile": "gput/asc/1", "role": "orchestrator", "session": SESSION, "holder": "*", "manifest": "ab" * 32,
        "peer_nonce": "00" * 32, "nonce": NONCE, "signing_key": HOLDER.public.hex(), "enrolled_key": ORCHESTRATOR.public.hex(),
        "gpu_evidence": digest, "previous": None, "not_after": 9,
    })  # fmt: skip


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=48, max_size=48), st.integers(0, 2**31))
def test_a_gpu_nonce(challenge: bytes, th2: bytes, epoch: int) -> None:
    expected = page_signed.gpu_nonce(challenge, th2, epoch, HOLDER.public)
    assert gpu_nonce(challenge, th2, epoch, HOLDER.public) == expected


CONTENTS = st.dictionaries(
    st.from_regex(r"\A[a-z][a-z0-9_]{0,9}\Z"), st.one_of(st.text("abcä \"\\", max_size=9), st.booleans(), st.none()), max_size=4
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["session", "policy"]), CONTENTS), max_size=5))
def test_measured_events(drawn: list[tuple[int, str, dict[str, Any]]]) -> None:
    theirs = replay_events([Event(register=number, type=kind, content=content) for number, kind, content in drawn])
    own = page_signed.registers([{"register": r, "type": kind, "content": content} for r, kind, content in drawn])
    assert theirs == tuple(own[number] for number in range(4))


@given(st.binary(max_size=300), st.binary(min_size=32, max_size=32))
def test_a_receipts_envelope(payload: bytes, seed: bytes) -> None:
    signer = PartyKey.generate(lambda _: seed)
    kid = bytes.fromhex(page_signed.fingerprint(signer.public))
    own = page_signed.cose(payload, -8, kid, Ed25519PrivateKey.from_private_bytes(seed).sign)
    assert sign1(payload, signer, kid=bytes.fromhex(signer.fingerprint)) == own
    assert own[0] == 0xD2


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, 13])
def test_a_log_of_events_its_head_and_its_paths(size: int) -> None:
    tree, leaves = MerkleTree(), []
    for number in range(size):
        details = {"visit": f"v_{number}", "index": number, "attempt": 1, "reason": "lease", "again": True}
        made = event_leaf(tree, SESSION, "recalled", details)
        leaves.append(page_signed.event_leaf(SESSION, "recalled", details))
        assert leaves[-1][0] == 0x84
        assert made.fact == {"index": number, "hash": page_signed.leaf_hash(leaves[-1]).hex()}
        tree.append(leaf_hash(leaves[-1]))
    hashes = [page_signed.leaf_hash(leaf) for leaf in leaves]
    root = page_signed.tree_root(hashes)
    head = sign_head(tree, SESSION, ORCHESTRATOR, 1_800_000_000.5)
    assert (head.head.size, head.head.root) == (size, root)
    signed = page_signed.tree_head(SESSION, size, root, 1_800_000_000)
    assert page_signed.holds(ORCHESTRATOR.public, signed, head.signature)
    for index in range(size):
        assert page_signed.root_by_path(hashes[index], index, size, tree.inclusion(index, size)) == root
