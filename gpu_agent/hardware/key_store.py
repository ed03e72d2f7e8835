"""The GPU's key store: slot keys of one SPDM session and their IV masks. Knows no message, no grant and no engine.

After NVIDIA's key store (reference h100.md 4.2): every slot's key is derived from the export master secret under the slot's label.
LCE and SEC2 slots have a 12-byte IV mask that the GPU draws; GSP slots have none. There is no rotation here: a new life means a new
store (design 4.5), because the stock driver's rotation is a one-way function that an earlier key holder can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shared.crypto.schedule import IV_BYTES, KEY_SLOTS, SECRET_BYTES, slot_key
from shared.crypto.secret import Secret
from shared.errors import NotFound, ProtocolViolation

GSP_KEYSPACE: Final = 0


class KeyStore:
    """All slots of one life. `entropy` draws the IV masks.

    Raises:
        ProtocolViolation: `bad-export-master-secret`: not 48 bytes, or zero; `zero-key`: a slot's key is all zero.
    """

    def __init__(self, export_master_secret: bytes, entropy: Callable[[int], bytes]) -> None:
        if len(export_master_secret) != SECRET_BYTES or not any(export_master_secret):
            raise ProtocolViolation("no export master secret of 48 bytes", code="bad-export-master-secret")
        self._keys = {label: _nonzero(label, slot_key(export_master_secret, label)) for label in KEY_SLOTS}
        self._masks = {label: entropy(IV_BYTES) for label, (space, _) in KEY_SLOTS.items() if space != GSP_KEYSPACE}

    def key(self, label: str) -> bytes:
        """Key of a slot, 32 bytes. Raises: NotFound, ProtocolViolation `key-erased`."""
        return self._require(label).reveal()

    def iv_mask(self, label: str) -> bytes:
        """IV mask of an LCE or SEC2 slot, 12 bytes. Raises: as `key`; NotFound for a GSP slot, which has none."""
        self._require(label)
        if label not in self._masks:
            raise NotFound(f"key slot {label!r} has no IV mask", code="no-iv-mask")
        return self._masks[label]

    def erase(self) -> None:
        """Forget every key and mask."""
        self._keys.clear()
        self._masks.clear()

    def _require(self, label: str) -> Secret:
        if label not in KEY_SLOTS:
            raise NotFound(f"there is no key slot {label!r}", code="unknown-key-slot")
        if label not in self._keys:
            raise ProtocolViolation("the key store was erased", code="key-erased")
        return self._keys[label]

    def __repr__(self) -> str:
        return f"KeyStore({len(self._keys)} slots)"


def _nonzero(label: str, key: bytes) -> Secret:
    if not any(key):
        raise ProtocolViolation(f"key slot {label!r} would hold an all-zero key", code="zero-key")
    return Secret(key)
