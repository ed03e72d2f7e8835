"""The manifest of a successor, with what has to be asked for it: what its predecessor left, who is enrolled, whose keys moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gput.answers import read_as
from gput.enrolled import enrolled_holders, revoked_holders
from gput.ids import in_full
from gput.rotated import rotated
from gput.succession import check_predecessor, successor_of
from shared.claims.manifest import Manifest, Predecessor

if TYPE_CHECKING:
    from gput.api import Api


async def successor(
    api: Api, session: str, *, replace: Mapping[str, str] | None, add: Sequence[str], remove: Sequence[str], rounds: int | None
) -> Manifest:  # fmt: skip
    """As `Api.successor`."""
    says = read_as(Predecessor, await api.get(f"sessions/{in_full(session)}/continuation"))
    parties = await api.items("parties")
    enrolled, revoked = enrolled_holders(parties), revoked_holders(parties)
    old = await api.own_manifest(session)
    check_predecessor(old, says, session)
    moved = await rotated(api.items, old, says, enrolled)
    return successor_of(
        old, says, enrolled, replace=replace, add=add, remove=remove, rounds=rounds, moved=moved, revoked=revoked
    )
