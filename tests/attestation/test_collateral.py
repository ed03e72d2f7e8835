"""Collateral: every part is signed up to one root, for this machine, for now, not older than seen; the emulated maker's and forged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from gpu_agent.platform.collateral_maker import make_collateral, sign_raw
from gpu_agent.platform.pki import Issuer, Maker
from shared.attestation.collateral import Collateral, verify_collateral
from shared.attestation.collateral_folder import write_bundle
from shared.attestation.collateral_store import MAX_REMEMBERED, CollateralStore
from shared.attestation.cpu_verifier import CpuTrust
from shared.attestation.results import CheckStatus
from shared.errors import BadRequest, ConfigurationError, VerificationFailed
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.test_cpu_verifier import MACHINE, RAW, examine, failed, refused, verify

MAKER, GOOD = MACHINE.maker, MACHINE.collateral
DAY = 86_400.0
OTHER = Machine("another maker")
LEAF = x509.load_pem_x509_certificates(MACHINE.keys.chain)[0]


def trust(*bundles: Collateral) -> CpuTrust:
    return MACHINE.trust(collateral=MACHINE.holding(*bundles))


def code(bundle: Collateral) -> str:
    with pytest.raises(VerificationFailed) as caught:
        verify_collateral(bundle, MAKER.root.certificate)
    return caught.value.code


# ------------------------------------------------------------------------------------------ form


def test_a_bundle_is_read_back_and_named_by_its_content() -> None:
    again = Collateral.parse(GOOD.document())
    assert (again, again.fingerprint) == (GOOD, GOOD.fingerprint)
    assert replace(GOOD, pck_crl=GOOD.root_ca_crl).fingerprint != GOOD.fingerprint
    spaced = json.dumps(json.loads(GOOD.document()), indent=2).encode()
    assert Collateral.parse(spaced).fingerprint == GOOD.fingerprint


@pytest.mark.parametrize("change", [
    lambda v: v.pop("pck_crl"), lambda v: v.update(pck_certificate_chain="PEM"), lambda v: v.update(pck_crl=""),
    lambda v: v.update(pck_crl="zz"), lambda v: v.update(tcb_info=1), lambda v: v.update(tcb_info_signature="00" * 63),
    lambda v: v.update(tcb_info_issuer_chain="x" * 20_000), lambda v: v.update(qe_identity="é"),
    lambda v: v.update(root_ca_crl="00" * 1_100_000),
])  # fmt: skip
def test_any_other_form_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    """Above all a chain of the caller's own choosing, which the library would prefer to the quote's."""
    value = json.loads(GOOD.document())
    change(value)
    with pytest.raises(BadRequest):
        Collateral.parse(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"a": 1}', b"[" * 100_000])
def test_noise_is_no_bundle(data: bytes) -> None:
    with pytest.raises(BadRequest):
        Collateral.parse(data)


# ------------------------------------------------------------------------------------ signatures


def resigned(**changes: Any) -> Collateral:
    """The same collateral with changed texts, signed by the maker again."""
    texts = {"tcb_info": GOOD.tcb_info, "qe_identity": GOOD.qe_identity}
    for name, change in changes.items():
        value = json.loads(texts[name])
        change(value)
        texts[name] = json.dumps(value)
    signatures = {f"{name}_signature": sign_raw(MAKER.signer.key, text.encode()) for name, text in texts.items()}
    return replace(GOOD, **texts, **signatures)


def test_every_part_is_signed() -> None:
    for field in fields(Collateral):
        part = getattr(GOOD, field.name)
        at = len(part) // 2
        changed = (
            part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
            if isinstance(part, bytes)
            else part[:at] + ("A" if part[at] != "A" else "B") + part[at + 1 :]
        )
        with pytest.raises((VerificationFailed, BadRequest)):
            verify_collateral(replace(GOOD, **{field.name: changed}), MAKER.root.certificate)


def test_the_text_counts_as_signed_not_as_meant() -> None:
    respaced = json.dumps(json.loads(GOOD.tcb_info), indent=1)
    assert code(replace(GOOD, tcb_info=respaced)) == "collateral-broken"
    assert verify_collateral(resigned(tcb_info=lambda v: v.update(more=1)), MAKER.root.certificate).evaluation == 1


def test_signers_are_what_they_must_be() -> None:
    chains = {"signer": GOOD.tcb_info_issuer_chain, "authority": GOOD.pck_crl_issuer_chain}
    assert code(replace(GOOD, tcb_info_issuer_chain=chains["authority"])) == "collateral-broken"
    assert code(replace(GOOD, pck_crl_issuer_chain=chains["signer"])) == "collateral-broken"
    machine = MACHINE.keys.chain.decode()
    assert code(replace(GOOD, qe_identity_issuer_chain=machine)) == "collateral-malformed"
    assert code(replace(GOOD, qe_identity_issuer_chain=OTHER.collateral.qe_identity_issuer_chain)) == "collateral-root"
    assert code(replace(GOOD, pck_crl=GOOD.root_ca_crl)) == "collateral-broken"
    assert code(replace(GOOD, root_ca_crl=GOOD.pck_crl)) == "collateral-broken"
    assert code(OTHER.collateral) == "collateral-root"


@pytest.mark.parametrize("change", [
    lambda v: v.update(id="SGX"), lambda v: v.update(version=2), lambda v: v.update(tcbType=1), lambda v: v.pop("fmspc"),
    lambda v: v.update(tcbLevels=[]), lambda v: v["tcbLevels"][0].update(tcbStatus="Fine"),
    lambda v: v["tcbLevels"][0]["tcb"]["sgxtcbcomponents"].pop(), lambda v: v.update(issueDate="today"),
    lambda v: v.update(tcbEvaluationDataNumber=-1),
])  # fmt: skip
def test_a_signed_text_of_another_meaning_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    assert code(resigned(tcb_info=change)) == "collateral-malformed"


def test_a_qe_identity_for_sgx_is_refused() -> None:
    assert code(resigned(qe_identity=lambda v: v.update(id="QE"))) == "collateral-malformed"


# ------------------------------------------------------------------------------------- for what


def test_without_collateral_nothing_is_accepted_not_even_emulated() -> None:
    failure = refused("collateral-missing", trust=MACHINE.trust(collateral=None))
    assert "ee6d75000000" in str(failure.expected)
    refused("collateral-missing", trust=MACHINE.trust(collateral=CollateralStore(MACHINE.roots.certificates)))


def test_collateral_may_come_with_the_evidence_and_is_believed_no_more() -> None:
    empty = MACHINE.trust(collateral=CollateralStore(MACHINE.roots.certificates))

    def judged(document: bytes) -> dict[str, str]:
        from shared.attestation.cpu_verifier import examine_cpu_evidence

        found = examine_cpu_evidence(
            evidence(RAW, endorsements=document), report_data=None, role=None, roots=empty.roots,
            reference=empty.reference, policy=empty.policy, at=AT, collateral=empty.collateral,
        )  # fmt: skip
        return {c.name: c.code for c in found.checks if c.status is CheckStatus.FAIL}

    assert judged(OTHER.collateral.document()) == {"collateral": "collateral-root"}
    assert judged(b"{}") == {"collateral": "malformed-collateral"}
    assert judged(resigned(tcb_info=lambda v: v.update(fmspc="00" * 6)).document()) == {
        "collateral": "collateral-fmspc"
    }
    assert judged(GOOD.document()) == {}
    assert judged(b"") == {}, "it was verified once, and is remembered"


def test_collateral_is_for_one_kind_of_machine() -> None:
    for change, expected in (
        ({"fmspc": "00906ED50000"}, "collateral-fmspc"),
        ({"pceId": "0000"}, "collateral-pce-id"),
    ):
        refused(expected, trust=trust(resigned(tcb_info=lambda v, change=change: v.update(change))))


def test_a_list_of_another_authority_says_nothing_about_this_machine() -> None:
    """A processor CA's list beside a platform CA's leaf: signed by the same root, and silent on every certificate that matters."""
    from gpu_agent.platform.pki import _issue, make_maker

    key = make_maker("x", AT).authority.key
    processor = Issuer(_issue("EMULATED GPU Travelling PCK Processor CA", key, MAKER.root, AT, depth=0), key)
    foreign = make_collateral(Maker(MAKER.root, processor, MAKER.signer), AT)
    refused("collateral-authority", trust=trust(foreign))


def test_a_revoked_machine_is_refused_and_so_is_whatever_stands_on_revoked_paper() -> None:
    revoked = make_collateral(MAKER, AT, revoked=[LEAF])
    failure = refused("collateral-revoked", trust=trust(revoked))
    assert f"{LEAF.serial_number:x}" in str(failure.got)
    for certificate in (MAKER.authority.certificate, MAKER.signer.certificate, MAKER.root.certificate):
        refused("collateral-revoked", trust=trust(make_collateral(MAKER, AT, revoked=[certificate])))
    verify(RAW, trust=trust(make_collateral(MAKER, AT, revoked=[x509.load_pem_x509_certificates(OTHER.keys.chain)[0]])))


# ------------------------------------------------------------------------------------------ time


def test_expired_and_early_collateral_is_expired_not_forged() -> None:
    for at in (AT + 30 * DAY + 1, AT - 2 * 3600):
        short = trust(make_collateral(MAKER, AT, valid_days=30))
        found = examine(RAW, trust=short, at=at)
        assert found.find("collateral").status is CheckStatus.PASS
        assert found.find("collateral-time").status is CheckStatus.EXPIRED
        assert found.find("quote-signature").status is CheckStatus.PASS
    failure = refused("collateral-expired", trust=short, at=AT + 30 * DAY + 1)
    assert "manufacture again" in str(failure.remedy)


def test_each_window_counts_by_itself() -> None:
    """The list's own issue date too, which the library leaves out."""
    later = make_collateral(MAKER, AT + DAY)
    for part in ("tcb_info", "qe_identity", "root_ca_crl", "pck_crl"):
        taken = {part: getattr(later, part)}
        if f"{part}_signature" in later.__dict__:
            taken[f"{part}_signature"] = getattr(later, f"{part}_signature")
        mixed = replace(GOOD, **taken)
        assert failed(RAW, trust=trust(mixed))["collateral-time"] == "collateral-expired"
        verify(RAW, trust=trust(mixed), at=AT + 2 * DAY)


# -------------------------------------------------------------------------------------- roll-back


def test_what_was_seen_newer_is_not_rolled_back() -> None:
    old, new = make_collateral(MAKER, AT), make_collateral(MAKER, AT + DAY, evaluation=2)
    store = MACHINE.holding(new)
    known = store.choose(store.identify(MACHINE.keys.chain, MACHINE.roots.certificates), None, AT + 2 * DAY)
    for offered, expected in ((old, new), (new, new)):
        pck = store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)
        assert store.choose(pck, offered, AT + 2 * DAY).source == expected, "the newest current one is used"
    stale = store.learn(old)
    with pytest.raises(VerificationFailed) as caught:
        store.check_rollback(stale, AT + 2 * DAY)
    assert (caught.value.code, caught.value.expected, caught.value.got) == ("collateral-rollback", "at least 2", "1")
    store.check_rollback(stale, AT)  # at that time nothing newer was out
    store.check_rollback(known, AT + 2 * DAY)


def test_a_peer_cannot_hide_a_revocation_behind_fresh_paper() -> None:
    """Genuine parts of different days, put together so that the newest text comes with a list from before the revocation."""
    known = make_collateral(MAKER, AT, revoked=[LEAF])
    fresh, before = make_collateral(MAKER, AT + DAY, evaluation=2), make_collateral(MAKER, AT - DAY)
    mixed = replace(fresh, pck_crl=before.pck_crl, root_ca_crl=before.root_ca_crl)
    store, at = MACHINE.holding(known), AT + 2 * DAY
    pck = store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)
    chosen = store.choose(pck, mixed, at)
    assert (chosen.evaluation, chosen.source.pck_crl) == (2, known.pck_crl), "the newest of each part"
    store.check_rollback(chosen, at)
    refused("collateral-revoked", trust=MACHINE.trust(collateral=store), at=at)


def test_a_peers_stale_mixture_harms_nobody_else() -> None:
    fresh, before = make_collateral(MAKER, AT + DAY, evaluation=2), make_collateral(MAKER, AT - DAY)
    store, at = MACHINE.holding(GOOD), AT + 2 * DAY
    pck = store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)
    store.choose(pck, replace(fresh, pck_crl=before.pck_crl), at)
    assert verify(RAW, trust=MACHINE.trust(collateral=store), at=at).evaluation == 2


def test_nobody_can_crowd_out_what_is_ones_own() -> None:
    """The text around a certificate is not signed, so one bundle can be sent in any number of disguises."""
    store = MACHINE.holding(GOOD)
    pck = store.identify(MACHINE.keys.chain, MACHINE.roots.certificates)
    for number in range(MAX_REMEMBERED + 10):
        store.choose(pck, replace(GOOD, tcb_info_issuer_chain=f"{number}\n{GOOD.tcb_info_issuer_chain}"), AT)
    assert len(store._verified) <= MAX_REMEMBERED
    assert store.choose(pck, None, AT).source == GOOD
    verify(RAW, trust=MACHINE.trust(collateral=store))


def test_an_older_list_is_a_roll_back_even_under_the_same_number() -> None:
    new = make_collateral(MAKER, AT + DAY)
    mixed = replace(new, pck_crl=GOOD.pck_crl)
    store = MACHINE.holding(new)
    with pytest.raises(VerificationFailed) as caught:
        store.check_rollback(store.learn(mixed), AT + 2 * DAY)
    assert "revocation list" in caught.value.detail


def test_the_folder_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    write_bundle(tmp_path, "emulated", GOOD)
    store = CollateralStore.load(tmp_path, MACHINE.roots.certificates)
    verify(RAW, trust=MACHINE.trust(collateral=store))
    newer = make_collateral(MAKER, AT + DAY, evaluation=2)
    write_bundle(tmp_path, "newer", newer)
    store = CollateralStore.load(tmp_path, MACHINE.roots.certificates)
    assert verify(RAW, trust=MACHINE.trust(collateral=store), at=AT + 2 * DAY).evaluation == 2
    for name, content in (("bad", b"{}"), ("foreign", OTHER.collateral.document())):
        (tmp_path / f"{name}.json").write_bytes(content)
        with pytest.raises(ConfigurationError) as caught:
            CollateralStore.load(tmp_path, MACHINE.roots.certificates)
        assert (caught.value.code, name in caught.value.detail) == ("bad-collateral", True)
        (tmp_path / f"{name}.json").unlink()
    write_bundle(tmp_path, "foreign", OTHER.collateral)
    archive = CollateralStore.load(tmp_path, MACHINE.roots.certificates, archive=True)
    verify(RAW, trust=MACHINE.trust(collateral=archive))
    absent = CollateralStore.load(tmp_path / "absent", MACHINE.roots.certificates)
    refused("collateral-missing", trust=MACHINE.trust(collateral=absent))
