"""The holder's enrolled identity and its local tokens, as files in data_dir. Knows no HTTP and no session.

`identity.pem` (Ed25519) is what the roster names and what signs approvals. The tokens open the operator's API; they are made on first
start, readable by the service's own user only, and are compared by their SHA-256 in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from shared.crypto.private_file import write_private
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError
from shared.names import Role
from shared.service.clock import Entropy
from shared.service.signatures import KnownKey


@dataclass(frozen=True)
class Tokens:
    """SHA-256 of each bearer token; the token itself is only in its file."""

    operator: bytes
    auditor: bytes

    def role_of(self, token: str) -> Role | None:
        """`HOLDER` for the operator's token (full rights), `AUDITOR` for the read-only one, None for any other."""
        digest = hashlib.sha256(token.encode()).digest()
        if hmac.compare_digest(digest, self.operator):
            return Role.HOLDER
        return Role.AUDITOR if hmac.compare_digest(digest, self.auditor) else None


def load_identity(data_dir: Path, name: str) -> PartyKey:
    """The enrolled key, made on first start; its public half is written beside it as `NAME.pub`.

    Raises:
        ConfigurationError: the file is no Ed25519 key or is open to others.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = PartyKey.load_or_generate(data_dir / "identity.pem")
    public = data_dir / f"{name}.pub"
    if not public.exists() or public.read_bytes() != key.public_pem:
        public.write_bytes(key.public_pem)
    return key


def load_tokens(data_dir: Path, entropy: Entropy) -> Tokens:
    """Both bearer tokens, made on first start. Raises: ConfigurationError."""
    return Tokens(_token(data_dir / "operator.token", entropy), _token(data_dir / "auditor.token", entropy))


def _token(path: Path, entropy: Entropy) -> bytes:
    if not path.exists():
        write_private(path, f"{entropy(32).hex()}\n".encode())
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(f"{path} is open to other users", remedy=f"Run chmod 600 {path}")
    token = path.read_text().strip()
    if len(token) < 32:
        raise ConfigurationError(f"{path} is too short for a token", remedy="Delete the file; a new one is made")
    return hashlib.sha256(token.encode()).digest()


def operator_keys(folder: Path | None) -> dict[str, KnownKey]:
    """Fingerprint -> operator, from a folder of `NAME.pub`. Raises: ConfigurationError."""
    known: dict[str, KnownKey] = {}
    if folder is None:
        return known
    if not folder.is_dir():
        raise ConfigurationError(f"operator_keys: {folder} is no folder", remedy="Create it or unset operator_keys")
    for path in sorted(folder.glob("*.pub")):
        try:
            public = load_public(path.read_bytes())
        except (BadRequest, OSError) as error:
            raise ConfigurationError(
                f"the operator key {path} cannot be used: {error}", remedy="Put a PEM public key of Ed25519 there"
            ) from None
        known[fingerprint(public)] = KnownKey(public, path.stem, frozenset({Role.HOLDER}))
    return known
