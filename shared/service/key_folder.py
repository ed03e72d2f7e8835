"""Whose signatures count, as a folder of `NAME.pub` says now. Knows no party, no role's meaning and no HTTP.

The folder is looked at with each use of a key of its own and of one that nobody knows: neither a new file nor one that was taken away
needs a restart.
"""

from __future__ import annotations

from pathlib import Path

from shared.crypto.signing import fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError
from shared.names import Role
from shared.service.logging import get_logger
from shared.service.signatures import KnownKey

_log = get_logger("keys")


class KeyFolder:
    """Ed25519 keys (PEM) in a folder, each by its fingerprint (hex).

    Args:
        setting: what names the folder, for messages.
        role: what its keys' holders are.

    Raises:
        ConfigurationError: the folder is not there, or one of its files is no such key. One spoilt later only is not known any more.
    """

    def __init__(self, folder: Path, setting: str, role: Role) -> None:
        self._folder, self._setting, self._role = folder, setting, role
        if not folder.is_dir():
            raise ConfigurationError(
                f"{setting}: {folder} is no folder", remedy="Create it, and put each one's NAME.pub into it"
            )
        self._seen = self._state()
        self._known = dict(map(self._read, self._files()))

    def __contains__(self, key: str) -> bool:
        """Whether it was there when last looked."""
        return key in self._known

    def find(self, key: str) -> KnownKey | None:
        """Whose it is now, if anybody's."""
        seen = self._state()
        if seen != self._seen:
            self._known, self._seen = {}, seen
            for path in self._files():
                try:
                    print_, known = self._read(path)
                except ConfigurationError as error:
                    _log.error(
                        "whose this was is not known now", file=str(path), detail=error.detail, remedy=error.remedy
                    )
                else:
                    self._known[print_] = known
        return self._known.get(key)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.pub"))

    def _state(self) -> list[object]:
        return [(path.name, file_state(path)) for path in self._files()]

    def _read(self, path: Path) -> tuple[str, KnownKey]:
        """Fingerprint and key of one file. Raises: ConfigurationError."""
        try:
            public = load_public(path.read_bytes())
        except (BadRequest, OSError) as error:
            raise ConfigurationError(
                f"{self._setting}: {path} cannot be used: {error}", remedy="Put a PEM public key of Ed25519 there"
            ) from error
        return fingerprint(public), KnownKey(public, path.stem, frozenset({self._role}))


def file_state(path: Path) -> tuple[int, int, int] | None:
    """What changes with every change of a file; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
