"""Whose signatures count here: owners from a folder of PEM files, holders and auditors by enrolment. Knows no HTTP."""

from __future__ import annotations

from pathlib import Path

from orchestrator.library import Library
from orchestrator.readers import file_state
from shared.crypto.signing import fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError
from shared.names import Role
from shared.service.logging import get_logger
from shared.service.signatures import KnownKey

MAX_KNOWN = 4096
_log = get_logger("keys")


class KnownKeys:
    """Resolves a key fingerprint (hex) to a party. An owner's counts as long as its file is there; an enrolled one's answer is remembered
    until some enrolled key changes."""

    def __init__(self, owner_keys: Path, library: Library) -> None:
        self._folder, self._library = owner_keys, library
        self._parties: dict[str, KnownKey] = {}
        self._changes = library.parties.changes
        if not owner_keys.is_dir():
            raise ConfigurationError(f"The folder of owner keys {owner_keys} does not exist",
                                     remedy="Create it and put each owner's NAME.pub into it.")  # fmt: skip
        self._seen = self._state()
        self._owners = {found[0]: found[1] for path in self._files() for found in [_owner(path)]}

    async def resolve(self, key: str) -> KnownKey | None:
        """The party with this key, if there is one."""
        if key in self._owners or key not in self._remembered():
            self._look_again()  # neither a new owner's file nor one that was taken away needs a restart
        if key in self._owners:
            return self._owners[key]
        if key in self._parties:
            return self._parties[key]
        changes = self._changes
        row = await self._library.parties.by_key(key)
        if row is None:
            return None
        found = KnownKey(bytes.fromhex(row["public_key"]), row["name"], frozenset({Role(row["role"])}))
        # What was read before a change must not be remembered after it.
        if changes == self._library.parties.changes and len(self._parties) < MAX_KNOWN:
            self._parties[key] = found
        return found

    def _remembered(self) -> dict[str, KnownKey]:
        if self._changes != self._library.parties.changes:
            self._parties, self._changes = {}, self._library.parties.changes
        return self._parties

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.pub"))

    def _state(self) -> list[object]:
        return [(path.name, file_state(path)) for path in self._files()]

    def _look_again(self) -> None:
        seen = self._state()
        if seen == self._seen:
            return
        self._owners, self._seen = {}, seen
        for path in self._files():
            try:
                print_, known = _owner(path)
            except ConfigurationError as error:
                _log.error("this owner is not known now", detail=error.detail, remedy=error.remedy)
            else:
                self._owners[print_] = known


def _owner(path: Path) -> tuple[str, KnownKey]:
    """Fingerprint and key of one file. Raises: ConfigurationError."""
    try:
        public = load_public(path.read_bytes())
    except (BadRequest, OSError) as error:
        raise ConfigurationError(f"The owner key {path} cannot be read: {error}",
                                 remedy="Put a PEM public key of Ed25519 there.") from error  # fmt: skip
    return fingerprint(public), KnownKey(public, path.stem, frozenset({Role.OWNER}))
