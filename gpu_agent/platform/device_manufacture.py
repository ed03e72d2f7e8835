"""Manufacturing of one emulated GPU: identity, attestation leaf for the installed firmware, root and golden values. Knows no HTTP.

    platform/gpu/provisioner.pem (0600), chain.pem     the factory: L3's key, and L3, L2, L1; the keys of L1 and L2 are dropped
    devices/GPU/identity.pem (0600), identity-chain.pem  the device's ROM: L4's key, permanent
    devices/GPU/leaf.pem (0600), chain.pem             L5 for the firmware that is installed now, and the whole chain, leaf first
    trust/gpu-roots.pem, trust/reference.json "gpu"    what verifiers need

Idempotent. When the firmware changed, the leaf is issued anew under the same identity, as on a real device after an update.
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509

from gpu_agent.hardware.firmware import DRIVER_VERSION, VBIOS_VERSION, Firmware, measure_firmware
from gpu_agent.hardware.root_of_trust import CHAIN_FILE, LEAF_FILE, load_private
from gpu_agent.platform.device_pki import (
    PDI_BYTES,
    Issued,
    certificate_pem,
    key_pem,
    make_identity,
    make_intermediate,
    make_leaf,
    make_root,
)
from gpu_agent.platform.files import Installation, write_public, write_secret
from gpu_agent.platform.manufacture import NAME
from shared.attestation.gpu_chain import parse_chain, public_key, verify_dice
from shared.canonical import json_value
from shared.errors import BadRequest, ConfigurationError, EmulationWarning, VerificationFailed

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
    _add_root(place.trust / "gpu-roots.pem", above[-1])
    folder = place.devices / gpu_id
    identity, upper = _identity(folder, factory, above, entropy)
    _leaf(folder, identity, upper, firmware)
    _write_reference(place.reference, firmware)


def _factory(folder: Path, entropy: Entropy) -> tuple[Issued, list[x509.Certificate]]:
    """The provisioner (L3), and the certificates from it up to the root."""
    key_file, chain_file = folder / "provisioner.pem", folder / CHAIN_FILE
    if not key_file.exists():
        root = make_root(entropy(4).hex())
        product = make_intermediate(root, "GH100 Identity")
        provisioner = make_intermediate(product, "GH100 Provisioner ICA 1")
        _write_chain(chain_file, [provisioner.certificate, product.certificate, root.certificate])
        # The key comes last: while it is absent an interrupted run is done over as a whole.
        write_secret(key_file, key_pem(provisioner.key))
    return _load(key_file, chain_file)


def _identity(
    folder: Path, factory: Issued, above: list[x509.Certificate], entropy: Entropy
) -> tuple[Issued, list[x509.Certificate]]:
    key_file, chain_file = folder / IDENTITY_FILE, folder / IDENTITY_CHAIN_FILE
    if not key_file.exists():
        identity = make_identity(factory, entropy(PDI_BYTES))
        _write_chain(chain_file, [identity.certificate, *above])
        write_secret(key_file, key_pem(identity.key))
    return _load(key_file, chain_file)


def _leaf(folder: Path, identity: Issued, upper: list[x509.Certificate], firmware: Firmware) -> None:
    if _leaf_stands(folder, identity, firmware):
        return
    leaf = make_leaf(identity, firmware.fwid)
    (folder / LEAF_FILE).unlink(missing_ok=True)
    _write_chain(folder / CHAIN_FILE, [leaf.certificate, *upper])
    write_secret(folder / LEAF_FILE, key_pem(leaf.key))


def _leaf_stands(folder: Path, identity: Issued, firmware: Firmware) -> bool:
    """Whether the device has a leaf of this identity for this firmware."""
    if not (folder / LEAF_FILE).exists():
        return False
    try:
        chain = parse_chain((folder / CHAIN_FILE).read_text())
        return verify_dice(chain[0], identity.key.public_key()) == firmware.fwid
    except (OSError, UnicodeDecodeError, VerificationFailed):
        return False


def _load(key_file: Path, chain_file: Path) -> tuple[Issued, list[x509.Certificate]]:
    key = load_private(key_file)
    try:
        chain = x509.load_pem_x509_certificates(chain_file.read_bytes())
    except (OSError, ValueError):
        chain = []
    if not chain or public_key(chain[0]) != key.public_key():
        raise ConfigurationError(
            f"{chain_file.parent.name}/{chain_file.name} does not belong to {key_file.name}",
            code="installation-file",
            remedy="manufacture the installation anew in an empty folder",
        )
    return Issued(chain[0], key), chain


def _write_chain(path: Path, chain: list[x509.Certificate]) -> None:
    write_public(path, b"".join(certificate_pem(certificate) for certificate in chain))


def _add_root(path: Path, root: x509.Certificate) -> None:
    pem = certificate_pem(root)
    known = path.read_bytes() if path.exists() else b""
    if pem not in known:
        write_public(path, known + pem)


def _write_reference(path: Path, firmware: Firmware) -> None:
    try:
        reference = json_value(path.read_bytes()) if path.exists() else {}
    except BadRequest:
        reference = None
    if not isinstance(reference, dict):
        raise ConfigurationError(f"{path.name} is damaged", code="installation-file", remedy="remove it and run again")
    reference["gpu"] = {
        "driver_version": DRIVER_VERSION,
        "vbios_version": VBIOS_VERSION,
        "measurements": {str(block): [value.hex()] for block, value in firmware.used.items()},
    }
    write_public(path, json.dumps(reference, indent=2, sort_keys=True).encode() + b"\n")
