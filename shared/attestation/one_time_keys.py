"""One-time HPKE keys, vouched for by the holder's attested session signing key. Knows no offer, no store and no HTTP."""

from __future__ import annotations

import base64
import binascii
from dataclasses import InitVar, dataclass

from pydantic import ValidationError

from shared.canonical import json_bytes, json_value, sha256
from shared.crypto.hpke import PUBLIC_BYTES
from shared.crypto.signing import PartyKey, verify
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import OneTimeKey, Signed

LABEL = "gput/one-time-key"
SHARE_KEY_LABEL = "gput/share-key"
"""Of a one-time key that a share of the session's key is sealed to, and nothing else."""
_MINT = object()


@dataclass(frozen=True)
class VerifiedOneTimeKey:
    """A one-time public key that the holder's session key signed. Only `verify_one_time_key` makes it.

    `document` is the exact signed bytes; `public` the raw HPKE key; `digest` SHA-256 of it, hex, as in `Grant.recipient`.
    `share`: the X25519 share that came with it, raw. That a nonce or key is new is for the store to say.
    """

    document: bytes
    public: bytes
    digest: str
    nonce: str
    session: str
    holder: str
    channel: str
    share: bytes | None
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedOneTimeKey is made by verify_one_time_key only")


def sign_one_time_key(
    key: PartyKey,
    *,
    session: str,
    holder: str,
    channel: str,
    nonce: str,
    public: bytes,
    share: bytes | None = None,
    label: str = LABEL,
) -> Signed:
    """The holder's statement: "seal the next visit's key to this", and in travel mode `direct` "agree its traffic key with this share".

    `nonce` 32 random bytes, hex.
    """
    document = json_bytes(
        OneTimeKey(
            session=session,
            holder=holder,
            channel=channel,
            nonce=nonce,
            key=base64.b64encode(public).decode(),
            share=None if share is None else share.hex(),
        ).model_dump(mode="json")
    )
    return Signed(
        document=base64.b64encode(document).decode(),
        signature=base64.b64encode(key.sign(label, document)).decode(),
    )


def verify_one_time_key(
    signed: Signed, *, signing_key: bytes, session: str, holder: str, channel: str, label: str = LABEL
) -> VerifiedOneTimeKey:
    """Check signature first, then that the key is for this session, holder and channel.

    Raises:
        BadRequest: `malformed-one-time-key`.
        VerificationFailed: `bad-signature`, `one-time-key-session`, `one-time-key-holder`, `one-time-key-channel`.
    """
    document = decoded(signed.document)
    verify(signing_key, label, document, decoded(signed.signature))
    try:
        parsed = OneTimeKey.model_validate(json_value(document))
    except ValidationError:
        raise BadRequest("the one-time key document is malformed", code="malformed-one-time-key") from None
    for what, expected, got in (
        ("session", session, parsed.session),
        ("holder", holder, parsed.holder),
        ("channel", channel, parsed.channel),
    ):
        if expected != got:
            raise VerificationFailed(
                f"the one-time key is for another {what}", code=f"one-time-key-{what}", expected=expected, got=got
            )
    public = decoded(parsed.key)
    if len(public) != PUBLIC_BYTES:
        raise BadRequest(f"a one-time key has {PUBLIC_BYTES} bytes", code="malformed-one-time-key")
    return VerifiedOneTimeKey(
        document,
        public,
        sha256(public).hex(),
        parsed.nonce,
        parsed.session,
        parsed.holder,
        parsed.channel,
        None if parsed.share is None else bytes.fromhex(parsed.share),
        _MINT,
    )


def decoded(text: str) -> bytes:
    """Bytes of strict base64. Raises: BadRequest."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("a field is not base64", code="malformed-base64") from None
