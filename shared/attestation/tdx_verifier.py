"""The recipe for TDX evidence: from a quote to independent checks with a status each. Knows no session and mints nothing.

Two verifiers judge every quote. The steps below are our own (reference cpu-tee.md 1.2; the numbers in brackets are its): each has a
status of its own, so that expired is not forged and a wrong bit is named. Then the library dcap-qvl judges the whole quote again, and
must agree (step `engine`): a mistake of either alone accepts nothing. Only ours are: trailing bytes, root by fingerprint, the PCE id,
the lists' issue dates, roll-back, XFAM, a service TD accepted by name, all policy, and everything about our own measurements.

    layout [1]  certificate-chain [3]  root-set  collateral [2]  collateral-time [2]  collateral-rollback  revocation [3]
    qe-report [4]  qe-identity [5]  quote-signature [6]  tdx-module [8]  tcb-status [7, 9]  td-attributes [10]  xfam  service-td
    report-data  event-log  measurements  machine  platform-configuration  engine [2 to 9]
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cryptography.hazmat.primitives import serialization

from shared.attestation import dcap
from shared.attestation.collateral import Collateral, VerifiedCollateral
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.pck import PckIdentity
from shared.attestation.quote import TdxQuote, parse_quote
from shared.attestation.quote_signatures import check_qe_report, check_quote_signature
from shared.attestation.results import Examination, Recipe
from shared.attestation.tcb import TcbVerdict, check_module, check_qe, evaluate
from shared.attestation.tdx_appraisal import (
    check_attributes,
    check_configuration,
    check_event_log,
    check_machine,
    check_measurements,
    check_root_set,
    check_service_td,
    check_tcb,
    check_xfam,
)
from shared.claims.event_log import ZERO, EventLog
from shared.errors import BadRequest, VerificationFailed
from shared.names import CvmRole
from shared.wire.visit import Evidence

REPORT_DATA_BYTES = 64
T = TypeVar("T")


@dataclass(frozen=True)
class TdxExamination:
    """What was found: the checks, and as far as they could be read, the parts. Nothing here is believed by itself."""

    checks: Examination
    quote: TdxQuote | None = None
    pck: PckIdentity | None = None
    root_set: str | None = None
    collateral: VerifiedCollateral | None = None
    tcb: TcbVerdict | None = None
    tcb_status: str | None = None
    log: EventLog | None = None


class _NotChecked(Exception):
    """This check cannot be made, and why."""

    def __init__(self, code: str, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason, self.remedy = code, reason, remedy


def examine_tdx(
    evidence: Evidence, *, report_data: bytes | None, role: CvmRole | None, trust: CpuTrust, at: float
) -> TdxExamination:
    """Judge everything that can be judged; never raises for bad evidence.

    Args:
        report_data: the 64 bytes that the quote must cover; None: left unchecked, and said so.
        role: whose reference values count; None: left unchecked, and said so.
        at: the verifier's own time, seconds since 1970.
    """
    return _Examiner(evidence, report_data, role, trust, at).run()


class _Examiner:
    """One examination: what the steps found so far, and the steps."""

    def __init__(
        self, evidence: Evidence, report_data: bytes | None, role: CvmRole | None, trust: CpuTrust, at: float
    ) -> None:
        self._evidence, self._report_data, self._role = evidence, report_data, role
        self._trust, self._policy, self._at = trust, trust.policy, at
        self._store = trust.collateral or CollateralStore(trust.roots.certificates)
        self._recipe = Recipe()
        self._quote: TdxQuote | None = None
        self._pck: PckIdentity | None = None
        self._bundle: VerifiedCollateral | None = None
        self._tcb: TcbVerdict | None = None
        self._status: str | None = None
        self._log: EventLog | None = None

    def run(self) -> TdxExamination:
        for name, step in _STEPS.items():
            try:
                with self._recipe.step(name):
                    step(self)
            except _NotChecked as why:
                self._recipe.not_checked(name, why.code, why.reason, why.remedy)
            if self._quote is None:
                break  # nothing could be read: there is one failed check and no other
        pck = self._pck
        root_set = self._trust.roots.sets.get(pck.root_fingerprint) if pck else None
        return TdxExamination(
            self._recipe.done(), self._quote, pck, root_set, self._bundle, self._tcb, self._status, self._log
        )

    # ------------------------------------------------------------- what earlier steps found

    @property
    def quote(self) -> TdxQuote:
        return _found(self._quote, "the layout")

    @property
    def pck(self) -> PckIdentity:
        return _found(self._pck, "the certificate chain")

    @property
    def bundle(self) -> VerifiedCollateral:
        return _found(self._bundle, "the collateral")

    # --------------------------------------------------------------------------------- steps

    def layout(self) -> None:
        self._quote = parse_quote(_decoded(self._evidence.quote))

    def certificate_chain(self) -> None:
        self._pck = self._store.identify(self.quote.signature.certification, self._trust.roots.certificates)
        self._pck.check_time(self._at)

    def root_set(self) -> None:
        check_root_set(self._trust.roots.sets[self.pck.root_fingerprint], self._policy)

    def collateral(self) -> None:
        pck = self.pck
        sent = _decoded(self._evidence.endorsements)
        bundle = self._store.choose(pck, Collateral.parse(sent) if sent else None, self._at)
        bundle.check_platform(pck)
        self._bundle = bundle

    def collateral_time(self) -> None:
        self.bundle.check_time(self._at)

    def collateral_rollback(self) -> None:
        least = self._policy.tdx.minimum_evaluation
        if self.bundle.evaluation < least:
            raise VerificationFailed(
                "the collateral's evaluation is older than the policy allows",
                code="collateral-evaluation",
                expected=f"at least {least}",
                got=str(self.bundle.evaluation),
            )
        self._store.check_rollback(self.bundle, self._at)

    def revocation(self) -> None:
        self.bundle.check_revocation(self.pck)

    def qe_report(self) -> None:
        check_qe_report(self.quote.signature, self.pck.key)

    def qe_identity(self) -> None:
        check_qe(self.bundle.qe_identity, self.quote.signature.qe_report)

    def quote_signature(self) -> None:
        check_quote_signature(self.quote)

    def tdx_module(self) -> None:
        check_module(self.bundle.tcb_info, self.quote.body)

    def tcb_status(self) -> None:
        bundle, signature = self.bundle, self.quote.signature
        if not self._recipe.passed("collateral-time", "revocation"):
            raise _NotChecked("not-reached", "the collateral does not speak for this machine now")
        try:
            verdict = evaluate(bundle.tcb_info, bundle.qe_identity, self.pck.tcb, self.quote.body, signature.qe_report)
        except VerificationFailed as error:
            self._status = "Revoked" if error.code == "tcb-revoked" else "NotSupported"
            raise
        self._tcb, self._status = verdict, verdict.status
        check_tcb(verdict, self._policy.tdx, self._at)

    def td_attributes(self) -> None:
        check_attributes(self.quote.body)

    def xfam(self) -> None:
        check_xfam(self.quote.body)

    def service_td(self) -> None:
        check_service_td(self.quote.body, self._policy.tdx)

    def report_data(self) -> None:
        expected, got = self._report_data, self.quote.body.report_data
        if expected is None:
            raise _NotChecked("report-data-unknown", "no report data was given to compare with")
        if len(expected) != REPORT_DATA_BYTES:
            raise BadRequest(f"report data has 64 bytes, got {len(expected)}", code="bad-report-data")
        if not hmac.compare_digest(got, expected):
            raise VerificationFailed(
                "the quote does not cover these bytes", code="quote-report-data", expected=expected.hex(), got=got.hex()
            )

    def event_log(self) -> None:
        sent, boot, body = _decoded(self._evidence.event_log), _decoded(self._evidence.boot_log), self.quote.body
        if sent or boot:
            self._log = check_event_log(sent, boot, body)
        elif body.rtmr3 != ZERO:
            raise _NotChecked("event-log-missing", "the quote came without the event log of its runtime register")

    def measurements(self) -> None:
        if self._role is None:
            raise _NotChecked("role-unknown", "no role was given, so there are no reference values to compare with")
        profiles = self._policy.accepted(self._trust.reference.profiles(self._role))
        check_measurements(self.quote.body, profiles, self._role, self._log)

    def machine(self) -> None:
        check_machine(self.pck, self._policy)

    def platform_configuration(self) -> None:
        check_configuration(self.pck, self._policy.tdx)

    def engine(self) -> None:
        if not self._recipe.passed(*_BEFORE_ENGINE):
            raise _NotChecked("engine-not-asked", "the second verifier is asked only about what passed the first")
        if any(self.quote.body.mr_servicetd):
            # The policy names this service TD; the library refuses every one and cannot be told otherwise.
            raise _NotChecked("engine-service-td", "the second verifier cannot judge a VM with a service TD")
        root = self.pck.root.public_bytes(serialization.Encoding.DER)
        claims = dcap.judge(self.quote.exact, self.bundle.source, root, self._at)
        body = self.quote.body
        ours = (self.pck.fmspc, self.pck.ppid, body.mr_td.hex(), body.report_data.hex())
        theirs = (claims.fmspc, claims.ppid, claims.report.get("mr_td"), claims.report.get("report_data"))
        if ours != theirs:
            raise VerificationFailed("the two verifiers read different quotes", code="engine-disagrees")
        if self._tcb is not None and self._recipe.passed("tcb-status"):
            seen = TcbVerdict(claims.status, tuple(sorted({*self._tcb.advisories, *claims.advisories})), self._tcb.date)
            check_tcb(seen, self._policy.tdx, self._at)


_STEPS: dict[str, Callable[[_Examiner], None]] = {
    "layout": _Examiner.layout,
    "certificate-chain": _Examiner.certificate_chain,
    "root-set": _Examiner.root_set,
    "collateral": _Examiner.collateral,
    "collateral-time": _Examiner.collateral_time,
    "collateral-rollback": _Examiner.collateral_rollback,
    "revocation": _Examiner.revocation,
    "qe-report": _Examiner.qe_report,
    "qe-identity": _Examiner.qe_identity,
    "quote-signature": _Examiner.quote_signature,
    "tdx-module": _Examiner.tdx_module,
    "tcb-status": _Examiner.tcb_status,
    "td-attributes": _Examiner.td_attributes,
    "xfam": _Examiner.xfam,
    "service-td": _Examiner.service_td,
    "report-data": _Examiner.report_data,
    "event-log": _Examiner.event_log,
    "measurements": _Examiner.measurements,
    "machine": _Examiner.machine,
    "platform-configuration": _Examiner.platform_configuration,
    "engine": _Examiner.engine,
}
CHECKS = tuple(_STEPS)
# What the library would refuse in its own words; policy, in which it has no say, need not have been passed.
_BEFORE_ENGINE = frozenset(CHECKS[: CHECKS.index("service-td") + 1]) - {
    "root-set",
    "collateral-rollback",
    "tcb-status",
    "xfam",
}


def _found(value: T | None, what: str) -> T:
    if value is None:
        raise _NotChecked("not-reached", f"{what} could not be used, so there is nothing to check this with")
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("a part of the evidence is not base64", code="malformed-quote") from None
