"""The two signatures of a quote: by the machine's certified key over the quoting enclave, and by that enclave's key over the quote.

Knows no certificate, no time and no policy. Reference cpu-tee.md 1.2 steps 4 and 6.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.certificates import check_p256
from shared.attestation.quote import SignatureData, TdxQuote
from shared.canonical import sha256
from shared.errors import VerificationFailed


def check_qe_report(signature: SignatureData, pck: ec.EllipticCurvePublicKey) -> None:
    """The quoting enclave's report is by the machine's PCK key, and vouches for the attestation key.

    Raises:
        VerificationFailed: `quote-qe-signature`, `quote-qe-binding`.
    """
    qe = signature.qe_report
    check_p256(pck, signature.qe_signature, qe.raw, "quote-qe-signature", "the QE report is not by the PCK key")
    bound = sha256(signature.attestation_key + signature.qe_auth) + bytes(32)
    if qe.report_data != bound:
        raise VerificationFailed(
            "the QE report does not vouch for the attestation key",
            code="quote-qe-binding",
            expected=bound.hex(),
            got=qe.report_data.hex(),
        )


def check_quote_signature(quote: TdxQuote) -> None:
    """Header and body are signed by the attestation key. Raises: VerificationFailed `quote-signature`."""
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + quote.signature.attestation_key)
    except ValueError:
        raise VerificationFailed("the attestation key is not a point of P-256", code="quote-signature") from None
    failure = "the quote is not signed by its attestation key"
    check_p256(key, quote.signature.signature, quote.signed, "quote-signature", failure)
