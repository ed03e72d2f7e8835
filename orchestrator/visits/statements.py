"""Statements of the GPU under its statement key: which key that is was said in clear, by a certificate of the device's. Knows no claim."""

from __future__ import annotations

from orchestrator.in_clear import in_clear
from orchestrator.visits.run import Run
from shared.crypto.cose import verify1
from shared.errors import VerificationFailed


def stated(run: Run, statement: bytes) -> bytes:
    """What the GPU signed. The statement came over this life's channel, so it is the GPU's; the certificate did not, and may be one of an
    earlier boot of the same device, which anybody can have kept: the next life asks for it again.

    Raises:
        VerificationFailed: this life knows no statement key. Conflict: it is not signed by that one.
    """
    if run.life.statement_key is None:
        raise VerificationFailed("The GPU has no certified statement key", code="no-statement-key")
    with in_clear("The GPU signs with another statement key than who answered for its agent said"):
        return verify1(statement, run.life.statement_key)
