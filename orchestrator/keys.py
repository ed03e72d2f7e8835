"""Whose signatures count here: owners from a folder of PEM files, holders and auditors by enrolment. Knows no HTTP."""

from __future__ import annotations

from pathlib import Path

from orchestrator.damaged import whole
from orchestrator.library import Library
from shared.crypto.signing import fingerprint
from shared.names import Role
from shared.service.key_folder import KeyFolder
from shared.service.signatures import KnownKey

MAX_KNOWN = 4096


class KnownKeys:
    """Resolves a key fingerprint (hex) to a party. An owner's counts as long as its file is there; an enrolled one's answer is remembered
    until some enrolled key changes. Raises: ConfigurationError, as `KeyFolder`."""

    def __init__(self, owner_keys: Path, library: Library) -> None:
        self._owners, self._library = KeyFolder(owner_keys, "owner_keys", Role.OWNER), library
        self._parties: dict[str, KnownKey] = {}
        self._changes = library.parties.changes

    async def resolve(self, key: str) -> KnownKey | None:
        """The party with this key, if there is one. Raises: StoredRowChanged: its row says otherwise."""
        remembered = self._remembered()
        if key in self._owners or key not in remembered:
            owner = self._owners.find(key)
            if owner is not None:
                return owner
        if key in remembered:
            return remembered[key]
        changes = self._changes
        row = await self._library.parties.by_key(key)
        if row is None:
            return None
        # Whoever owns the database can change it: its row must be this key's, and is refused by name where it is not.
        with whole(f"the party with key {key[:16]}…"):
            found = KnownKey(bytes.fromhex(row["public_key"]), row["name"], frozenset({Role(row["role"])}))
            if fingerprint(found.public_key) != key:
                raise ValueError("another party's")
        # What was read before a change must not be remembered after it.
        if changes == self._library.parties.changes and len(self._parties) < MAX_KNOWN:
            self._parties[key] = found
        return found

    def _remembered(self) -> dict[str, KnownKey]:
        if self._changes != self._library.parties.changes:
            self._parties, self._changes = {}, self._library.parties.changes
        return self._parties
