"""Which parties of an ended session have another key by now that came from the old one by their own signatures. Knows no command.

The orchestrator is asked for the statements; what counts of its answer is what the older keys signed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shared.attestation.key_rotations import came_by_rotation, moved_keys
from shared.claims.manifest import Manifest, Predecessor


async def rotated(
    items: Callable[[str], Awaitable[list[Any]]], old: Manifest, says: Predecessor, keys: Mapping[str, str]
) -> set[str]:
    """Names of parties whose key in `keys` came by rotation from the one in `old`, or with which they contributed as `says` has it.

    Args:
        items: gives the whole list at a path under /v1.
        keys: fingerprints of now, by name.

    Raises:
        What `items` raises.
    """
    return {
        party
        for party, before in moved_keys(old, says, keys).items()
        if came_by_rotation(await items(f"parties/{party}/keys"), party, keys[party], before)
    }
