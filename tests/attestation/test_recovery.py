"""Who gets a holder's share of a session's key: an orchestrator attested for exactly that, in answer to a fresh nonce, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from shared.attestation.channel import report_data
from shared.attestation.recovery import (
    RecoveryExpectation,
    VerifiedRecovery,
    give_share,
    recovery_event,
    recovery_report_data,
    recovery_runtime,
    take_share,
    verify_recovery,
)
from shared.attestation.session_events import RECOVERY_EVENT
from shared.claims.event_log import Event
from shared.crypto.hpke import OneTimeKey
from shared.crypto.secret import Secret
from shared.errors import BadRequest, GputError, ProtocolViolation, VerificationFailed
from shared.wire.recovery import ShareOffer
from tests.adversary.rows import attack
from tests.attestation.channel_world import (
    ENROLLED_HOLDER,
    ENROLLED_ORCHESTRATOR,
    HOLDER_NONCE,
    MACHINE,
    MANIFEST,
    ORCHESTRATOR_NONCE,
    OTHER_SESSION,
    SESSION,
    b64,
)
from tests.attestation.cpu_world import AT

SHARE = Secret(bytes(range(33)))
EXPECTED = RecoveryExpectation(SESSION, "north", MANIFEST, HOLDER_NONCE, ENROLLED_ORCHESTRATOR.public)
KEY = OneTimeKey.generate()
HONEST: dict[str, Any] = {
    "session": SESSION, "holder": "north", "manifest": MANIFEST, "peer_nonce": HOLDER_NONCE,
    "enrolled_key": ENROLLED_ORCHESTRATOR.public, "key": KEY.public,
}  # fmt: skip


def offered(cvm: str = "orchestrator", *, event: bool = True, **changes: Any) -> ShareOffer:
    fields = HONEST | changes
    raw = recovery_runtime(**fields)
    content = recovery_event(fields["session"], fields["manifest"])
    events = (Event(register=3, type=RECOVERY_EVENT, content=content),) if event else other_event()
    evidence = MACHINE.evidence(cvm, recovery_report_data(raw), events)
    return ShareOffer(offer="o_1", runtime_data=b64(raw), evidence=evidence)


def other_event() -> tuple[Event, ...]:
    return (Event(register=3, type=RECOVERY_EVENT, content=recovery_event(OTHER_SESSION, MANIFEST)),)


def verified(offer: ShareOffer) -> VerifiedRecovery:
    return verify_recovery(offer, expected=EXPECTED, cpu=MACHINE.trust(), at=AT)


def refused(offer: ShareOffer) -> str:
    with pytest.raises(GputError) as caught:
        verified(offer)
    return caught.value.code


def test_an_attested_orchestrator_gets_the_share() -> None:
    key = OneTimeKey.generate()
    seen = verified(offered(key=key.public))
    sealed = give_share(SHARE, seen)
    assert SHARE.reveal() not in sealed
    assert take_share(sealed, key=key, runtime_data=seen.runtime_data) == SHARE
    with pytest.raises(ProtocolViolation):
        take_share(sealed, key=key, runtime_data=seen.runtime_data)
    assert len(bytes.fromhex(seen.measurement)) == 48


@attack("O02", any="stopped: holders give their shares of a session's key to known measurements only")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"session": OTHER_SESSION}, "recovery-session"),
        ({"holder": "south"}, "recovery-holder"),
        ({"manifest": "cd" * 32}, "recovery-manifest"),
        ({"peer_nonce": ORCHESTRATOR_NONCE}, "recovery-nonce"),
        ({"enrolled_key": ENROLLED_HOLDER.public}, "recovery-identity"),
        ({"cvm": "holder-north"}, "cvm-measurement"),
        ({"event": False}, "channel-event"),
        ({"key": KEY.public[:-1]}, "malformed-one-time-key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_is_not_asked_for_exactly_this_gets_nothing(changed: dict[str, Any], code: str) -> None:
    assert refused(offered(**changed)) == code


def test_a_quote_over_another_key_gets_nothing() -> None:
    """The platform puts its own key into the runtime data, or the quote of a channel in the place of this one."""
    honest, own = offered(), OneTimeKey.generate()
    swapped = honest.model_copy(update={"runtime_data": b64(recovery_runtime(**HONEST | {"key": own.public}))})
    assert refused(swapped) == "quote-report-data"
    raw = recovery_runtime(**HONEST)
    of_a_channel = MACHINE.evidence("orchestrator", report_data("orchestrator", raw), other_event())
    assert refused(honest.model_copy(update={"evidence": of_a_channel})) == "quote-report-data"


def test_runtime_data_of_another_purpose_is_malformed() -> None:
    with pytest.raises(BadRequest):
        verified(offered().model_copy(update={"runtime_data": b64(b'{"profile":"gput/asc/1"}')}))


def test_a_share_sealed_for_one_holder_opens_for_no_other() -> None:
    key = OneTimeKey.generate()
    seen = verified(offered(key=key.public))
    other = recovery_runtime(**HONEST | {"holder": "south", "key": key.public})
    with pytest.raises(VerificationFailed) as caught:
        take_share(give_share(SHARE, seen), key=key, runtime_data=other)
    assert caught.value.code == "hpke-open"


def test_only_the_verifier_makes_one() -> None:
    seen = verified(offered())
    with pytest.raises(TypeError):
        VerifiedRecovery(seen.runtime, seen.runtime_data, seen.measurement, seen.cvm)
