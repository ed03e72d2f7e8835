"""The second verifier: an independent library accepts our emulated quotes under the emulated root only, and its word counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import dcap_qvl
import pytest
from cryptography import x509

from gpu_agent.platform.collateral_maker import make_collateral
from gpu_agent.platform.pki import certificate_pem
from gpu_agent.platform.quote_packing import pack_quote
from shared.attestation import dcap
from shared.attestation.cpu_verifier import examine_cpu_evidence, verify_cpu_evidence
from shared.attestation.quote import parse_quote
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import VerificationFailed
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.test_cpu_verifier import DATA, failed, refused
from tests.attestation.test_pck_purposes import extension, issued_again
from tests.attestation.test_tdx_policy import EVERY_STATUS

MACHINES = {version: Machine(f"engine {version}", version) for version in (4, 5)}
OTHER = Machine("another")


def quotes() -> Iterator[tuple[Machine, bytes]]:
    """Every form that is emulated: version 4, version 5 with TD reports 1.0, 1.5 and 1.5 extended."""
    for machine in MACHINES.values():
        yield machine, machine.raw(DATA)
    five = MACHINES[5]
    quote = five.quote(DATA)
    yield five, five.requote(quote, tail=b"")
    yield five, five.requote(quote, tail=quote.body.tail + bytes(885 - 648))


@pytest.mark.parametrize("index", range(4))
def test_the_plain_library_accepts_emulated_quotes_under_the_emulated_root_only(index: int) -> None:
    machine, quote = list(quotes())[index]
    collateral = dcap_qvl.QuoteCollateralV3.from_json(machine.collateral.document().decode())
    report = dcap_qvl.verify_with_root_ca(quote, collateral, machine.root_der, int(AT))
    assert (report.status, report.advisory_ids) == ("UpToDate", [])
    strict = dcap_qvl.QuotePolicy.strict(int(AT))
    dcap_qvl.QuoteVerifier(machine.root_der).verify_with_policy(quote, collateral, int(AT), strict)
    for refusing in (
        lambda: dcap_qvl.verify(quote, collateral, int(AT)),  # Intel's root, built in
        lambda: dcap_qvl.verify_with_root_ca(quote, collateral, OTHER.root_der, int(AT)),
    ):
        with pytest.raises(ValueError, match="root CA CRL"):
            refusing()
    assert not failed(quote, trust=machine.trust())


@pytest.mark.parametrize("version", MACHINES)
def test_both_verifiers_find_the_same_status(version: int) -> None:
    """Over a grid of patch levels: supported or not, status and advisories."""
    machine = MACHINES[version]
    quote, compared = machine.quote(DATA), 0
    everything = replace(machine.policy, tdx=TdxPolicy(tcb_statuses=dict.fromkeys(EVERY_STATUS)))  # type: ignore[arg-type]
    for module, major, third, now in product((0, 1, 2, 3), (0, 1), (0, 1, 2), (1, 2)):
        tail = bytes([now, 1, third]) + bytes(13 + 48) if version == 5 else b""
        raw = machine.requote(quote, tee_tcb_svn=bytes([module, major, third]) + bytes(13), tail=tail)
        try:
            theirs: Any = dcap.judge(raw, machine.collateral, machine.root_der, AT)
        except VerificationFailed:
            theirs = None
        trust = machine.trust(policy=everything)
        found = examine_cpu_evidence(
            evidence(raw), report_data=DATA, role="orchestrator", roots=trust.roots, reference=trust.reference,
            policy=trust.policy, at=AT, collateral=trust.collateral,
        )  # fmt: skip
        ours = None if found.tcb is None else found.tcb
        assert (ours is None) == (theirs is None), (module, major, third, now)
        if ours is not None:
            assert ours.status == theirs.status
            assert {*ours.advisories} >= {*theirs.advisories}, (
                "ours: those of the module at launch and of the present one"
            )
            assert version == 5 or ours.advisories == tuple(sorted(theirs.advisories))
            compared += 1
    assert compared > 8


def test_the_library_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MACHINES[4]
    raw, trust = machine.raw(DATA), machine.trust()
    honest = dcap.judge(raw, machine.collateral, machine.root_der, AT)
    for said, code in (
        ({"fmspc": "000000000000"}, "engine-disagrees"),
        ({"ppid": "00" * 16}, "engine-disagrees"),
        ({"report": {**honest.report, "mr_td": "00" * 48}}, "engine-disagrees"),
        ({"status": "OutOfDate"}, "tcb-status"),
        ({"status": "Revoked"}, "tcb-status"),
    ):
        monkeypatch.setattr(dcap, "judge", lambda *_, said=said: replace(honest, **said))
        refused(code, raw, trust=trust)


def test_what_only_the_library_refuses_is_refused_in_its_words() -> None:
    """Name constraints that are not critical: our own steps do not look for them."""
    machine = MACHINES[4]
    leaf, authority, root = x509.load_pem_x509_certificates(machine.keys.chain)[:3]
    for name, excludes in ((x509.DNSName("somebody.example"), False), (x509.DirectoryName(leaf.subject), True)):
        constraints = extension(x509.NameConstraints(None, [name]), critical=False)
        strange = issued_again(authority, machine.maker.root, constraints)
        chain = b"".join(certificate_pem(certificate) for certificate in (leaf, strange, root))
        quote = machine.quote(DATA)
        raw = pack_quote(quote.signed, replace(quote.signature, certification=chain))
        assert failed(raw, trust=machine.trust()) == ({"engine": "engine-refused"} if excludes else {})


def test_the_library_is_never_asked_beyond_its_reach() -> None:
    machine = MACHINES[4]
    good = (machine.raw(DATA), machine.collateral, machine.root_der)
    for quote, collateral, root, at in (
        (*good, AT + 400 * 86_400), (*good, -1.0), (*good, 1e30), (b"", *good[1:], AT), (*good[:2], b"", AT),
    ):  # fmt: skip
        with pytest.raises(VerificationFailed) as caught:
            dcap.judge(quote, collateral, root, at)
        assert caught.value.code == "engine-refused"


class PanicException(BaseException):
    """Named as what the library raises when it panics; that is a BaseException too."""


def test_a_panic_of_the_library_is_a_refusal_and_an_interrupt_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MACHINES[4]
    raised: list[BaseException] = []

    def verifier(_root: bytes) -> Any:
        raise raised[0]

    monkeypatch.setattr(dcap_qvl, "QuoteVerifier", verifier)
    for error, code in ((PanicException("boom"), "engine-failed"), (ValueError("no"), "engine-refused")):
        raised[:] = [error]
        refused(code, machine.raw(DATA), trust=machine.trust())
    raised[:] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        refused("engine-failed", machine.raw(DATA), trust=machine.trust())


def test_nonsense_from_the_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MACHINES[4]
    for answer in ("{}", "[]", "no json", json.dumps({"tcb": {}, "platform": {"pck": {}}, "report": {"TD10": {}}})):

        class Verifier:
            def __init__(self, _root: bytes, answer: str = answer) -> None:
                self._answer = answer

            def verify_with_policy(self, *_: Any) -> Any:
                return self

            def to_json(self) -> str:
                return self._answer

        monkeypatch.setattr(dcap_qvl, "QuoteVerifier", Verifier)
        refused("engine-failed", machine.raw(DATA), trust=machine.trust())


def test_expired_collateral_is_said_to_be_expired_whoever_says_it() -> None:
    machine = MACHINES[5]
    trust = machine.trust(collateral=machine.holding(make_collateral(machine.maker, AT, valid_days=1)))
    failure = refused("collateral-expired", machine.raw(DATA), trust=trust, at=AT + 2 * 86_400)
    assert parse_quote(machine.raw(DATA)).version == 5
    assert "2026" in str(failure.expected)
    with pytest.raises(VerificationFailed):
        verify_cpu_evidence(
            evidence(machine.raw(DATA)), report_data=DATA, role="orchestrator", roots=trust.roots,
            reference=trust.reference, policy=trust.policy, at=float("nan"), collateral=trust.collateral,
        )  # fmt: skip
