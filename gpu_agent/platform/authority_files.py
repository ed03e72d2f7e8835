"""An issuing key and its certificates as two files: private key (0600) and chain. Knows no profile and no purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from gpu_agent.hardware.root_of_trust import load_private
from gpu_agent.platform.device_pki import Issued, certificate_pem, key_pem
from shared.attestation.gpu_chain import public_key
from shared.crypto.private_file import replace_public, write_private
from shared.errors import ConfigurationError


def write_authority(key_file: Path, chain_file: Path, issued: Issued, above: Sequence[x509.Certificate]) -> None:
    """Write both, the private key last: while it is absent an interrupted run is done over as a whole."""
    write_chain(chain_file, [issued.certificate, *above])
    write_private(key_file, key_pem(issued.key))


def load_authority(key_file: Path, chain_file: Path) -> tuple[Issued, list[x509.Certificate]]:
    """The key with its certificate, and the chain from that up. Raises: ConfigurationError: absent, or not of one another."""
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


def write_chain(path: Path, chain: Sequence[x509.Certificate]) -> None:
    """PEM, in this order; readers see the old or the new file."""
    replace_public(path, b"".join(certificate_pem(certificate) for certificate in chain))


def add_root(path: Path, root: x509.Certificate) -> None:
    """Append a root to a file of pinned roots, unless it stands there."""
    pem = certificate_pem(root)
    known = path.read_bytes() if path.exists() else b""
    if pem not in known:
        replace_public(path, known + pem)
