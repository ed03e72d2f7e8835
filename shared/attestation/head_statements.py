"""Which log head a holder remembers, stated over the challenge of the orchestrator's start that asks. Knows no tree, no store and no HTTP.

    signature = Ed25519(the holder's enrolled key, "gput/head-statement" 00 ‖ canonical JSON of HeadStatement)

The key is the one that the manifest's roster names: no attested channel stands yet when heads are collected (design 4.3), because a channel
needs the GPU, and the GPU is not touched before the log is known to be whole.
"""

from __future__ import annotations

import base64
from dataclasses import InitVar, dataclass

from pydantic import ValidationError

from shared.attestation.one_time_keys import decoded
from shared.canonical import json_bytes, json_value
from shared.crypto.signing import PartyKey, verify
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import HeadStatement, Signed

LABEL = "gput/head-statement"
_MINT = object()


@dataclass(frozen=True)
class VerifiedHeadStatement:
    """A head that its holder signed over this start's challenge. Only `verify_head_statement` makes it.

    `size` leaves under `root` (32 bytes); `receipt` is a leaf hash (32 bytes) or None; `signed` is the statement exactly as it came, for
    whoever checks it later.
    """

    holder: str
    size: int
    root: bytes
    receipt: bytes | None
    signed: Signed
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedHeadStatement is made by verify_head_statement only")


def sign_head_statement(
    key: PartyKey, *, session: str, holder: str, challenge: str, size: int, root: bytes, receipt: bytes | None
) -> Signed:
    """The holder's statement. `challenge` 32 bytes, hex; `root` and `receipt` 32 bytes."""
    statement = HeadStatement(
        session=session, holder=holder, challenge=challenge, size=size, root=root.hex(),
        receipt=None if receipt is None else receipt.hex(),
    )  # fmt: skip
    document = json_bytes(statement.model_dump(mode="json"))
    return Signed(
        document=base64.b64encode(document).decode(), signature=base64.b64encode(key.sign(LABEL, document)).decode()
    )


def verify_head_statement(
    signed: Signed, *, key: bytes, session: str, holder: str, challenge: str
) -> VerifiedHeadStatement:
    """Check the signature first, then that the statement is this holder's, about this session and an answer to this challenge.

    Args:
        key: the holder's enrolled key, raw, as the manifest's roster names it.

    Raises:
        BadRequest: `malformed-head-statement`, `malformed-base64`.
        VerificationFailed: `bad-signature`, `head-session`, `head-holder`, `head-challenge`.
    """
    document = decoded(signed.document)
    verify(key, LABEL, document, decoded(signed.signature))
    try:
        statement = HeadStatement.model_validate(json_value(document))
    except ValidationError:
        raise BadRequest("the head statement is malformed", code="malformed-head-statement") from None
    for what, expected, got in (
        ("session", session, statement.session),
        ("holder", holder, statement.holder),
        # An answer to an earlier start would show an older head as the newest one.
        ("challenge", challenge, statement.challenge),
    ):
        if expected != got:
            raise VerificationFailed(
                f"the head statement is for another {what}", code=f"head-{what}", expected=expected, got=got
            )
    receipt = None if statement.receipt is None else bytes.fromhex(statement.receipt)
    return VerifiedHeadStatement(holder, statement.size, bytes.fromhex(statement.root), receipt, signed, _MINT)
