"""The travel modes as a table (design 4.4): what a visit's key may do and how records reach GPU memory. Knows no key, wire or storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from shared.claims.manifest import Manifest
from shared.names import TravelMode


@dataclass(frozen=True)
class Travel:
    """What one mode gives a holder.

    `rights`: as the grant states them; "rwx" is everything, everywhere. `told`: the holder learns the buffer's address. `away`: the GPU
    goes to the holder's port. `agreed`: holder and GPU agree the traffic key, records are left in staging, and the GPU fetches them
    by the orchestrator's command. `ahead`: the next holder fills staging while the GPU trains, hence two buffers.
    """

    rights: Literal["w", "rwx"]
    told: bool
    away: bool
    agreed: bool
    ahead: bool

    @property
    def buffers(self) -> int:
        """Dataset regions that a session needs which trains visit by visit."""
        return 2 if self.ahead else 1

    @property
    def whole_gpu(self) -> bool:
        """The key commands all of the GPU: nobody else has a grant meanwhile, and after the fence all of memory is looked at."""
        return self.rights == "rwx"


TRAVEL: Mapping[TravelMode, Travel] = MappingProxyType(
    {
        TravelMode.PAPER: Travel(rights="rwx", told=True, away=True, agreed=False, ahead=False),
        TravelMode.SCOPED: Travel(rights="w", told=False, away=True, agreed=False, ahead=False),
        TravelMode.DIRECT: Travel(rights="w", told=False, away=False, agreed=True, ahead=True),
    }
)


def buffers(manifest: Manifest) -> int:
    """Dataset regions that a session needs: in a collected tour every holder has one of its own."""
    return len(manifest.roster) if manifest.collect == "tour" else TRAVEL[manifest.travel_mode].buffers
