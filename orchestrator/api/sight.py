"""Which sessions a caller may see: owners and auditors all, holders those whose roster names the key that they have. Knows no route.

Of a session whose book is open the roster is at hand. Of one that is only listed, it stands in a manifest of up to megabytes: those are
read and parsed beside the event loop, and what they name is remembered, so that nobody's page holds up everybody's visits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from orchestrator.library import Library
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.rows import roster_of
from orchestrator.sessions.submission import read_manifest
from shared.canonical import sha256
from shared.claims.manifest import RosterEntry
from shared.errors import BadRequest, InvalidManifest, NotPermitted
from shared.names import Role
from shared.service.signatures import Caller

MOST = 4096
"""Keys that are remembered: a quarter of a kilobyte each."""
AT_ONCE = 32
"""Manifests that are in memory for one caller's page."""


class RosterKeys:
    """Which key a manifest's roster names for a holder. Called on any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, str], str | None] = OrderedDict()
        self._lock = Lock()

    def of(self, document: bytes, holder: str) -> str | None:
        """Fingerprint of the holder's key; None: the roster does not name it, or nobody can read the manifest. May take milliseconds."""
        place = sha256(document), holder
        with self._lock:
            if place in self._known:
                self._known.move_to_end(place)
                return self._known[place]
        try:
            key = roster_key_of(read_manifest(document).roster, holder)
        except (InvalidManifest, BadRequest):
            key = None
        with self._lock:
            self._known[place] = key
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return key


def roster_key_of(roster: Sequence[RosterEntry], holder: str) -> str | None:
    """Fingerprint of the key by which a roster names a holder; None: it does not."""
    return next((entry.key for entry in roster if entry.holder == holder), None)


class Sight:
    """Which sessions may be shown to a caller, for one request: what a key came from is looked up once for each key."""

    def __init__(self, catalogue: Catalogue, library: Library, roster_keys: RosterKeys, caller: Caller) -> None:
        self._catalogue, self._parties, self._keys = catalogue, library.parties, roster_keys
        self._caller, self._everything = caller, bool(caller.roles & {Role.OWNER, Role.AUDITOR})
        self._came: dict[str, bool] = {}

    async def rows(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of `Catalogue.page` that may be shown, of those that can be read. One whose manifest cannot be read is no holder's."""
        legible = [row for row in rows if row["summary"] is not None]
        if self._everything:
            return legible
        # As good as the manifest, and says it without parsing one.
        named = [row for row in legible if self._caller.name in roster_of(row)]
        keys: dict[str, str | None] = {}
        for start in range(0, len(named), AT_ONCE):
            stored = await self._catalogue.manifests([row["id"] for row in named[start : start + AT_ONCE]])
            keys |= await asyncio.to_thread(self._named_in, stored)
        return [row for row in named if await self._is(keys.get(row["id"]))]

    def _named_in(self, stored: Mapping[str, bytes]) -> dict[str, str | None]:
        return {session: self._keys.of(document, self._caller.name) for session, document in stored.items()}

    async def roster(self, roster: Sequence[RosterEntry]) -> bool:
        """Whether the caller is a holder of this roster, by its key or one that came from it."""
        return await self._is(roster_key_of(roster, self._caller.name))

    async def require(self, roster: Sequence[RosterEntry]) -> None:
        """That the caller is a holder of this roster. Raises: NotPermitted: it is not, or its key did not come from the roster's."""
        key = roster_key_of(roster, self._caller.name)
        if key is None:
            raise NotPermitted("This session does not concern you", code="not-in-roster")
        if not await self._is(key):
            raise key_replaced(key, self._caller.fingerprint)

    async def _is(self, key: str | None) -> bool:
        if key is None:
            return False
        if key not in self._came:
            own = self._caller.fingerprint
            self._came[key] = key == own or await self._parties.came_from(own, key)
        return self._came[key]


def key_replaced(expected: str, got: str) -> NotPermitted:
    """The caller's key is not the one by which the roster knows its name, and did not come from it."""
    return NotPermitted(
        "Your key took the place of the one in this session's roster without its signature", code="key-replaced",
        remedy="Ask the session's owner for what you need of it.", expected=expected, got=got,
    )  # fmt: skip
