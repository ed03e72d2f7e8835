"""A collateral bundle: nine signed parts, read strictly and verified up to one pinned root. Knows no folder, no quote and no policy.

Two forms are read: one JSON document of nine members (chains in PEM, lists and signatures in hex, signed texts exactly as signed), and
the answers of a collateral service as they arrive (reference cpu-tee.md 1.2 steps 2 and 3). What was verified once need not be again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from urllib.parse import unquote

from cryptography import x509

from shared.attestation.certificates import (
    MAX_CHAIN_BYTES,
    MAX_CRL_BYTES,
    RevocationList,
    Window,
    authority_name,
    check_issued,
    check_p256,
    check_signs,
    is_authority,
    load_chain,
    p256_key,
    validity,
)
from shared.attestation.pck import WRONG_ROOT, PckIdentity, certificate_fingerprint
from shared.attestation.tcb_info import MAX_TEXT_BYTES, QeIdentity, TcbInfo, parse_signed
from shared.canonical import cbor_bytes, json_bytes, json_value, sha256
from shared.errors import BadRequest, VerificationFailed
from shared.wire.collateral import CollateralAnswers

MAX_BUNDLE_BYTES = 4 * 1024 * 1024
REMEMBERED, REMEMBERED_BYTES = 16, 256 * 1024
"""So many documents, each no longer than this (a maker's have 30 to 60 kB), are not read anew: 4 MiB at most."""
UNSIGNED, MALFORMED, EXPIRED = "collateral-broken", "collateral-malformed", "collateral-expired"
RENEW = "fetch current collateral into the trust folder (an emulated installation: manufacture again, then restart)"
_INNER = re.compile(r'^\s*\{\s*"(\w+)"\s*:\s*(\{.*\})\s*,\s*"signature"\s*:\s*"([0-9a-fA-F]{128})"\s*\}\s*$', re.DOTALL)


@dataclass(frozen=True)
class Collateral:
    """The nine parts, not yet believed. Chains: PEM text, leaf first; lists: DER; signatures: r ‖ s, 64 bytes."""

    pck_crl_issuer_chain: str
    root_ca_crl: bytes
    pck_crl: bytes
    tcb_info_issuer_chain: str
    tcb_info: str
    tcb_info_signature: bytes
    qe_identity_issuer_chain: str
    qe_identity: str
    qe_identity_signature: bytes

    @classmethod
    def parse(cls, data: bytes) -> Collateral:
        """From the JSON document of nine members. Raises: BadRequest `malformed-collateral`."""
        return _remembered(data) if len(data) <= REMEMBERED_BYTES else _read(data)

    @classmethod
    def from_answers(cls, answers: CollateralAnswers) -> Collateral:
        """From a collateral service's answers. Raises: BadRequest `malformed-collateral`."""
        info, info_signature = _inner(answers.tcb_info, "tcbInfo")
        identity, identity_signature = _inner(answers.qe_identity, "enclaveIdentity")
        crl_chain, tcb_chain, qe_chain = (
            unquote(chain) if "%" in chain else chain
            for chain in (answers.pck_crl_chain, answers.tcb_chain, answers.qe_chain)
        )
        return cls(
            pck_crl_issuer_chain=crl_chain,
            root_ca_crl=answers.root_ca_crl,
            pck_crl=answers.pck_crl,
            tcb_info_issuer_chain=tcb_chain,
            tcb_info=info,
            tcb_info_signature=info_signature,
            qe_identity_issuer_chain=qe_chain,
            qe_identity=identity,
            qe_identity_signature=identity_signature,
        )

    def __post_init__(self) -> None:
        for name, (kind, least, most) in _SIZES.items():
            part: str | bytes = getattr(self, name)
            if not isinstance(part, kind) or not least <= len(part) <= most:
                raise _malformed(f"{name} has {len(part)} bytes")
            if isinstance(part, str) and not part.isascii():
                raise _malformed(f"{name} is not ASCII")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the nine members in order (CBOR: canonical JSON of a document this long takes a millisecond), hex."""
        return sha256(cbor_bytes([getattr(self, field.name) for field in fields(self)])).hex()

    def document(self) -> bytes:
        """The JSON document of nine members, canonical."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return json_bytes({name: part.hex() if isinstance(part, bytes) else part for name, part in parts.items()})


def _read(data: bytes) -> Collateral:
    if len(data) > MAX_BUNDLE_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    value = json_value(data, MAX_BUNDLE_BYTES)
    names = {field.name for field in fields(Collateral)}
    if not isinstance(value, dict) or value.keys() != names or not all(isinstance(v, str) for v in value.values()):
        raise _malformed(f"it is not a JSON object of the texts {', '.join(sorted(names))}")
    try:
        octets = {name: bytes.fromhex(value[name]) for name in names if _SIZES[name][0] is bytes}
    except ValueError:
        raise _malformed("a list or signature is not hexadecimal") from None
    return Collateral(**{**value, **octets})


_remembered = lru_cache(REMEMBERED)(_read)
"""The same document comes along with every quote of a machine; what cannot be read is not remembered."""
_SIZES: Mapping[str, tuple[type, int, int]] = {
    "pck_crl_issuer_chain": (str, 1, MAX_CHAIN_BYTES),
    "root_ca_crl": (bytes, 1, MAX_CRL_BYTES),
    "pck_crl": (bytes, 1, MAX_CRL_BYTES),
    "tcb_info_issuer_chain": (str, 1, MAX_CHAIN_BYTES),
    "tcb_info": (str, 2, MAX_TEXT_BYTES),
    "tcb_info_signature": (bytes, 64, 64),
    "qe_identity_issuer_chain": (str, 1, MAX_CHAIN_BYTES),
    "qe_identity": (str, 2, MAX_TEXT_BYTES),
    "qe_identity_signature": (bytes, 64, 64),
}


@dataclass(frozen=True)
class VerifiedCollateral:
    """A bundle whose every signature leads to `root`. Only `verify_collateral` makes it. Time is judged at each use, not here."""

    source: Collateral
    root: x509.Certificate
    root_fingerprint: str
    tcb_info: TcbInfo
    qe_identity: QeIdentity
    authority: x509.Certificate
    signers: tuple[tuple[str, x509.Certificate], ...]
    root_crl: RevocationList
    pck_crl: RevocationList
    windows: tuple[Window, ...]

    @cached_property
    def authority_name(self) -> str:
        """Who issues the certificates that its PCK list is about."""
        return authority_name(self.authority)

    @property
    def evaluation(self) -> int:
        """The lower of both tcbEvaluationDataNumbers."""
        return min(self.tcb_info.tcb_evaluation_data_number, self.qe_identity.tcb_evaluation_data_number)

    @property
    def issued(self) -> float:
        """When the newest of its parts was issued; before that, nobody can have had it."""
        return max(window.start for window in self.windows)

    def current(self, at: float) -> bool:
        """Whether every part counts at this time."""
        return all(window.start <= at <= window.end for window in self.windows)

    def check_time(self, at: float) -> None:
        """Every part counts at this time. Raises: Expired `collateral-expired`."""
        for window in self.windows:
            window.check(at, EXPIRED, RENEW)

    def check_platform(self, pck: PckIdentity) -> None:
        """It speaks of this machine's kind and of its certificate authority. Raises: VerificationFailed `collateral-…`."""
        sides = (
            ("fmspc", "FMSPC", pck.fmspc, self.tcb_info.fmspc.hex()),
            ("pce-id", "PCE id", pck.pce_id, self.tcb_info.pce_id.hex()),
            ("authority", "certificate authority", pck.authority_name, self.authority_name),
        )
        for code, name, expected, got in sides:
            if expected != got:
                raise VerificationFailed(
                    f"the collateral is for another {name}", code=f"collateral-{code}", expected=expected, got=got
                )

    def check_revocation(self, pck: PckIdentity) -> None:
        """Nothing in the machine's chain or behind the collateral was withdrawn. Raises: VerificationFailed `collateral-revoked`."""
        self.pck_crl.check("PCK leaf", pck.leaf, "collateral-revoked")
        self.root_crl.check("platform CA", pck.authority, "collateral-revoked")
        self.check_signers()

    def check_signers(self) -> None:
        """Nobody behind the collateral was withdrawn by its own root's list. Raises: VerificationFailed `collateral-revoked`."""
        for name, certificate in self.signers:
            self.root_crl.check(name, certificate, "collateral-revoked")


def verify_collateral(source: Collateral, root: x509.Certificate) -> VerifiedCollateral:
    """Check every signature of a bundle, up to exactly this root.

    Raises:
        VerificationFailed: `collateral-root`, `collateral-broken`, `collateral-malformed`.
    """
    authority = _under(root, source.pck_crl_issuer_chain, "PCK list's issuer", authority=True)
    tcb_signer = _under(root, source.tcb_info_issuer_chain, "TCB info's signer", authority=False)
    qe_signer = _under(root, source.qe_identity_issuer_chain, "QE identity's signer", authority=False)
    _check_text("TCB info", source.tcb_info, source.tcb_info_signature, tcb_signer)
    _check_text("QE identity", source.qe_identity, source.qe_identity_signature, qe_signer)
    info = parse_signed(TcbInfo, source.tcb_info, "TCB info")
    identity = parse_signed(QeIdentity, source.qe_identity, "QE identity")
    root_crl = RevocationList("root revocation list", source.root_ca_crl, root, UNSIGNED)
    pck_crl = RevocationList("PCK revocation list", source.pck_crl, authority, UNSIGNED)
    signers = (
        ("PCK list's issuer", authority),
        ("TCB info's signer", tcb_signer),
        ("QE identity's signer", qe_signer),
        ("root", root),
    )
    windows = (info.window, identity.window, root_crl.window, pck_crl.window, *(validity(*s) for s in signers))
    return VerifiedCollateral(
        source, root, certificate_fingerprint(root), info, identity, authority, signers, root_crl, pck_crl, windows
    )


def _under(root: x509.Certificate, pem: str, name: str, *, authority: bool) -> x509.Certificate:
    certificate, offered = load_chain(pem.encode(), 2, f"chain of the {name}", MALFORMED)
    if offered != root:
        raise VerificationFailed(
            f"{WRONG_ROOT}: the {name} stands under another",
            code="collateral-root",
            expected=certificate_fingerprint(root),
            got=certificate_fingerprint(offered),
        )
    check_issued(name, certificate, root, UNSIGNED)
    if not authority:
        check_signs(name, certificate, UNSIGNED)
    elif not is_authority(certificate):
        raise VerificationFailed(f"the {name} is no certificate authority", code=UNSIGNED)
    return certificate


def _check_text(name: str, text: str, signature: bytes, signer: x509.Certificate) -> None:
    key = p256_key(f"signer of the {name}", signer, UNSIGNED)
    check_p256(key, signature, text.encode(), UNSIGNED, f"the {name} is not signed by its signer")


def _inner(body: bytes, name: str) -> tuple[str, bytes]:
    """The signed text exactly as it stands in an answer {"NAME": TEXT, "signature": HEX}, and the signature."""
    if len(body) > MAX_TEXT_BYTES:
        raise _malformed(f"the answer with {name} has {len(body)} bytes")
    try:
        found = _INNER.match(body.decode())
    except UnicodeDecodeError:
        found = None
    if found is None or found[1] != name:
        raise _malformed(f"the answer does not consist of {name} and its signature")
    return found[2], bytes.fromhex(found[3])


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"collateral: {why}", code="malformed-collateral")
