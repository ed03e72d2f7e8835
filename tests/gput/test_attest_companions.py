"""What lies beside evidence takes away what it must, whichever file it is in and was named first: lists, collateral, companies."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from gpu_agent.platform.collateral_maker import make_collateral
from gput.attest.documents import judge
from gput.attest.judging import Judged
from gput.attest.table import print_checks
from gput.attest.timing import times
from gput.attest.trust import Trust, Wish
from shared.attestation.collateral import Collateral
from shared.attestation.evidence_files import pieces_of
from shared.attestation.snp_trust import SnpPolicy, SnpProfile, SnpRoots, SnpTrust
from shared.errors import BadRequest
from shared.wire.snp_certificates import ASK, CRL, VCEK
from tests.attestation import snp_world as snp
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.gpu_evidence_world import Factory
from tests.gput.attest_world import make

MACHINE, GPU = Machine(), Factory()
LEAF = x509.load_pem_x509_certificates(MACHINE.keys.chain)[0]
DATA = snp.REPORT_DATA
QUOTE = MACHINE.raw(DATA)
OLD, NEW = make_collateral(MACHINE.maker, AT - 172_800), make_collateral(MACHINE.maker, AT - 3600, revoked=[LEAF])
WISH = Wish(at=AT, report_data=DATA, role="orchestrator", allow_emulated=True)
PLATFORM, CHIP = snp.platform(), snp.good_chip()
REPORT = snp.signed(snp.body(), CHIP.key)
TABLE = snp.table({VCEK: CHIP.leaf, ASK: PLATFORM.ask.der})
Found = list[tuple[str, str]]


def trust() -> Trust:
    """Anew for every verdict: a store remembers. AMD's intermediates come with the evidence only."""
    known = SnpProfile(measurement=snp.MEASUREMENT.hex())
    own = SnpTrust(SnpRoots.load(PLATFORM.pem()), {"orchestrator": (known,)}, SnpPolicy())
    return Trust(GPU.trust, MACHINE.trust(collateral=MACHINE.holding()), own)


def judged(*files: bytes) -> list[Judged]:
    return judge([piece for number, data in enumerate(files) for piece in pieces_of(data, f"{number}")], trust(), WISH)


def told(*files: bytes) -> Found:
    """(kind, code of the refusal or "") of everything that was judged."""
    return [(one.kind, one.refusal.code if one.refusal else "") for one in judged(*files)]


def cvm(bundle: Collateral) -> bytes:
    """A machine's quote with collateral of its own, as it travels."""
    own = {"quote": QUOTE, "endorsements": bundle.document()}
    return json.dumps({name: base64.b64encode(part).decode() for name, part in own.items()}).encode()


def crl(*serials: int, issuer: snp.Authority = PLATFORM.ark, entries: int = 0) -> bytes:
    """A root's list of withdrawn certificates; `entries`: so many more, of no concern here."""
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.certificate.subject)
    builder = builder.last_update(snp.day(-5)).next_update(snp.day(300))
    for serial in (*serials, *range(10**9, 10**9 + entries)):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(snp.day(-6)).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(issuer.key, hashes.SHA384(), rsa_padding=snp.PSS).public_bytes(serialization.Encoding.DER)


ASK_REVOKED = crl(PLATFORM.ask.certificate.serial_number)


def every_order(files: Sequence[bytes], expected: Found) -> None:
    for order in permutations(files):
        assert set(told(*order)) == set(expected)


# ------------------------------------------------------------------------------ collateral


def test_collateral_that_revokes_counts_in_every_order() -> None:
    assert told(QUOTE, OLD.document()) == [("TDX quote", "")]
    every_order((QUOTE, OLD.document(), NEW.document()), [("TDX quote", "collateral-revoked")])


def test_collateral_that_revokes_counts_beside_what_came_with_the_evidence() -> None:
    assert told(cvm(OLD)) == [("TDX quote", "")]
    every_order((cvm(OLD), NEW.document()), [("TDX quote", "collateral-revoked")])


def test_collateral_that_came_with_one_quote_counts_for_the_others() -> None:
    for order in ((OLD, NEW), (NEW, OLD)):
        assert told(*map(cvm, order)) == [("TDX quote", "collateral-revoked")] * 2


def test_collateral_that_is_not_genuine_is_named_beside_evidence_that_does_without_it() -> None:
    forged = json.dumps({**json.loads(OLD.document()), "tcb_info_signature": "00" * 64}).encode()
    for beside in ((cvm(OLD),), (QUOTE, OLD.document())):
        assert told(*beside, forged) == [("TDX quote", ""), ("TDX collateral", "collateral-broken")]


# ---------------------------------------------------------------------- AMD's lists and tables


@pytest.mark.parametrize("beside", [(CHIP.leaf, PLATFORM.ask.der), (TABLE,)], ids=["leaf", "table"])
def test_a_list_reaches_every_company(beside: tuple[bytes, ...]) -> None:
    assert told(REPORT, *beside) == [("SEV-SNP report", "")]
    every_order((REPORT, *beside, ASK_REVOKED), [("SEV-SNP report", "snp-revoked")])


def test_a_list_reaches_evidence_that_brings_its_own_table() -> None:
    evidence = PLATFORM.evidence(REPORT, CHIP.leaf).model_dump_json().encode()
    assert told(evidence) == [("SEV-SNP report", "")]
    every_order((evidence, ASK_REVOKED), [("SEV-SNP report", "snp-revoked")])
    assert told(evidence, snp.table({CRL: ASK_REVOKED})) == [("SEV-SNP report", "snp-revoked")]


def test_a_host_s_list_that_has_ended_counts_as_none() -> None:
    """A service that gets it in the table beside a report accepts that report, and so do the same bytes in two files."""
    ended = snp.crl(start=-20, end=-10)
    assert told(REPORT, snp.table({VCEK: CHIP.leaf, ASK: PLATFORM.ask.der, CRL: ended})) == [("SEV-SNP report", "")]
    assert told(REPORT, TABLE, ended) == [("SEV-SNP report", "snp-crl-expired")]  # a person's own word


def test_no_list_is_crowded_out() -> None:
    clean = [crl(number) for number in range(1, 4)]
    assert told(REPORT, TABLE, *clean, ASK_REVOKED) == [("SEV-SNP report", "snp-revoked")]


def test_a_list_that_cannot_be_read_is_no_absent_one() -> None:
    with pytest.raises(BadRequest, match="revocation list cannot be read") as caught:
        told(REPORT, TABLE, crl(entries=3000))
    assert caught.value.code == "malformed-evidence"


def test_a_list_that_nothing_is_looked_up_in_is_not_passed_over() -> None:
    for beside in ((QUOTE, OLD.document()), (OLD.document(),)):
        found = told(*beside, ASK_REVOKED)
        assert (found[0][1], found[1:]) == ("", [("revocation list", "no-evidence")])


def test_a_bench_of_several_takes_a_list_for_the_one_that_it_belongs_to(tmp_path: Path) -> None:
    files = make(tmp_path)
    named = [piece for name in ("quote.bin", "snp.bin", "table.bin") for piece in pieces_of(
        (files.folder / name).read_bytes(), name)]  # fmt: skip
    rows = times([*named, *pieces_of(crl(1), "ark.crl")], files.trust, WISH, 1)
    assert [(row["evidence"], row["verdict"]) for row in rows] == [("quote.bin", "accepted"), ("snp.bin", "accepted")]


# --------------------------------------------------------------------------------- companies


def test_of_two_companies_that_signed_the_withdrawn_one_is_shown() -> None:
    """The same leaf under two certificates of one intermediate key; the maker withdrew one of them."""
    first, renewed = (snp.authority("SEV-EMULATED", "ask", PLATFORM.ark, serial=number) for number in (4710, 4711))
    stale, fresh = (snp.table({VCEK: CHIP.leaf, ASK: issuer.der}) for issuer in (first, renewed))
    assert told(REPORT, fresh, crl(4710)) == [("SEV-SNP report", "")]
    every_order((REPORT, stale, fresh, crl(4710)), [("SEV-SNP report", "snp-revoked")])


def test_another_machines_withdrawn_chain_says_nothing_of_this_one() -> None:
    other = snp.authority("SEV-EMULATED", "asvk", PLATFORM.ark, serial=4712)
    stranger = snp.table({VCEK: snp.chip(other).leaf, ASK: other.der})
    every_order((REPORT, TABLE, stranger, crl(4712)), [("SEV-SNP report", "")])


# ------------------------------------------------------------------------------------ text


def test_what_evidence_says_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A member that an event log must not have, whose name would rub the verdict out and write another."""
    for name in ("\x1b[1A\x1b[2Kaccepted, trust affirming\x1b[8m", "\ud800", "a\nb"):
        log = json.dumps({"profile": "gput/event-log/1", "entries": [], name: 1}).encode()
        own = {"quote": QUOTE, "endorsements": OLD.document(), "event_log": log}
        evidence = json.dumps({part: base64.b64encode(data).decode() for part, data in own.items()}).encode()
        (found,) = judged(evidence)
        print_checks(f"{name}: {found.title}", found.record["checks"], found.words)
        told = capsys.readouterr().out
        assert "\nrefused: event log" in told
        assert all(letter.isprintable() or letter == "\n" for letter in told)
        assert len(told.splitlines()) == 1 + len(found.record["checks"]) + 2
