"""This holder's shares of sessions' keys: kept sealed under a key of what this holder keeps, one a session. Knows no GPU.

A share is dealt anew, and is the same, whenever a channel is opened, so that one which cannot be opened any more is simply replaced.
"""

from __future__ import annotations

from sqlalchemy import Connection

from data_holder.tables.schema import SHARES
from shared.crypto.aead import at_rest_open, at_rest_seal
from shared.crypto.schedule import share_sealing_key
from shared.crypto.secret import Secret
from shared.errors import Unavailable, VerificationFailed
from shared.service.clock import Entropy
from shared.service.statements import find_row, put_row
from shared.service.store import Store

SALT_BYTES = 16


class ShareBook:
    """Shares by session. `unlock` comes first."""

    def __init__(self, store: Store, entropy: Entropy) -> None:
        self._store, self._entropy = store, entropy
        self._key: Secret | None = None

    def unlock(self, key: Secret) -> None:
        """From here on shares can be kept and found. `key`: the one that salts of commitments come from; theirs is derived from it."""
        self._key = Secret(share_sealing_key(key.reveal()))

    async def find(self, session: str) -> Secret | None:
        """The share of a session; None where there is none, or none that this holder can open. Raises: Unavailable."""
        row = await self._store.read(lambda connection: find_row(connection, SHARES, {"session": session}))
        if row is None:
            return None
        data = bytes(row["sealed"])
        salt, sealed = data[:SALT_BYTES], data[SALT_BYTES:]
        try:
            return Secret(at_rest_open(self._opened(), _name(session, salt), sealed))
        except VerificationFailed:
            return None

    async def keep(self, session: str, share: Secret) -> None:
        """Durable when this returns.

        Raises:
            VerificationFailed: code `share-differs`: another one was dealt before, and that is kept. Unavailable.
        """
        kept = await self.find(session)
        if kept == share:
            return
        if kept is not None:
            raise VerificationFailed(
                f"the orchestrator dealt another share of the key of {session} than before", code="share-differs",
                remedy="Somebody put another key in the place of the session's: veto it, and ask who had access to the orchestrator.",
            )  # fmt: skip
        salt = self._entropy(SALT_BYTES)  # names a fresh key: nothing is ever sealed twice under one
        sealed = salt + at_rest_seal(self._opened(), _name(session, salt), share.reveal())

        def write(connection: Connection) -> None:
            put_row(connection, SHARES, {"session": session}, {"sealed": sealed})

        await self._store.write(write)

    def _opened(self) -> Secret:
        if self._key is None:
            raise Unavailable("this holder's keys are not open yet", code="shares-locked")
        return self._key


def _name(session: str, salt: bytes) -> str:
    return f"recovery-share/{session}/{salt.hex()}"
