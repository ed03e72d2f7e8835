"""The orchestrator's identity: the key by which holders and the platform know it. Knows no session but that it goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select

from orchestrator.lease.keeper import read_alone
from orchestrator.party_rules import ENDED
from orchestrator.settings import OrchestratorSettings
from orchestrator.site import holder
from orchestrator.tables import SESSIONS
from shared.crypto.signing import PartyKey
from shared.errors import Conflict
from shared.service.clock import system_entropy
from shared.service.store import Store

FILE = "identity.pem"
NEXT = "identity.next.pem"


def identity_of(settings: OrchestratorSettings) -> PartyKey:
    """The key, made on first start. Raises: ConfigurationError."""
    return PartyKey.load_or_generate(settings.files_dir / FILE)


def rotate_identity(settings: OrchestratorSettings) -> dict[str, Any]:
    """Put a new key in the identity's place, between sessions, while no orchestrator of this deployment runs; answers its fingerprint.

    Raises:
        Conflict: code `identity-in-use`: sessions go on whose holders remember it. ConfigurationError: `schema-in-use`. Unavailable.
    """
    store = Store(settings.store_url)
    going_on = read_alone(store, lambda: holder(settings, system_entropy), _going_on)
    if going_on:
        raise Conflict(
            f"holders of {', '.join(going_on[:5])} remember this orchestrator's identity until they end", code="identity-in-use",
            remedy="Wait for their end, or cancel them.",
        )  # fmt: skip
    old = identity_of(settings)
    path = settings.files_dir / FILE
    _replace(path, settings.files_dir / NEXT)
    new = identity_of(settings)  # writes the public half beside it
    return {"identity": new.fingerprint, "was": old.fingerprint, "public_key": str(path.with_suffix(".pub"))}


def _replace(path: Path, draft: Path) -> None:
    draft.unlink(missing_ok=True)  # of a rotation that was interrupted: nobody heard of it
    PartyKey.generate().save(draft)
    os.replace(draft, path)


def _going_on(connection: Connection) -> list[str]:
    if not inspect(connection).has_table(SESSIONS.name):
        return []
    return list(connection.execute(select(SESSIONS.c.id).where(SESSIONS.c.phase.not_in(ENDED))).scalars())
