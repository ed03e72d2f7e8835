"""By what a dataset's row is believed: a MAC over what it says, of one kind for what the settings name or named, of another for what was
added. So nobody who can write to the table makes an added dataset of one that the settings name no more. Knows no table.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from typing import Any, Final

from shared.canonical import cbor_bytes
from shared.crypto.secret import Secret

OF_SETTINGS: Final = ("settings", "withdrawn")
_NAMED: Final = "gput/holder-settings-dataset/1"
_ADDED: Final = "gput/holder-dataset/1"
"""Earlier releases made it of every row."""


class RowMacs:
    """One holder's, under a key of its keyring's."""

    def __init__(self, key: Secret, holder: str) -> None:
        self._key, self._holder = key, holder

    def of(self, row: Mapping[str, Any]) -> bytes:
        """The MAC that the row is to have, by its source; 32 bytes."""
        return self._made(row, _NAMED if row["source"] in OF_SETTINGS else _ADDED)

    def is_own(self, row: Mapping[str, Any]) -> bool:
        """Whether it has that."""
        return row["mac"] is not None and hmac.compare_digest(self.of(row), row["mac"])

    def was_own(self, row: Mapping[str, Any], configured: Collection[str]) -> bool:
        """At a start: as `is_own`, and of what the settings name or named also as a release of before made it, which had one kind only."""
        is_named = row["name"] in configured or row["source"] in OF_SETTINGS
        made = [self._made(row, kind) for kind in ((_NAMED, _ADDED) if is_named else (_ADDED,))]
        return row["mac"] is not None and any(hmac.compare_digest(mac, row["mac"]) for mac in made)

    def _made(self, row: Mapping[str, Any], kind: str) -> bytes:
        said = [kind, self._holder, row["name"], row["path"], row["options"]]
        return hmac.digest(self._key.reveal(), cbor_bytes(said), "sha256")
