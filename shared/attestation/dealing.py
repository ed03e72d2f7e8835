"""Dealing one holder its share of a session's key, within the channel that both have just attested. Knows no store and no HTTP.

    sealed    = HPKE(share key, share of 33 bytes, info = SHA-512("gput/asc/1 share" 00 ‖ share-key document))
    signature = Ed25519(session signing key, "gput/dealt-share" 00 ‖ SHA-512("gput/dealt-share" 00 ‖ share-key document ‖ sealed))

The share-key document names session, holder and channel, and is signed by the holder's attested session key. HPKE alone authenticates
nobody, hence the orchestrator's signature, checked before the share is opened. The document ends where its bracket closes.
"""

from __future__ import annotations

import base64

from shared.attestation.one_time_keys import VerifiedOneTimeKey, decoded
from shared.canonical import sha512
from shared.crypto.hpke import OneTimeKey, seal
from shared.crypto.secret import Secret
from shared.crypto.sharing import SHARE_BYTES
from shared.crypto.signing import PartyKey, verify
from shared.errors import VerificationFailed
from shared.wire.visit import DealtShare, Signed

LABEL = "gput/dealt-share"
SEAL_CONTEXT = b"gput/asc/1 share\x00"


def deal_share(share: Secret, *, share_key: VerifiedOneTimeKey, signing_key: PartyKey) -> DealtShare:
    """The orchestrator's word: "this is your share"."""
    sealed = seal(share_key.public, share.reveal(), _info(share_key.document))
    signature = signing_key.sign(LABEL, _transcript(share_key.document, sealed))
    return DealtShare(sealed=base64.b64encode(sealed).decode(), signature=base64.b64encode(signature).decode())


def open_dealt(dealt: DealtShare, *, signed_key: Signed, key: OneTimeKey, signing_key: bytes) -> Secret:
    """The holder's share; spends the share key.

    Args:
        signed_key: the holder's own statement of `key`, in this channel.
        signing_key: the verified orchestrator's session signing key, raw.

    Raises:
        VerificationFailed: `bad-signature` (key untouched), `hpke-open`, `share-malformed`. BadRequest: not base64.
    """
    document, sealed = decoded(signed_key.document), decoded(dealt.sealed)
    verify(signing_key, LABEL, _transcript(document, sealed), decoded(dealt.signature))
    share = Secret(key.open(sealed, _info(document)))
    if len(share) != SHARE_BYTES:
        raise VerificationFailed(f"a share has {SHARE_BYTES} bytes", code="share-malformed", got=str(len(share)))
    return share


def _transcript(document: bytes, sealed: bytes) -> bytes:
    return sha512(LABEL.encode() + b"\x00" + document + sealed)


def _info(document: bytes) -> bytes:
    return sha512(SEAL_CONTEXT + document)
