"""The context under which a derived sealing key travels from a quoting enclave to its CVM. Knows no key and no transport."""

from __future__ import annotations

from shared.canonical import cbor_bytes, sha256

DERIVED_KEY_BYTES = 32


def derived_key_info(cvm: str, label: str, recipient: bytes) -> bytes:
    """HPKE `info` of a sealed derived key: whose, what for, to which one-time public key."""
    return cbor_bytes(["gput/derived-key/1", cvm, label, sha256(recipient)])
