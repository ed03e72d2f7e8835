"""Manufacturing of one emulated GPU: identity, attestation leaf for the installed firmware, roots and manifests. Knows no HTTP.

    platform/gpu/provisioner.pem (0600), chain.pem     the factory: L3's key, and L3, L2, L1; the keys of L1 and L2 are dropped
    devices/GPU/identity.pem (0600), identity-chain.pem  the device's ROM: L4's key, permanent
    devices/GPU/leaf.pem (0600), chain.pem             L5 for the firmware that is installed now, and the whole chain, leaf first
    trust/gpu-roots.pem, rim-roots.pem, rim/           what verifiers need (`rim_manufacture` makes the manifests)

Idempotent. When the firmware changed, the leaf is issued anew under the same identity, as on a real device after an update.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509

from gpu_agent.hardware.firmware import Firmware, measure_firmware
from gpu_agent.hardware.root_of_trust import CHAIN_FILE, LEAF_FILE
from gpu_agent.platform.authority_files import add_root, load_authority, write_authority
from gpu_agent.platform.device_pki import PDI_BYTES, Issued, make_identity, make_intermediate, make_leaf, make_root
from gpu_agent.platform.files import Installation
from gpu_agent.platform.manufacture import NAME
from gpu_agent.platform.rim_manufacture import publish_rims, rim_authority
from shared.attestation.gpu_chain import certified_firmware, parse_chain
from shared.errors import ConfigurationError, EmulationWarning, VerificationFailed

IDENTITY_FILE: Final = "identity.pem"
IDENTITY_CHAIN_FILE: Final = "identity-chain.pem"
Entropy = Callable[[int], bytes]


def manufacture_device(directory: Path, gpu_id: str, *, entropy: Entropy = secrets.token_bytes) -> None:
    """Make or complete the device `gpu_id` of the installation in `directory`.

    Args:
        entropy: source of the device's identity number and of the installation's name; keys come from the crypto library.

    Raises:
        ConfigurationError: a malformed name, code that cannot be measured, a damaged file.
    """
    if not NAME.fullmatch(gpu_id):
        raise ConfigurationError(f"GPU name {gpu_id!r} is malformed", code="bad-gpu-name")
    warnings.warn("this GPU is EMULATED: its evidence proves nothing", EmulationWarning, stacklevel=2)
    place, firmware = Installation(directory), measure_firmware()
    factory, above = _factory(place.platform / "gpu", entropy)
    add_root(place.trust / "gpu-roots.pem", above[-1])
    folder = place.devices / gpu_id
    identity, upper = _identity(folder, factory, above, entropy)
    _leaf(folder, identity, upper, firmware)
    authority, issuers = rim_authority(place.platform / "gpu", entropy(4).hex())
    add_root(place.trust / "rim-roots.pem", issuers[-1])
    publish_rims(place.trust / "rim", authority, issuers, firmware)


def _factory(folder: Path, entropy: Entropy) -> tuple[Issued, list[x509.Certificate]]:
    """The provisioner (L3), and the certificates from it up to the root."""
    key_file, chain_file = folder / "provisioner.pem", folder / CHAIN_FILE
    if not key_file.exists():
        root = make_root(entropy(4).hex())
        product = make_intermediate(root, "GH100 Identity")
        provisioner = make_intermediate(product, "GH100 Provisioner ICA 1")
        write_authority(key_file, chain_file, provisioner, [product.certificate, root.certificate])
    return load_authority(key_file, chain_file)


def _identity(
    folder: Path, factory: Issued, above: list[x509.Certificate], entropy: Entropy
) -> tuple[Issued, list[x509.Certificate]]:
    key_file, chain_file = folder / IDENTITY_FILE, folder / IDENTITY_CHAIN_FILE
    if not key_file.exists():
        write_authority(key_file, chain_file, make_identity(factory, entropy(PDI_BYTES)), above)
    return load_authority(key_file, chain_file)


def _leaf(folder: Path, identity: Issued, upper: list[x509.Certificate], firmware: Firmware) -> None:
    if _leaf_stands(folder, identity, firmware):
        return
    leaf = make_leaf(identity, firmware.fwid)
    (folder / LEAF_FILE).unlink(missing_ok=True)
    write_authority(folder / LEAF_FILE, folder / CHAIN_FILE, leaf, upper)


def _leaf_stands(folder: Path, identity: Issued, firmware: Firmware) -> bool:
    """Whether the device has a leaf of this identity for this firmware."""
    if not (folder / LEAF_FILE).exists():
        return False
    try:
        chain = parse_chain((folder / CHAIN_FILE).read_text())
        return chain.certificates[1] == identity.certificate and certified_firmware(chain) == firmware.fwid
    except (OSError, UnicodeDecodeError, VerificationFailed):
        return False
