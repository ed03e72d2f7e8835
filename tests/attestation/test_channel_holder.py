"""The channel, seen by the orchestrator: a holder that is believed, and every one that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.attestation.channel import (
    CLOCK_SLACK_S,
    report_data,
    sign_one_time_key,
    verify_one_time_key,
)
from shared.canonical import sha256
from shared.crypto.hpke import OneTimeKey
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest
from shared.wire.visit import ChannelProof
from tests.adversary.rows import attack
from tests.attestation.channel_world import (
    ANSWER_NONCE,
    CHANNEL,
    ENROLLED_HOLDER,
    HOLDER,
    LIFETIME,
    MACHINE,
    ORCHESTRATOR,
    OTHER_SESSION,
    SESSION,
    b64,
    channel_offer,
    channel_proof,
    code_of,
    holder_checks,
    orchestrator_checks,
    orchestrator_runtime,
)
from tests.attestation.cpu_world import AT


def test_a_good_holder_is_believed_with_its_first_key() -> None:
    key = OneTimeKey.generate()
    holder = orchestrator_checks(channel_proof(holder_checks(channel_offer(orchestrator_runtime())), key=key))
    assert holder.signing_key == HOLDER.public
    assert holder.one_time_key.public == key.public
    assert holder.one_time_key.digest == sha256(key.public).hex()
    assert holder.cvm.role == "data_holder"
    with pytest.raises(TypeError):
        replace(holder)


@attack("H18", any="stopped: the proof names holder, enrolled key and challenge")
def test_a_holders_answer_is_for_one_offer_only() -> None:
    seen = holder_checks(channel_offer(orchestrator_runtime()))
    proof = channel_proof(seen)
    for change, code in (
        ({"nonce": "77" * 32}, "channel-nonce"),
        ({"session": OTHER_SESSION}, "channel-session"),
        ({"holder": "south"}, "channel-holder"),
        ({"manifest": "cd" * 32}, "channel-manifest"),
        ({"not_after": int(AT) + 601}, "channel-previous"),
    ):
        own = orchestrator_runtime(**change)
        assert code_of(lambda own=own: orchestrator_checks(proof, own)) == code  # type: ignore[misc]  # bound per turn
    assert (
        code_of(lambda: orchestrator_checks(proof, enrolled_key=PartyKey.generate().public)) == "channel-enrolled-key"
    )
    assert code_of(lambda: orchestrator_checks(proof, at=AT + 601)) == "channel-lifetime"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, cvm="orchestrator"))) == "cvm-measurement"
    late = channel_proof(seen, not_after=int(AT) + LIFETIME + CLOCK_SLACK_S + 1)
    assert code_of(lambda: orchestrator_checks(late)) == "channel-lifetime"


def test_reflection_is_refused() -> None:
    raw = orchestrator_runtime()
    seen = holder_checks(channel_offer(raw))
    mirrored = ChannelProof(
        runtime_data=b64(raw),
        evidence=MACHINE.evidence("orchestrator", report_data("orchestrator", raw)),
        one_time_key=channel_proof(seen).one_time_key,
    )
    assert code_of(lambda: orchestrator_checks(mirrored)) == "channel-role"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, signing=ORCHESTRATOR))) == "channel-reflection"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, signing=ENROLLED_HOLDER))) == "channel-reflection"


def test_one_time_keys_are_the_session_keys_word() -> None:
    seen = holder_checks(channel_offer(orchestrator_runtime()))
    good = channel_proof(seen)
    foreign = channel_proof(seen, signing=PartyKey.generate()).one_time_key
    stolen = good.model_copy(update={"one_time_key": foreign})
    assert code_of(lambda: orchestrator_checks(stolen)) == "bad-signature"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, channel="c_2"))) == "one-time-key-channel"
    names = {"session": SESSION, "holder": "north", "channel": CHANNEL}
    for what, other in (("session", OTHER_SESSION), ("holder", "south"), ("channel", "c_9")):
        changed = {**names, what: other}
        code = code_of(
            lambda changed=changed: verify_one_time_key(good.one_time_key, signing_key=HOLDER.public, **changed)  # type: ignore[misc]  # bound per turn
        )
        assert code == f"one-time-key-{what}"
    short = sign_one_time_key(HOLDER, nonce=ANSWER_NONCE, public=b"short", **names)
    with pytest.raises(BadRequest):
        verify_one_time_key(short, signing_key=HOLDER.public, **names)


# ------------------------------------------------------------------ offers
