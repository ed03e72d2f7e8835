"""Publishing the emulated GPU's reference values: a RIM authority per installation, two manifests in the trust folder. Knows no HTTP.

    platform/gpu/rim-authority.pem (0600), rim-chain.pem    L3's key, and L3, L2, L1; the keys of L1 and L2 are dropped
    trust/rim-roots.pem, trust/rim/NAME.xml                 what verifiers need, named as NVIDIA's service names manifests

Idempotent. When the firmware changed, the manifests are made anew by a new L4 signer, whose key is dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography import x509

from gpu_agent.hardware.firmware import DRIVER_VERSION, VBIOS_VERSION, Firmware
from gpu_agent.hardware.root_of_trust import unsigned_of
from gpu_agent.platform.authority_files import load_authority, write_authority
from gpu_agent.platform.device_pki import Issued, make_intermediate, make_rim_signer, make_root
from gpu_agent.platform.rim_document import make_rim
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_rim import RimKind, check_signature, parse_rim, rim_name
from shared.attestation.p384_chain import Chain, check_links
from shared.crypto.private_file import replace_public
from shared.errors import VerificationFailed
from shared.wire.spdm import SIGNATURE_BYTES, get_measurements

PRODUCT: Final = "GH100"
RIM_INDICES: Final[dict[RimKind, tuple[int, ...]]] = {
    "driver": (7, *range(21, 41)),
    "vbios": (*range(7), *range(8, 13)),
}
"""Entries (block minus 1) that are active in published manifests of each kind for a GH100; they cover every block that holds something."""
_VERSIONS: Final[dict[RimKind, str]] = {"driver": DRIVER_VERSION, "vbios": VBIOS_VERSION}


def rim_authority(folder: Path, installation: str) -> tuple[Issued, list[x509.Certificate]]:
    """The installation's RIM authority (L3), and the certificates from it up to the root; made when there is none."""
    key_file, chain_file = folder / "rim-authority.pem", folder / "rim-chain.pem"
    if not key_file.exists():
        root = make_root(installation, "rim")
        product = make_intermediate(root, f"Reference Value {PRODUCT} CA")
        authority = make_intermediate(product, f"Reference Value L3 {PRODUCT} 001", path_length=0)
        write_authority(key_file, chain_file, authority, [product.certificate, root.certificate])
    return load_authority(key_file, chain_file)


def publish_rims(folder: Path, authority: Issued, above: list[x509.Certificate], firmware: Firmware) -> None:
    """Both manifests for this firmware under the names that its own reports lead to; one that stands is kept.

    Args:
        folder: the trust folder's `rim/`. above: from the authority to the root.
    """
    unsigned = unsigned_of(firmware, get_measurements(bytes(32)), bytes(32))
    report = parse_report(unsigned + bytes(SIGNATURE_BYTES))
    for kind, indices in RIM_INDICES.items():
        path = folder / f"{rim_name(kind, report, PRODUCT)}.xml"
        golden = {index: firmware.measurements[index] for index in indices}
        if not _stands(path, kind, golden, above):
            signer = make_rim_signer(authority)
            version = _VERSIONS[kind]
            replace_public(path, make_rim(product=PRODUCT, version=version, golden=golden, signer=signer, above=above))


def _stands(path: Path, kind: RimKind, golden: dict[int, bytes], above: list[x509.Certificate]) -> bool:
    """Whether the folder has a manifest of this authority that says exactly this."""
    try:
        rim = parse_rim(kind, path.read_bytes())
        check_signature(kind, rim)
        chain = Chain((rim.chain.certificates[0], *above), rim.chain.name, rim.chain.code)
        check_links(chain)
    except (OSError, VerificationFailed):
        return False
    said = {index: values[0] for index, values in rim.golden.items() if len(values) == 1}
    return (said, rim.version, rim.product) == (golden, _VERSIONS[kind], PRODUCT)
