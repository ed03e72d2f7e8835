"""Believing a GPU's share of a visit's key: signed by the statement key that its attested leaf certified. Knows no store, no HTTP."""

from __future__ import annotations

from pydantic import ValidationError

from shared.claims.exact import claim_of
from shared.claims.share import ShareStatement
from shared.claims.visit import Grant
from shared.crypto.cose import Verifier, verify1
from shared.errors import BadRequest, VerificationFailed


def verify_gpu_share(
    statement: bytes, key: Verifier, *, device: str, session: str, life: int, epoch: int, holder: str
) -> ShareStatement:
    """The statement, if this very device made its share for this epoch and this holder (attack V25).

    Raises:
        BadRequest, VerificationFailed: the signature; `share-malformed`; `share-mismatch` naming the field.
    """
    return share_of(verify1(statement, key), device=device, session=session, life=life, epoch=epoch, holder=holder)


def share_of(payload: bytes, *, device: str, session: str, life: int, epoch: int, holder: str) -> ShareStatement:
    """As `verify_gpu_share`, of what was verified to be signed by the device's statement key. Raises: VerificationFailed."""
    try:
        claims = claim_of(ShareStatement, payload)
    except (ValidationError, BadRequest):
        raise VerificationFailed("the GPU's statement of its share is malformed", code="share-malformed") from None
    expected = {"device": device, "session": session, "life": life, "epoch": epoch, "holder": holder}
    for name, value in expected.items():
        if getattr(claims, name) != value:
            raise VerificationFailed(
                f"the GPU's share is for another {name}", code="share-mismatch",
                expected=str(value), got=str(getattr(claims, name)),
            )  # fmt: skip
    return claims


def verify_granted_share(grant: Grant, statement: bytes, key: Verifier, *, device: str) -> None:
    """That the share a grant names as the GPU's is the GPU's, made for this visit.

    Raises:
        BadRequest, VerificationFailed: as `verify_gpu_share`; `share-swapped`: the grant names another.
    """
    claims = verify_gpu_share(
        statement, key, device=device, session=grant.session, life=grant.life, epoch=grant.epoch, holder=grant.holder
    )
    named = None if grant.shares is None else grant.shares.gpu
    if claims.share != named:
        raise VerificationFailed(
            "the grant names another share than the GPU signed",
            code="share-swapped",
            expected=claims.share,
            got=str(named),
        )
