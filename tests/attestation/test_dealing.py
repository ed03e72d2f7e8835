"""A share reaches the holder it was dealt to, in its channel, from the orchestrator attested there; else nobody."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from shared.attestation.dealing import deal_share, open_dealt
from shared.attestation.one_time_keys import SHARE_KEY_LABEL, sign_one_time_key, verify_one_time_key
from shared.crypto.hpke import OneTimeKey
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from shared.wire.visit import DealtShare, Signed
from tests.attestation.channel_world import CHANNEL, HOLDER, ORCHESTRATOR, OTHER_SESSION, SESSION

SHARE = Secret(bytes(range(33)))


def stated(key: OneTimeKey, session: str = SESSION, holder: str = "north", channel: str = CHANNEL) -> Signed:
    return sign_one_time_key(
        HOLDER, session=session, holder=holder, channel=channel, nonce="0a" * 32, public=key.public, label=SHARE_KEY_LABEL
    )  # fmt: skip


def dealt(signed: Signed, share: Secret = SHARE, signing_key: PartyKey = ORCHESTRATOR, **to: str) -> DealtShare:
    addressee = {"session": SESSION, "holder": "north", "channel": CHANNEL, **to}
    key = verify_one_time_key(signed, signing_key=HOLDER.public, label=SHARE_KEY_LABEL, **addressee)
    return deal_share(share, share_key=key, signing_key=signing_key)


def test_it_arrives() -> None:
    key = OneTimeKey.generate()
    signed = stated(key)
    sent = dealt(signed)
    assert SHARE.reveal() not in b64decode(sent.sealed)
    assert open_dealt(sent, signed_key=signed, key=key, signing_key=ORCHESTRATOR.public) == SHARE
    assert key.used


@pytest.mark.parametrize(
    "other", [{"session": OTHER_SESSION}, {"holder": "south"}, {"channel": "c_2"}], ids=["session", "holder", "channel"]
)
def test_one_for_another_addressee_does_not_count(other: dict[str, str]) -> None:
    key = OneTimeKey.generate()
    elsewhere = dealt(stated(key, **other), **other)
    with pytest.raises(VerificationFailed) as caught:
        open_dealt(elsewhere, signed_key=stated(key), key=key, signing_key=ORCHESTRATOR.public)
    assert (caught.value.code, key.used) == ("bad-signature", False)


def test_a_share_that_somebody_else_seals_is_not_opened() -> None:
    key = OneTimeKey.generate()
    signed = stated(key)
    forged = dealt(signed, signing_key=PartyKey.generate())
    with pytest.raises(VerificationFailed) as caught:
        open_dealt(forged, signed_key=signed, key=key, signing_key=ORCHESTRATOR.public)
    assert (caught.value.code, key.used) == ("bad-signature", False)


def test_a_changed_share_does_not_open() -> None:
    key = OneTimeKey.generate()
    signed = stated(key)
    sent, other = dealt(signed), dealt(signed, Secret(b"\x01" * 33))
    mixed = DealtShare(sealed=other.sealed, signature=sent.signature)
    with pytest.raises(VerificationFailed):
        open_dealt(mixed, signed_key=signed, key=key, signing_key=ORCHESTRATOR.public)


def test_what_is_no_share_is_refused() -> None:
    key = OneTimeKey.generate()
    signed = stated(key)
    with pytest.raises(VerificationFailed) as caught:
        open_dealt(dealt(signed, Secret(b"short")), signed_key=signed, key=key, signing_key=ORCHESTRATOR.public)
    assert caught.value.code == "share-malformed"


def test_a_visits_key_is_no_share_key() -> None:
    """Both are signed by the same session key; a platform that swaps them in the proof has two signatures that do not verify."""
    key = OneTimeKey.generate()
    for label, other in ((SHARE_KEY_LABEL, "gput/one-time-key"), ("gput/one-time-key", SHARE_KEY_LABEL)):
        signed = sign_one_time_key(
            HOLDER, session=SESSION, holder="north", channel=CHANNEL, nonce="0a" * 32, public=key.public, label=label
        )
        with pytest.raises(VerificationFailed, match="signature"):
            verify_one_time_key(
                signed, signing_key=HOLDER.public, session=SESSION, holder="north", channel=CHANNEL, label=other
            )
    assert b64encode(key.public).decode() in b64decode(signed.document).decode()
