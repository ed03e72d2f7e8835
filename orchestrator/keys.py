"""Whose signatures count here: owners from a folder of PEM files, holders and auditors by enrolment. Knows no HTTP."""

from __future__ import annotations

from pathlib import Path

from orchestrator.library import Library
from shared.crypto.signing import fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError
from shared.names import Role
from shared.service.signatures import KnownKey

MAX_KNOWN = 4096


class KnownKeys:
    """Resolves a key fingerprint (hex) to a party; answers are remembered, absences are not."""

    def __init__(self, owner_keys: Path, library: Library) -> None:
        self._folder, self._library = owner_keys, library
        self._known: dict[str, KnownKey] = {}
        self._load_owners()

    def _load_owners(self) -> None:
        if not self._folder.is_dir():
            raise ConfigurationError(f"The folder of owner keys {self._folder} does not exist",
                                     remedy="Create it and put each owner's NAME.pub into it.")  # fmt: skip
        for path in sorted(self._folder.glob("*.pub")):
            try:
                public = load_public(path.read_bytes())
            except (BadRequest, OSError) as error:
                raise ConfigurationError(f"The owner key {path} cannot be read: {error}",
                                         remedy="Put a PEM public key of Ed25519 there.") from error  # fmt: skip
            self._known[fingerprint(public)] = KnownKey(public, path.stem, frozenset({Role.OWNER}))

    async def resolve(self, key: str) -> KnownKey | None:
        """The party with this key, if there is one."""
        if key in self._known:
            return self._known[key]
        row = await self._library.party_by_key(key)
        if row is None:
            self._load_owners()  # a new owner's file needs no restart
            return self._known.get(key)
        found = KnownKey(bytes.fromhex(row["public_key"]), row["name"], frozenset({Role(row["role"])}))
        if len(self._known) < MAX_KNOWN:
            self._known[key] = found
        return found
