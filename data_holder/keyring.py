"""The keys of what this holder keeps: made once, sealed for this measured code and, beside that, for its operator. Knows no session.

The platform gives other keys to other code, so the keys in use are those that the first code got, and stay. They lie in the database
twice: sealed under the platform's key for the code that ran last, and under the operator's recovery key where it has one. Code that
finds the first one closed opens the second and seals the first anew. Nothing is made anew for what is there and does not open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from data_holder.tables.schema import KEYS
from shared.canonical import cbor_bytes
from shared.crypto.aead import KEY_BYTES, at_rest_open, at_rest_seal
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, VerificationFailed
from shared.service.clock import Entropy
from shared.service.guest import Guest
from shared.service.key_file import key_id, read_key_file
from shared.service.logging import get_logger
from shared.service.statements import insert_rows
from shared.service.store import Store

JOURNAL_LABEL, COMMITMENT_LABEL, SEALING_LABEL = "holder-journal", "holder-commitments", "holder-keys"
PLATFORM, RECOVERY = "platform", "recovery"
SALT_BYTES = 32
MAKE_ONE = "run the release before, set recovery_key_file there (gput party recovery-key FILE), start it once, and update again"
_log = get_logger("data_holder.keyring")


@dataclass(frozen=True)
class Keys:
    """What the journal's MACs are made with, and the salts of dataset commitments and the sealing of shares; 32 bytes each."""

    journal: Secret
    commitments: Secret


@dataclass(frozen=True)
class RecoveryKey:
    """The operator's key and where it was read from."""

    file: Path
    key: Secret

    @classmethod
    def read(cls, file: Path) -> RecoveryKey:
        """Raises: ConfigurationError `recovery-key`: the file cannot be read, is open to others or has another length."""
        remedy = "Put the key there that `gput party recovery-key` made, mode 0600; or unset recovery_key_file."
        return cls(file, read_key_file(file, "recovery_key_file", code="recovery-key", remedy=remedy))


@dataclass(frozen=True)
class _Sealed:
    """The keys as they lie in the database. `key`: id of the recovery key they are under."""

    key: str | None
    salt: bytes
    sealed: bytes


Use = Callable[[Keys], Awaitable[None]]


class Keyring:
    """One holder's. `recovery`: the operator's key, where the settings name one."""

    def __init__(self, store: Store, guest: Guest, holder: str, recovery: RecoveryKey | None, entropy: Entropy) -> None:
        self._store, self._guest, self._holder = store, guest, holder
        self._recovery, self._entropy = recovery, entropy

    async def unlock(self, use: Use) -> None:
        """Open the keys, have them used, and only then keep them sealed for what runs now.

        Args:
            use: takes the keys in and checks that they are those of the journal that is there.

        Raises:
            Whatever `use` raises; Unavailable, NotAuthenticated: enclave or database.
            ConfigurationError: nothing was changed. `holder-keys-sealed`: no key at hand opens them; `recovery-key`: that one does not;
                `holder-keys-absent`: there are none, and those that this code would make are not the journal's.
        """
        platform = await self._guest.derived_key(SEALING_LABEL)
        kept = await self._store.read(_rows)
        under = {PLATFORM: platform} | ({RECOVERY: self._recovery.key} if self._recovery is not None else {})
        opened = {path: keys for path in kept.keys() & under if (keys := self._opened(path, under[path], kept[path]))}
        if kept:
            keys = opened.get(PLATFORM) or opened.get(RECOVERY)
            if keys is None:
                raise self._closed(kept)
            await use(keys)
        else:
            keys = Keys(*[await self._guest.derived_key(label) for label in (JOURNAL_LABEL, COMMITMENT_LABEL)])
            await _first(use, keys)
        await self._keep(keys, {path: key for path, key in under.items() if path not in opened}, kept)

    async def _keep(self, keys: Keys, under: Mapping[str, Secret], kept: Mapping[str, _Sealed]) -> None:
        rows = [{"path": path, **self._sealed(path, key, keys)} for path, key in under.items()]
        if not rows:
            return

        def act(connection: Connection) -> None:
            connection.execute(sa.delete(KEYS).where(KEYS.c.path.in_(under)))
            insert_rows(connection, KEYS, rows)

        await self._store.write(act)
        for row in rows:
            path, key = row["path"], row["key"]
            if path not in kept:
                by = {"recovery": key, "file": str(self._recovery.file)} if self._recovery and path == RECOVERY else {}
                _log.info("the holder's keys were sealed for the first time", path=path, **by)
            elif path == PLATFORM:
                _log.warning("the holder's keys were sealed for other code than before; the recovery key opened them")
            else:
                _log.warning("the holder's keys were sealed under another recovery key than before", recovery=key)

    def _sealed(self, path: str, key: Secret, keys: Keys) -> dict[str, str | bytes | None]:
        # A fresh salt each time: a recovery key may seal other keys one day, if its holder begins with an empty database.
        salt = self._entropy(SALT_BYTES)
        plain = keys.journal.reveal() + keys.commitments.reveal()
        sealed = at_rest_seal(key, _name(salt), plain, self._bound(path))
        return {"key": key_id(key) if path == RECOVERY else None, "salt": salt, "sealed": sealed}

    def _opened(self, path: str, key: Secret, row: _Sealed) -> Keys | None:
        try:
            plain = at_rest_open(key, _name(row.salt), row.sealed, self._bound(path))
        except VerificationFailed:
            return None
        return Keys(Secret(plain[:KEY_BYTES]), Secret(plain[KEY_BYTES:]))

    def _bound(self, path: str) -> bytes:
        """Another holder's row, or the other path's, does not open, even where one operator has one recovery key for all."""
        return cbor_bytes(["gput/holder-keys/1", self._holder, path])

    def _closed(self, kept: Mapping[str, _Sealed]) -> ConfigurationError:
        why = "the keys of this holder's journal are sealed for other code than runs now, as after an update"
        row, mine = kept.get(RECOVERY), self._recovery
        if row is None:
            return ConfigurationError(
                f"{why}, and under no recovery key",
                code="holder-keys-sealed",
                remedy=f"Nothing was changed: {MAKE_ONE}.",
            )
        if mine is None:
            return ConfigurationError(
                f"{why}, and recovery_key_file is not set", code="holder-keys-sealed",
                remedy=f"Nothing was changed: set it to the recovery key {row.key}, or run the release before.",
            )  # fmt: skip
        return ConfigurationError(
            f"{why}, and recovery_key_file {mine.file} does not open them: its key is {key_id(mine.key)}, theirs is {row.key}, "
            "or the row was changed",
            code="recovery-key", expected=row.key, got=key_id(mine.key),
            remedy="Nothing was changed: name the right recovery key, or run the release before.",
        )  # fmt: skip


async def _first(use: Use, keys: Keys) -> None:
    try:
        await use(keys)
    except VerificationFailed as error:
        raise ConfigurationError(
            f"this holder's keys are not in its database, and those of the code that runs now are not its journal's ({error.detail})",
            code="holder-keys-absent",
            remedy="Nothing was changed. If its release was of before schema 0003, run that release until its sessions have ended; else "
            "somebody changed the database behind this service: restore it from a backup, and ask who had access.",
        ) from None


def _name(salt: bytes) -> str:
    return f"holder-keys/{salt.hex()}"


def _rows(connection: Connection) -> dict[str, _Sealed]:
    rows = connection.execute(sa.select(KEYS))
    return {row.path: _Sealed(row.key, bytes(row.salt), bytes(row.sealed)) for row in rows}
