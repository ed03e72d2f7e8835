"""The only secrets at rest: resume secret and checkpoint keys, sealed under the session's key (design 4.5). Knows no GPU.

They lie in the database, and change in the transaction that says which life they belong to: an orchestrator that does not lead any more
cannot put its own in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from orchestrator.tables import SECRETS
from shared.canonical import cbor_bytes, cbor_value
from shared.crypto.aead import at_rest_open, at_rest_seal
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed
from shared.service.clock import Entropy
from shared.service.statements import find_row, put_row
from shared.service.store import Store

SALT_BYTES = 16


@dataclass(frozen=True)
class SessionSecrets:
    """`resume` opens the next life, and is empty before the first; `checkpoint` derives the key of every checkpoint. `inherited` opens the
    predecessor's one checkpoint that this session begins with, until it has sealed one of its own."""

    resume: Secret
    checkpoint: Secret
    inherited: Secret | None = None


class SealedSecrets:
    """One session's row."""

    def __init__(self, store: Store, sealing_key: Secret, session: str, entropy: Entropy) -> None:
        self._store, self._key, self._session, self._entropy = store, sealing_key, session, entropy

    def _name(self, salt: bytes) -> str:
        return f"session-secrets/{self._session}/{salt.hex()}"

    async def load(self) -> SessionSecrets | None:
        """The secrets, or None before the first life. Raises: VerificationFailed: tampered with; Unavailable."""
        row = await self._store.read(lambda c: find_row(c, SECRETS, {"session": self._session}))
        if row is None:
            return None
        data = bytes(row["sealed"])
        salt, sealed = data[:SALT_BYTES], data[SALT_BYTES:]
        value = cbor_value(at_rest_open(self._key, self._name(salt), sealed))
        if not isinstance(value, list) or len(value) not in (2, 3):
            raise VerificationFailed("The sealed secrets have an unknown form", code="sealed-malformed")
        return SessionSecrets(*(Secret(raw) for raw in value))

    def saving(self, secrets: SessionSecrets) -> Callable[[Connection], None]:
        """Puts the row, within a transaction; a fresh salt names a fresh key, so nothing is ever sealed twice under one."""
        salt = self._entropy(SALT_BYTES)
        kept = (secrets.resume, secrets.checkpoint, *([] if secrets.inherited is None else [secrets.inherited]))
        plain = cbor_bytes([secret.reveal() for secret in kept])
        values = {"sealed": salt + at_rest_seal(self._key, self._name(salt), plain)}
        return lambda connection: put_row(connection, SECRETS, {"session": self._session}, values)
