"""Monitor of law L10: what is emulated says so, and is believed only by who allows it. And of the end: the same model or a clear stop."""

from __future__ import annotations

from cryptography.x509 import load_pem_x509_certificates

from shared.canonical import cbor_value
from shared.errors import VerificationFailed
from shared.names import Backend
from shared.wire import gpu
from tests.laws.case import Case, Checks
from tests.laws.witness import Appraised

EMULATED = Backend.EMULATED.value


def law_10_nothing_emulated_passes_for_hardware(case: Case) -> Checks:
    """Everything here is emulated: evidence stands on roots that say so, whoever accepted it had both switches on, the same evidence is
    refused by a verifier as it is configured by default; statements, the session's page and every receipt name the backend."""
    check = Checks()
    appraisals = [event for event in case.timeline if isinstance(event, Appraised)]
    for event in appraisals:
        check(event.backend == EMULATED, f"emulated evidence of the {event.what} was taken for {event.backend}")
        both = event.allow_emulated and EMULATED in event.roots
        check(both, f"emulated evidence of the {event.what} was accepted by a policy that does not allow it")
    for event in {event.what: event for event in appraisals}.values():
        roots = [c.issuer.rfc4514_string() for c in load_pem_x509_certificates(event.chain.encode())]
        check(all(EMULATED in root for root in roots), f"the {event.what}'s evidence stands on a root called {roots}")
        check(_refused(event), f"the {event.what}'s evidence is accepted by the default production policy, too")
    for ran in case.witness.ran(gpu.CloseVisit):
        check(_statement(ran.answer.statement)["backend"] == EMULATED, "a device statement does not name its backend")
    if case.view:
        named = case.view["backend"]
        check(named in (EMULATED, None), f"the session's page names {named} as its backend")
        check(named or not case.witness.ran(gpu.Configure), "the session's page names no backend")
    return check


def _refused(event: Appraised) -> bool:
    try:
        event.again(False)
    except VerificationFailed as error:
        return error.code.endswith("-emulated")
    return False


def _statement(signed: bytes) -> dict[str, object]:
    payload: dict[str, object] = cbor_value(cbor_value(signed).value[2])
    return payload
