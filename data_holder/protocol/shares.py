"""Both shares of an offered visit's traffic key, before this holder agrees on one (travel mode `direct`). Pure: bytes in.

Attack V25: whoever swaps the holder's share or the GPU's would agree a key with one of them, and read what it seals.
"""

from __future__ import annotations

from data_holder.trust import AttestedGpu
from shared.attestation.one_time_keys import decoded
from shared.attestation.shares import verify_granted_share
from shared.crypto.cose import load_verifier
from shared.errors import Refused
from shared.wire.visit import OfferDocument


def check_shares(document: OfferDocument, own: bytes | None, gpu: AttestedGpu) -> None:
    """The grant names this holder's own share, and as the GPU's the one that the attested GPU signed for this very visit.

    Args:
        own: the share that went with the one-time key this offer answers; None where the session's travel mode agrees none.

    Raises:
        Refused: `shares-not-planned`, `share-swapped`, `no-statement-key`.
        VerificationFailed: `share-mismatch`, `share-swapped`, or the signature.
    """
    shares = document.grant.shares
    if own is None or shares is None:
        if own is not None or shares is not None or document.gpu_share:
            raise Refused("the offer names shares where the approved travel mode has none, or none where it has",
                          code="shares-not-planned")  # fmt: skip
        return
    if shares.holder != own.hex():
        raise Refused("the grant names another share than this holder sent", code="share-swapped",
                      expected=own.hex(), got=shares.holder)  # fmt: skip
    if not gpu.statement_key:
        raise Refused(
            "this GPU certified no statement key, so nobody knows whose share this is", code="no-statement-key"
        )
    key = load_verifier(gpu.statement_key)
    verify_granted_share(document.grant, decoded(document.gpu_share), key, device=gpu.device)
