"""What lies beside the evidence in a set of files: certificates, manifests, collateral, lists. Knows the pieces, and no policy.

Nothing is believed for being there: certificates become roots only by a pinned fingerprint, manifests by their signatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import serialization

from shared.attestation.certificate_files import amd_certificate, ders_of, is_amd_leaf, pem_ders
from shared.attestation.collateral import Collateral
from shared.attestation.evidence_pieces import FileKind, GpuParts, Piece, SignerParts, decoded_base64
from shared.attestation.gpu_rim import RimKind, parse_rim
from shared.attestation.rim_store import RimSource
from shared.wire.visit import Evidence

MAX_CANDIDATES: Final = 8


def of_kind(pieces: Sequence[Piece], *kinds: FileKind) -> list[Piece]:
    """The pieces of these kinds that their own parser takes."""
    return [piece for piece in pieces if piece.kind in kinds and not piece.fault]


def certificates(pieces: Sequence[Piece]) -> tuple[bytes, ...]:
    """DER of every certificate in the files, those inside quotes, chains, manifests and collateral included."""
    return tuple(dict.fromkeys(der for piece in pieces for der in _inside(piece)))


def _inside(piece: Piece) -> Iterator[bytes]:
    match piece.kind:
        case FileKind.CERTIFICATES:
            yield from ders_of(piece.data)
        case FileKind.TDX_QUOTE:
            yield from pem_ders(piece.data)
        case FileKind.DRIVER_RIM | FileKind.VBIOS_RIM:
            links = parse_rim(piece.rim_kind, piece.data).chain.certificates
            yield from (link.public_bytes(serialization.Encoding.DER) for link in links)
        case FileKind.COLLATERAL if not piece.fault:
            yield from pem_ders(Collateral.parse(piece.data).tcb_info_issuer_chain.encode())
    match piece.parts:
        case GpuParts(chain=chain):
            yield from pem_ders(chain.encode("utf-8", "replace"))
        case Evidence(quote=quote):
            yield from pem_ders(decoded_base64(quote))
        case SignerParts(evidence=evidence, gpu=gpu):
            yield from pem_ders(decoded_base64(evidence.quote))
            yield from pem_ders(gpu.chain.encode("utf-8", "replace"))


def chains(pieces: Sequence[Piece]) -> list[str]:
    """PEM texts that may be a GPU's chain."""
    texts = (piece.data for piece in of_kind(pieces, FileKind.CERTIFICATES) if b"-----BEGIN" in piece.data)
    return [text.decode("utf-8", "replace") for text in texts][:MAX_CANDIDATES]


def amd_leaves(pieces: Sequence[Piece]) -> list[bytes]:
    """VCEKs and VLEKs, DER."""
    ders = (der for piece in of_kind(pieces, FileKind.CERTIFICATES) for der in ders_of(piece.data))
    return [der for der in ders if is_amd_leaf(der)][:MAX_CANDIDATES]


def amd_intermediates(pieces: Sequence[Piece]) -> tuple[bytes, ...]:
    """ASKs and ASVKs, DER: AMD's certificates that are neither leaf nor root."""
    found = []
    for piece in of_kind(pieces, FileKind.CERTIFICATES):
        for der in ders_of(piece.data):
            certificate = amd_certificate(der)
            if certificate is not None and not certificate.self_issued and not is_amd_leaf(der):
                found.append(der)
    return tuple(found[:MAX_CANDIDATES])


@dataclass(frozen=True)
class OfferedRims:
    """Manifests among the files: the one for the version asked for; else what `beside` has; else another of the kind, to be refused."""

    pieces: tuple[Piece, ...]
    beside: RimSource | None = None

    def find(self, kind: RimKind, name: str, *, ask: bool = True) -> bytes | None:
        """As `RimSource.find`."""
        wanted = FileKind.DRIVER_RIM if kind == "driver" else FileKind.VBIOS_RIM
        offered = of_kind(self.pieces, wanted)
        for piece in offered:
            version = parse_rim(kind, piece.data).version
            if name.endswith(f"_{version if kind == 'driver' else version.replace('.', '').upper()}"):
                return piece.data
        found = self.beside.find(kind, name, ask=ask) if self.beside is not None else None
        return found if found is not None or not offered else offered[0].data
