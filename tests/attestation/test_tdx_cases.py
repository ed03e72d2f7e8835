"""Genuine TDX evidence, and a foreign emulator's, judged as published: every case beside this checkout. Skipped where they are absent."""

from __future__ import annotations

import base64
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from shared.attestation.ccel import parse_ccel, replay_ccel
from shared.attestation.collateral import Collateral, verify_collateral
from shared.attestation.collateral_folder import read_answers
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import INTEL_SGX_ROOT, CpuReference, CpuRoots
from shared.attestation.cpu_verifier import CpuPolicy, examine_cpu_evidence, verify_cpu_evidence
from shared.attestation.pck import certificate_fingerprint
from shared.attestation.quote import parse_quote
from shared.attestation.results import CheckStatus
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import BadRequest, ConfigurationError, VerificationFailed
from shared.names import Backend
from shared.wire.visit import Evidence
from tests.cpu_time import cpu_seconds

REAL = Path(__file__).parents[3] / "shared" / "evidence" / "tdx"
CASES: list[dict[str, Any]] = json.loads((REAL / "cases.json").read_bytes())["cases"] if REAL.is_dir() else []
pytestmark = pytest.mark.skipif(not CASES, reason="real evidence samples are not beside this checkout")
NOTHING = CpuReference.load(b'{"cvms": {}}')
FOUND = {  # the first check that is not passed, in words a person is shown
    "s02-expired": ("collateral-time", "expired"),
    "s03-too-early": ("collateral-time", "expired"),
    "s04-outofdate": ("tcb-status", "fail"),
    "s06-debug": ("td-attributes", "fail"),
    "s07-septve": ("tcb-status", "fail"),
    "s08-servicetd": ("service-td", "fail"),
    "s09-no-tcb-level": ("tcb-status", "fail"),
    "s12-cos-later": ("tcb-status", "fail"),
    "s13-wrong-fmspc": ("collateral", "fail"),
    "s14-parse-only": ("collateral", "fail"),
    "s23-emu-outofdate": ("tcb-status", "fail"),
    "s24-emu-debug": ("td-attributes", "fail"),
    "s25-emu-under-intel-root": ("certificate-chain", "fail"),
    "s26-intel-under-emu-root": ("certificate-chain", "fail"),
    "s27-emu-revoked": ("revocation", "fail"),
}


class Case:
    """One published case, ready to be verified: its root, collateral and time, and the guest's own measurement as the agreed one."""

    def __init__(self, case: dict[str, Any], **tdx: Any) -> None:
        self.case = case
        self.raw = (REAL / case["quote"]).read_bytes()
        self.body = parse_quote(self.raw).body
        root = x509.load_der_x509_certificate((REAL / case["root"]).read_bytes())
        name = certificate_fingerprint(root)
        root_set: Any = "INTEL" if name == INTEL_SGX_ROOT else "EMULATED"
        self.roots = CpuRoots({name: root}, {name: root_set})
        self.policy = CpuPolicy(
            roots=(root_set,), allow_emulated=True, measurements=(self.body.mr_td.hex(),), tdx=TdxPolicy(**tdx)
        )
        self.bundle = (REAL / case["collateral"]).read_bytes() if case["collateral"] else b""
        self.boot_log = (REAL / case["eventlog"]).read_bytes() if "eventlog" in case else b""

    def arguments(self, *, sent: bool = False) -> dict[str, Any]:
        """Arguments of the verifier. `sent`: the collateral comes with the evidence instead of from the store."""
        store = CollateralStore(self.roots.certificates)
        if self.bundle and not sent:
            with suppress(VerificationFailed):  # of another root than this case's: then there is none to judge by
                store.learn(Collateral.parse(self.bundle))
        encoded = {
            "quote": self.raw, "endorsements": self.bundle if sent else b"", "boot_log": self.boot_log,
        }  # fmt: skip
        evidence = Evidence(**{name: base64.b64encode(part).decode() for name, part in encoded.items()})
        return {
            "evidence": evidence, "report_data": self.body.report_data, "role": "orchestrator", "roots": self.roots,
            "reference": NOTHING, "policy": self.policy, "at": float(self.case["time_unix"]), "collateral": store,
        }  # fmt: skip

    def accepted(self, **options: Any) -> bool:
        try:
            verify_cpu_evidence(**self.arguments(**options))
        except VerificationFailed:
            return False
        return True


@pytest.mark.parametrize("sent", [False, True], ids=["stored", "sent-along"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_case_is_judged_as_published(case: dict[str, Any], sent: bool) -> None:
    ready = Case(case)
    found = examine_cpu_evidence(**ready.arguments(sent=sent))
    assert ready.accepted(sent=sent) is (case["verdict"] == "accept")
    assert found.tcb_status == (None if case["tcb_status"] is None else case["tcb_status"])
    stands = found.checks.refused([("event-log", CheckStatus.NOT_CHECKED)])
    assert (stands and (stands.name, stands.status.value)) == FOUND.get(case["id"])
    signatures = {found.checks.find(name).status for name in ("quote-signature",)}
    assert signatures == {CheckStatus.PASS}, "no published case is forged"
    if case["crypto"] == "ok":
        assert found.checks.find("engine").status is not CheckStatus.FAIL or case["tcb_status"] == "NotSupported"


@pytest.mark.parametrize(
    "case", [case for case in CASES if "verdict_if_outofdate_allowed" in case], ids=lambda c: c["id"]
)
def test_out_of_date_is_a_matter_of_policy(case: dict[str, Any]) -> None:
    allowed = {"UpToDate": None, "OutOfDate": None}
    assert Case(case, tcb_statuses=allowed).accepted() is (case["verdict_if_outofdate_allowed"] == "accept")
    advisories = case.get("advisories", [])
    for advisory in advisories:
        assert not Case(case, tcb_statuses=allowed, rejected_advisories=(advisory,)).accepted()
    assert not Case(case, tcb_statuses={"UpToDate": None, "OutOfDate": 1}).accepted()


def case(name: str, **tdx: Any) -> Case:
    return Case(next(c for c in CASES if c["id"] == name), **tdx)


def test_who_is_accepted_is_named_and_none_is_emulated() -> None:
    for name, backend in (("s01", Backend.HARDWARE), ("s05-v5", Backend.HARDWARE), ("s20-emu-v4", Backend.EMULATED)):
        assert verify_cpu_evidence(**case(name).arguments()).backend is backend
    for name in ("s20-emu-v4", "s25-emu-under-intel-root"):
        foreign = case(name)
        foreign.policy = replace(foreign.policy, roots=("INTEL", "AMD"), allow_emulated=False)
        assert not foreign.accepted()


def test_a_named_service_td_is_accepted_and_another_is_not() -> None:
    bound = case("s08-servicetd").body.mr_servicetd.hex()
    assert case("s08-servicetd", service_tds=(bound,)).accepted()
    assert not case("s08-servicetd", service_tds=("00" * 47 + "01",)).accepted()


def test_every_real_machine_has_smt_or_a_dynamic_platform() -> None:
    """Hence both are allowed by default; a policy that forbids them is obeyed."""
    for name in ("s01", "s05-v5", "s10-azure", "s11-cos"):
        assert not case(name, allow_smt=False).accepted()
        assert not case(name, allow_dynamic_platform=False).accepted()
    assert case("s10-azure", allow_cached_keys=False).accepted()
    assert not case("s01", allow_cached_keys=False).accepted()


def test_later_collateral_takes_an_earlier_verdict_back_and_is_not_rolled_back() -> None:
    """The same quote, judged with what came out in between: UpToDate, then OutOfDate, and the old word no longer counts."""
    first, later = case("s11-cos"), case("s12-cos-later")
    arguments = first.arguments()
    store: CollateralStore = arguments["collateral"]
    store.learn(Collateral.parse(later.bundle))
    assert verify_cpu_evidence(**arguments).tcb_status == "UpToDate"
    with pytest.raises(VerificationFailed) as caught:
        verify_cpu_evidence(**{**arguments, "at": float(later.case["time_unix"])})
    assert caught.value.code == "tcb-status"


def test_padding_is_tolerated_and_anything_else_after_the_quote_is_not() -> None:
    padded = case("s11-cos")
    assert len(padded.raw) == 8000
    for raw in (padded.raw + b"\0", parse_quote(padded.raw).exact):
        padded.raw = raw
        assert padded.accepted()
    padded.raw += b"x"
    with pytest.raises(BadRequest):
        parse_quote(padded.raw)
    assert not padded.accepted()


def test_collateral_as_it_arrives_from_the_service_is_read(tmp_path: Path) -> None:
    root = x509.load_der_x509_certificate((REAL / "roots" / "intel-sgx-root-ca.der").read_bytes())
    bundles = {bundle.fingerprint: bundle for bundle in read_answers(REAL / "pcs-raw")}
    found = {verify_collateral(bundle, root).tcb_info.fmspc.hex() for bundle in bundles.values()}
    assert (found, len(bundles)) == ({"90c06f000000", "00a06d080000"}, 4), "each under either certificate authority"
    shutil.copytree(REAL / "pcs-raw", tmp_path / "january")
    store = CollateralStore.load(tmp_path, {INTEL_SGX_ROOT: root})
    arguments = {**case("s10-azure").arguments(), "collateral": store, "at": 1_769_000_000.0}  # January 2026
    assert verify_cpu_evidence(**arguments).tcb_status == "UpToDate"
    (tmp_path / "january" / "root_ca.crl").write_bytes(b"no list")
    with pytest.raises(ConfigurationError) as caught:
        CollateralStore.load(tmp_path, {INTEL_SGX_ROOT: root})
    assert (caught.value.code, "january" in caught.value.detail) == ("bad-collateral", True)


def test_the_boot_log_of_the_real_machine_gives_its_registers() -> None:
    log, quote = case("s11-cos").boot_log, case("s11-cos").body
    events = parse_ccel(log)
    assert len(events) == 43
    assert replay_ccel(events) == {0: quote.rtmr0, 1: quote.rtmr1, 2: quote.rtmr2}
    changed = case("s11-cos")
    changed.boot_log = log.replace(events[7].digest, bytes(48))
    check = examine_cpu_evidence(**changed.arguments()).checks.find("event-log")
    assert (check.status, check.code) == (CheckStatus.FAIL, "event-log")
    assert not changed.accepted()


def test_a_verification_takes_under_five_milliseconds() -> None:
    """Collateral and chain known."""
    arguments = case("s01").arguments()
    verify_cpu_evidence(**arguments)

    def twenty() -> None:
        for _ in range(20):
            verify_cpu_evidence(**arguments)

    assert cpu_seconds(twenty, 0.100) < 0.100
