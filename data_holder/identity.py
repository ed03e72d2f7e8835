"""The holder's enrolled identity and its local tokens, as files in data_dir. Knows no HTTP and no session.

`identity.pem` (Ed25519) is what the roster names and what signs approvals. The tokens open the operator's API; they are made on first
start, readable by the service's own user only, and are compared by their SHA-256 in constant time. A new one put in a token's place counts
from that moment on, and the old one no more.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.crypto.former_keys import former_keys
from shared.crypto.private_file import replace_private, write_private
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, Conflict
from shared.names import Role
from shared.service.clock import Entropy
from shared.service.data_dir import unwritable


@dataclass(frozen=True)
class OwnKeys:
    """The enrolled key, and the public halves (raw, by fingerprint) of those before it: what they signed is this holder's word still."""

    current: PartyKey
    former: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def publics(self) -> dict[str, bytes]:
        """All of them by fingerprint."""
        return {**self.former, self.current.fingerprint: self.current.public}


class Tokens:
    """SHA-256 of each bearer token; the token itself is only in its file, made on first start. Raises: ConfigurationError."""

    def __init__(self, data_dir: Path, entropy: Entropy) -> None:
        self._files = {Role.HOLDER: data_dir / "operator.token", Role.AUDITOR: data_dir / "auditor.token"}
        self._digests = {role: _token(file, entropy) for role, file in self._files.items()}

    def role_of(self, token: str) -> Role | None:
        """`HOLDER` for the operator's token (full rights), `AUDITOR` for the read-only one, None for any other."""
        digest = _digest(token)
        found = [role for role, known in self._digests.items() if hmac.compare_digest(digest, known)]
        return found[0] if found else None

    def replace(self, role: Role, token: str) -> None:
        """`token` in the place of the role's: first on disk, so that a restart knows the one that was answered for; then here.

        Raises:
            Conflict: code `token-in-use`: it is the other role's. Unavailable: the disk.
        """
        if self.role_of(token) not in (None, role):
            raise Conflict("This token is the other role's", code="token-in-use", remedy="Make a token for each role.")
        try:
            replace_private(self._files[role], f"{token}\n".encode())
        except OSError as error:
            raise unwritable(self._files[role], error) from error
        self._digests[role] = _digest(token)


def load_identity(data_dir: Path, name: str) -> OwnKeys:
    """The enrolled key, made on first start, with those before it; its public half is written beside it as `NAME.pub`.

    Raises:
        ConfigurationError: the file is no Ed25519 key or is open to others.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = PartyKey.load_or_generate(data_dir / "identity.pem")
    public = data_dir / f"{name}.pub"
    if not public.exists() or public.read_bytes() != key.public_pem:
        public.write_bytes(key.public_pem)
    return OwnKeys(key, former_keys(data_dir / "identity.pem"))


def _token(path: Path, entropy: Entropy) -> bytes:
    if not path.exists():
        write_private(path, f"{entropy(32).hex()}\n".encode())
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(f"{path} is open to other users", remedy=f"Run chmod 600 {path}")
    token = path.read_text().strip()
    if len(token) < 32:
        raise ConfigurationError(f"{path} is too short for a token", remedy="Delete the file; a new one is made")
    return _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
