"""Who is enrolled, and by which key from when to when (docs/adr/0028). Knows no HTTP and no session's state.

A key that was once anybody's is never taken again; a key changes only while no session that names its party goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from orchestrator.damaged import readable
from orchestrator.party_rules import (
    enrolled_so,
    joined,
    known_key,
    own_row,
    party_statement,
    replaced_so,
    require_change,
    require_newest,
    required,
)
from orchestrator.tables import PARTIES, PARTY_KEYS
from shared.attestation.key_rotations import VerifiedRotation, check_new_key, verify_rotation
from shared.crypto.signing import check_public, fingerprint
from shared.errors import Conflict, GputError
from shared.service.clock import Clock
from shared.service.store import Store
from shared.wire.party_keys import SignedRotation


class Parties:
    """Enrolled holders and auditors. `changes` counts what may make a remembered answer wrong."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.changes = 0

    async def enrol(self, name: str, role: str, public_key: bytes, by: str) -> tuple[dict[str, Any], bool]:
        """Enrol a party; answers its row and whether it is new.

        Raises:
            BadRequest: `bad-public-key`. Conflict: the name or the key belongs, or belonged, to another enrolment (code `party-exists`).
        """
        check_public(public_key)
        at = self._clock()
        row: dict[str, Any] = {
            "name": name, "role": role, "public_key": public_key.hex(), "fingerprint": fingerprint(public_key), "enrolled_at": at,
        }  # fmt: skip

        def act(connection: Connection) -> tuple[dict[str, Any], bool]:
            if (old := enrolled_so(connection, name, role, public_key)) is not None:
                return old, False
            connection.execute(insert(PARTIES).values(row))
            _add(connection, name, public_key, at, came="enrolled", by=by)
            return row, True

        return await self._store.write(act)

    async def would_enrol(self, name: str, role: str, public_key: bytes) -> bool:
        """Whether `enrol` would change anything. Raises: as it does."""
        check_public(public_key)
        return await self._store.read(lambda c: enrolled_so(c, name, role, public_key)) is None

    async def by_key(self, key: str) -> dict[str, Any] | None:
        """The party whose key with this fingerprint (hex) counts now."""
        found = await self._store.read(lambda c: joined(c, PARTIES.c.fingerprint == key))
        return None if found is None or found["valid_until"] is not None else found

    async def one(self, name: str) -> dict[str, Any]:
        """A party's row, with its newest key's validity. Raises: NotFound."""
        return await self._store.read(lambda c: required(c, name))

    async def page(self, after: str | None, limit: int) -> list[dict[str, Any]]:
        """Rows in order of name, as `readable`."""
        statement = party_statement().order_by(PARTIES.c.name).limit(limit)
        if after is not None:
            statement = statement.where(PARTIES.c.name > after)
        return await self._store.read(lambda c: readable(c, statement, PARTIES.c.name))

    async def keys(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Every key that the party had, oldest first, as `readable`. Raises: NotFound."""
        await self.one(name)
        statement = select(PARTY_KEYS).where(PARTY_KEYS.c.name == name, PARTY_KEYS.c.number > after)
        ordered = statement.order_by(PARTY_KEYS.c.number).limit(limit)
        return await self._store.read(lambda c: readable(c, ordered, PARTY_KEYS.c.number))

    # ------------------------------------------------------------ changes of a key

    async def rotate(self, name: str, caller: str, signed: SignedRotation) -> dict[str, Any]:
        """Take the party's own word for its new key. `caller`: fingerprint of the key that signed the request; the new one repeats it.

        Raises:
            NotPermitted: another's key. Conflict: `key-in-use`, `key-was-used`. BadRequest, VerificationFailed: the statement.
        """

        def act(connection: Connection) -> None:
            row = own_row(connection, name, caller)
            newest = known_key(connection, caller)
            if newest is not None and newest["statement"] == signed.model_dump(mode="json"):
                return  # a repeat, whose first answer was lost
            said = verify_rotation(signed, party=name, old=bytes.fromhex(row["public_key"]))
            self._change(connection, row, said.new, came="rotated", by=name, statement=signed)

        return await self._changed(name, act)

    async def would_rotate(self, name: str, caller: str, public_key: bytes) -> bool:
        """Whether `rotate` to this key would change anything, whatever its signatures are. Raises: as it does, but for those."""

        def act(connection: Connection) -> bool:
            row = own_row(connection, name, caller)
            check_public(public_key)
            if row["public_key"] == public_key.hex() and row["came"] == "rotated":
                return False  # its repeat
            check_new_key(public_key, bytes.fromhex(row["public_key"]))
            require_change(connection, row, public_key)
            return True

        return await self._store.read(act)

    async def replace(self, name: str, public_key: bytes, replaces: str, by: str) -> dict[str, Any]:
        """Take the owner's word for a party's new key; `replaces` is the fingerprint of its newest one, which is lost or revoked.

        Raises:
            BadRequest: `bad-public-key`. NotFound. Conflict: `key-mismatch`, `key-in-use`, `key-was-used`.
        """
        check_public(public_key)

        def act(connection: Connection) -> None:
            row = required(connection, name)
            if not replaced_so(connection, row, public_key, replaces):
                self._change(connection, row, public_key, came="replaced", by=by)

        return await self._changed(name, act)

    async def would_replace(self, name: str, public_key: bytes, replaces: str) -> bool:
        """Whether `replace` would change anything. Raises: as it does."""
        check_public(public_key)

        def act(connection: Connection) -> bool:
            row = required(connection, name)
            if replaced_so(connection, row, public_key, replaces):
                return False
            require_change(connection, row, public_key)
            return True

        return await self._store.read(act)

    async def revoke(self, name: str, key: str, by: str) -> dict[str, Any]:
        """The party's newest key authenticates nothing from now on. Raises: NotFound. Conflict: `key-mismatch`."""

        def act(connection: Connection) -> None:
            require_newest(required(connection, name), key)
            _end(connection, key, by, self._clock())

        return await self._changed(name, act)

    async def _changed(self, name: str, act: Callable[[Connection], None]) -> dict[str, Any]:
        await self._store.write(act)
        self.changes += 1  # after the commit: what was read before it is not remembered after it
        return await self.one(name)

    def _change(
        self, connection: Connection, row: Mapping[str, Any], public: bytes, *, came: str, by: str,
        statement: SignedRotation | None = None,
    ) -> None:  # fmt: skip
        name = row["name"]
        require_change(connection, row, public)
        at = self._clock()
        _end(connection, row["fingerprint"], by, at)
        values = {"public_key": public.hex(), "fingerprint": fingerprint(public)}
        connection.execute(update(PARTIES).where(PARTIES.c.name == name).values(values))
        _add(connection, name, public, at, came=came, by=by, previous=row["fingerprint"], statement=statement)

    # ------------------------------------------------------------ what a key came from

    async def came_from(self, key: str, before: str) -> bool:
        """Whether the key (fingerprint) came from the one `before` by rotations alone, each verified again from its signatures."""
        return await self._store.read(lambda c: _came_from(c, key, before))


def _came_from(connection: Connection, key: str, before: str) -> bool:
    """The database is the platform's: what counts of it is what the older key signed."""
    seen: set[str] = set()
    while key != before and key not in seen:
        seen.add(key)
        row = known_key(connection, key)
        older = known_key(connection, row["previous"]) if row is not None and row["previous"] else None
        if row is None or older is None or row["statement"] is None:
            return False
        try:
            said = _rotation(row, bytes.fromhex(older["public_key"]))
        except (GputError, ValueError):
            return False
        if fingerprint(said.new) != key:
            return False
        key = fingerprint(said.old)
    return key == before


def _rotation(row: Mapping[str, Any], old: bytes) -> VerifiedRotation:
    return verify_rotation(SignedRotation.model_validate(row["statement"]), party=row["name"], old=old)


def holders(connection: Connection) -> dict[str, str]:
    """Fingerprints of the keys of enrolled holders that count, by name."""
    found = connection.execute(party_statement().where(PARTIES.c.role == "holder", PARTY_KEYS.c.valid_until.is_(None)))
    return {row["name"]: row["fingerprint"] for row in found.mappings()}


def require(connection: Connection, judged_by: Mapping[str, str]) -> None:
    """In the transaction that creates a session: these keys (fingerprints by name) still count.

    Raises:
        Conflict: code `key-changed`: a holder's key is another by now.
    """
    known = holders(connection)
    changed = [name for name, key in judged_by.items() if known.get(name) != key]
    if changed:
        raise Conflict(
            f"The key of {', '.join(changed)} was changed just now", code="key-changed",
            remedy="Put the key of `gput party list` into the roster, and submit once more.",
        )  # fmt: skip


def _end(connection: Connection, key: str, by: str, at: float) -> None:
    counts = (PARTY_KEYS.c.fingerprint == key) & PARTY_KEYS.c.valid_until.is_(None)
    connection.execute(update(PARTY_KEYS).where(counts).values(valid_until=at, ended_by=by))


def _add(
    connection: Connection, name: str, public: bytes, at: float, *, came: str, by: str, previous: str | None = None,
    statement: SignedRotation | None = None,
) -> None:  # fmt: skip
    said = None if statement is None else statement.model_dump(mode="json")
    row = {
        "fingerprint": fingerprint(public), "name": name, "public_key": public.hex(), "valid_from": at, "came": came, "came_by": by,
        "previous": previous, "statement": said,
    }  # fmt: skip
    connection.execute(insert(PARTY_KEYS).values(row))
