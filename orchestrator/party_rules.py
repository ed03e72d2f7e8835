"""What may become of a party and its keys, as the rows stand: for who does it, and for who only asks. Writes nothing; knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from orchestrator.sessions.rows import LISTED, listed
from orchestrator.tables import PARTIES, PARTY_KEYS, SESSIONS
from shared.crypto.signing import fingerprint
from shared.errors import Conflict, NotFound, NotPermitted
from shared.protocol.session import SESSION

ENDED = tuple(phase.value for phase in SESSION.phases() if SESSION.final(phase))


def enrolled_so(connection: Connection, name: str, role: str, public_key: bytes) -> dict[str, Any] | None:
    """The party as it is enrolled already; None: neither its name nor its key is anybody's. Raises: Conflict `party-exists`."""
    old = party_row(connection, name)
    if old is None and known_key(connection, fingerprint(public_key)) is None:
        return None
    same = old is not None and (old["role"], old["public_key"]) == (role, public_key.hex())
    if old is None or not same or old["valid_until"] is not None:
        raise Conflict(
            f"{name} or this key is enrolled already, differently", code="party-exists",
            remedy="Use another name, or the enrolled key. A lost key: `gput party replace-key`.",
        )  # fmt: skip
    return old


def own_row(connection: Connection, name: str, caller: str) -> dict[str, Any]:
    """The party whose key (fingerprint) the caller's is. Raises: NotFound. NotPermitted `not-your-key`."""
    row = required(connection, name)
    if caller != row["fingerprint"]:
        raise NotPermitted("A party changes its own key only", code="not-your-key", expected=name)
    return row


def replaced_so(connection: Connection, row: Mapping[str, Any], public_key: bytes, replaces: str) -> bool:
    """Whether the key of this party took that one's place already. Raises: Conflict `key-mismatch`: its newest is neither."""
    newest = known_key(connection, fingerprint(public_key))
    if newest is not None and (row["public_key"], newest["previous"]) == (public_key.hex(), replaces):
        return True
    require_newest(row, replaces)
    return False


def require_change(connection: Connection, row: Mapping[str, Any], public: bytes) -> None:
    """That the party's key may be this one from now on. Raises: Conflict `key-in-use`, `key-was-used`."""
    if going_on := sessions_with(connection, row["name"]):
        raise Conflict(
            f"{row['name']}'s key stands in the manifest of {', '.join(going_on[:5])}, which has not ended", code="key-in-use",
            remedy="Wait for their end, or have their owner cancel them. What must not wait: `gput party revoke-key`.",
        )  # fmt: skip
    if known_key(connection, fingerprint(public)) is not None:
        raise Conflict("This key was somebody's before", code="key-was-used", remedy="Make a new one.")


def party_statement() -> Any:
    """Every party, with its newest key's validity."""
    validity = [PARTY_KEYS.c[name] for name in ("valid_from", "valid_until", "came")]
    return select(PARTIES, *validity).join(PARTY_KEYS, PARTY_KEYS.c.fingerprint == PARTIES.c.fingerprint)


def joined(connection: Connection, where: Any) -> dict[str, Any] | None:
    """The party of which this holds."""
    row = connection.execute(party_statement().where(where)).mappings().first()
    return None if row is None else dict(row)


def party_row(connection: Connection, name: str) -> dict[str, Any] | None:
    """The party of this name."""
    return joined(connection, PARTIES.c.name == name)


def required(connection: Connection, name: str) -> dict[str, Any]:
    """The party of this name. Raises: NotFound `unknown-party`."""
    row = party_row(connection, name)
    if row is None:
        raise NotFound(f"There is no party {name}", code="unknown-party")
    return row


def known_key(connection: Connection, key: str) -> dict[str, Any] | None:
    """What is kept of a key (fingerprint) that is or was anybody's."""
    row = connection.execute(select(PARTY_KEYS).where(PARTY_KEYS.c.fingerprint == key)).mappings().first()
    return None if row is None else dict(row)


def require_newest(row: Mapping[str, Any], key: str) -> None:
    """That a party's newest key is this one (fingerprint). Raises: Conflict `key-mismatch`."""
    if row["fingerprint"] != key:
        raise Conflict(
            f"{row['name']} has another key by now", code="key-mismatch", expected=key, got=row["fingerprint"],
            remedy="`gput party keys` shows them.",
        )  # fmt: skip


def sessions_with(connection: Connection, name: str) -> list[str]:
    """Those that can be read: a key is not to stay another's for what somebody did to one session's row."""
    rows = listed(connection, select(*LISTED).where(SESSIONS.c.phase.not_in(ENDED)))
    return [
        row["id"] for row in rows if row["summary"] and name in {entry["holder"] for entry in row["summary"]["holders"]}
    ]
