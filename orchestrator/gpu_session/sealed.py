"""The only two secrets at rest: resume secret and checkpoint key, sealed to this CVM's measurement (design 4.5). Knows no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.files import write_atomically
from shared.canonical import cbor_bytes, cbor_value
from shared.crypto.aead import at_rest_open, at_rest_seal
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed
from shared.service.clock import Entropy

SALT_BYTES = 16


@dataclass(frozen=True)
class SessionSecrets:
    """`resume` opens the next life; `checkpoint` derives the key of every checkpoint."""

    resume: Secret
    checkpoint: Secret


class SealedSecrets:
    """One session's sealed file."""

    def __init__(self, path: Path, sealing_key: Secret, session: str, entropy: Entropy) -> None:
        self._path, self._key, self._session, self._entropy = path, sealing_key, session, entropy

    def _name(self, salt: bytes) -> str:
        return f"session-secrets/{self._session}/{salt.hex()}"

    def load(self) -> SessionSecrets | None:
        """The secrets, or None before the first life. Raises: VerificationFailed: another CVM's, or tampered with."""
        if not self._path.is_file():
            return None
        data = self._path.read_bytes()
        salt, sealed = data[:SALT_BYTES], data[SALT_BYTES:]
        value = cbor_value(at_rest_open(self._key, self._name(salt), sealed))
        if not isinstance(value, list) or len(value) != 2:
            raise VerificationFailed("The sealed secrets have an unknown form", code="sealed-malformed")
        return SessionSecrets(Secret(value[0]), Secret(value[1]))

    def save(self, secrets: SessionSecrets) -> None:
        """Replace the file atomically; a fresh salt names a fresh key, so nothing is ever sealed twice under one."""
        salt = self._entropy(SALT_BYTES)
        plain = cbor_bytes([secrets.resume.reveal(), secrets.checkpoint.reveal()])
        write_atomically(self._path, salt + at_rest_seal(self._key, self._name(salt), plain))
