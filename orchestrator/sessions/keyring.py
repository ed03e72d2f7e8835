"""The keys of every session, in memory and at rest: its session key, and what is derived from it. Knows no journal, no holder's answer.

A session submitted here has a key of its own, sealed under a key of this CVM in the transaction of its first fact. One of an
older schema has no row, and keys of the CVM itself. The platform owns the row, and gains nothing by it: a chain begun under one of the two
kinds of keys never verifies under the other (`journal-tampered`), and a row that does not open, for whatever reason, gives no key at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from orchestrator.tables import SESSION_KEYS
from shared.claims.manifest import Manifest
from shared.crypto.aead import at_rest_open, at_rest_seal
from shared.crypto.schedule import KEY_BYTES, session_journal_key, session_key_check, session_sealing_key
from shared.crypto.secret import Secret
from shared.crypto.sharing import Plan, deal, share_digest
from shared.errors import Unavailable, VerificationFailed
from shared.service.clock import Entropy
from shared.service.statements import find_row, insert_row, update_row

SALT_BYTES = 16


class KeyAway(Unavailable):
    """The session's key is sealed to another CVM or measurement: it goes on when enough of its holders have given their shares."""

    default_code = "session-key-away"


@dataclass(frozen=True)
class CvmKeys:
    """Keys that only this measured code on this machine gets. `journal` and `secrets`: of sessions without a key of their own."""

    journal: Secret
    secrets: Secret
    sealing: Secret


@dataclass(frozen=True)
class SessionKeys:
    """What one session's rows are under. `recovery`: where the two come from; None in a session of an older schema."""

    journal: Secret
    secrets: Secret
    recovery: Secret | None = None

    @classmethod
    def of(cls, recovery: Secret, session: str) -> SessionKeys:
        """Derived from a session key."""
        raw = recovery.reveal()
        return cls(Secret(session_journal_key(raw, session)), Secret(session_sealing_key(raw, session)), recovery)


@dataclass(frozen=True)
class Dealt:
    """What the database says of a key that cannot be opened; the platform can change it. `digests` in hex, by holder."""

    key_check: bytes
    digests: dict[str, str]


def sharing_plan(session: str, manifest: Manifest) -> Plan:
    """Among whom the session's key is shared: its whole roster, of whom all are needed unless the manifest says how many."""
    holders = tuple(entry.holder for entry in manifest.roster)
    return Plan(session, holders, manifest.recovery_shares or len(holders))


class Keyring:
    """Keys by session. `load` comes before any other question about a session; what it found stays until `forget`."""

    def __init__(self, cvm: CvmKeys, entropy: Entropy) -> None:
        self._cvm, self._entropy = cvm, entropy
        self._keys: dict[str, SessionKeys] = {}

    def create(self, session: str, manifest: Manifest) -> Callable[[Connection], None]:
        """A fresh key for a session that is being submitted: puts it, within that transaction."""
        key, plan = Secret(self._entropy(KEY_BYTES)), sharing_plan(session, manifest)
        digests = {holder: share_digest(plan, holder, share).hex() for holder, share in deal(key, plan).items()}
        check = session_key_check(key.reveal(), session)
        values = {"session": session, "sealed": self._sealed(session, key), "key_check": check, "digests": digests}

        def write(connection: Connection) -> None:
            insert_row(connection, SESSION_KEYS, values)
            self._keys[session] = SessionKeys.of(key, session)

        return write

    def load(self, connection: Connection, session: str) -> None:
        """Have the session's keys. Raises: KeyAway: another CVM's or measurement's, or the row was changed."""
        if session in self._keys:
            return
        row = find_row(connection, SESSION_KEYS, {"session": session})
        if row is None:
            self._keys[session] = SessionKeys(self._cvm.journal, self._cvm.secrets)
            return
        data = bytes(row["sealed"])
        salt, sealed = data[:SALT_BYTES], data[SALT_BYTES:]
        try:
            key = Secret(at_rest_open(self._cvm.sealing, _name(session, salt), sealed))
        except VerificationFailed:
            raise KeyAway(
                f"the key of {session} is sealed to another CVM or release than this one",
                remedy="If it has not ended, its holders are asked for their shares; its page says whom it waits for.",
            ) from None
        self._keys[session] = SessionKeys.of(key, session)

    def resealing(self, session: str, recovery: Secret) -> Callable[[Connection], object]:
        """Puts a key that shares gave, and that the journal verifies under, under this CVM's, within a transaction."""
        values = {"sealed": self._sealed(session, recovery)}
        return lambda connection: update_row(connection, SESSION_KEYS, {"session": session}, values)

    def journal_key(self, session: str) -> bytes:
        """MAC key of the session's journal."""
        return self._of(session).journal.reveal()

    def sealing_key(self, session: str) -> Secret:
        """What its resume secret and checkpoint key are sealed with."""
        return self._of(session).secrets

    def share(self, session: str, manifest: Manifest, holder: str) -> Secret | None:
        """The holder's share of the session key, the same at each call; None where the session has no such key."""
        recovery = self._of(session).recovery
        return None if recovery is None else deal(recovery, sharing_plan(session, manifest), [holder])[holder]

    def forget(self, session: str) -> None:
        """It is being removed."""
        self._keys.pop(session, None)

    def _of(self, session: str) -> SessionKeys:
        found = self._keys.get(session)
        if found is None:
            raise KeyAway(f"the key of {session} is not at hand", remedy="Try again.")
        return found

    def _sealed(self, session: str, key: Secret) -> bytes:
        salt = self._entropy(SALT_BYTES)  # names a fresh key: nothing is ever sealed twice under one
        return salt + at_rest_seal(self._cvm.sealing, _name(session, salt), key.reveal())


def read_dealt(connection: Connection, session: str) -> Dealt | None:
    """What is kept beside the session's sealed key."""
    row = find_row(connection, SESSION_KEYS, {"session": session})
    return None if row is None else Dealt(bytes(row["key_check"]), dict(row["digests"]))


def _name(session: str, salt: bytes) -> str:
    return f"session-key/{session}/{salt.hex()}"
