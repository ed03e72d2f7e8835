"""A holder's stay at a bare device, the same in every travel mode: set up, install, bring records, fence. Knows no attack and no HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shared.canonical import cbor_value
from shared.claims.visit import Shares
from shared.crypto.cose import verify1
from shared.crypto.shares import Share
from shared.errors import GputError
from shared.names import RegionKind, TravelMode
from shared.wire import gpu
from tests.gpu.gpu_world import RECORD_BYTES, Holder, World, records

DATA = records(32)
BUFFERS = {TravelMode.SCOPED: 2, TravelMode.DIRECT: 2, TravelMode.PAPER: 1}
ALL_MODES = tuple(TravelMode)


@dataclass
class Visitors:
    """Holders of one session in one mode. `regions`: how many visits may be open side by side."""

    world: World
    mode: TravelMode

    def set_up(self, **changes: Any) -> None:
        """A fresh session, ready for visits."""
        self.world.set_up(**({"travel_mode": self.mode, "buffers": BUFFERS[self.mode]} | changes))

    @property
    def regions(self) -> int:
        return BUFFERS[self.mode]

    def install(self, data: bytes = DATA, region: int = 0, **changes: Any) -> Holder:
        """Open an epoch, install the mode's grant for `data`, be its holder."""
        world, own = self.world, None
        epoch, _, secret = world.open_epoch()
        fields: dict[str, Any] = {"mode": self.mode}
        if self.mode is TravelMode.PAPER:
            fields |= {"rights": "rwx", "address": world.region(RegionKind.DATASET, region).address}
        if self.mode is TravelMode.DIRECT:
            own = Share(os.urandom)
            holder = str(changes.get("holder", "north"))
            statement = world.run(gpu.DrawShare(epoch=epoch, holder=holder))[0].statement
            said: Any = cbor_value(verify1(statement, world.device._root.statement_key.public))
            fields["shares"] = Shares(holder=own.public.hex(), gpu=said["share"])
        grant = world.grant(epoch, len(data) // RECORD_BYTES, region, data, **(fields | changes))
        installed = world.run(gpu.InstallGrant(grant=grant))[0]
        return Holder(world.device, grant, secret, installed, data, own)

    def leave(self, holder: Holder, sealed: Iterable[bytes]) -> str | None:
        """Have the GPU take records as they come, or staging: None if all were taken (and published, where they were copied), else why
        not."""
        try:
            for record in sealed:
                holder.sent.append(record)
                if self.mode is TravelMode.DIRECT:
                    holder.device.stage(holder.grant.port, record)
                else:
                    ack = holder.copy(record)
            return None if self.mode is TravelMode.DIRECT or ack.published else "not published"
        except GputError as error:
            return error.code

    def bring(self, holder: Holder, sealed: Iterable[bytes]) -> str | None:
        """The same, and the fetch that staging needs: None if the GPU published them, else why not."""
        refused = self.leave(holder, sealed)
        if refused is not None or self.mode is not TravelMode.DIRECT:
            return refused
        fetched = self.world.run(gpu.Fetch(epoch=holder.grant.epoch))[0]
        return None if fetched.published else fetched.refusal

    def fence(self, holder: Holder) -> Any:
        """Take the GPU back: what is left in the region. In `paper` with the sweep that has to follow."""
        _, opened, _ = self.world.open_epoch(holder.grant.epoch)
        self.world.run(gpu.Drain())
        if self.mode is TravelMode.PAPER:
            self.world.run(gpu.Sweep())
        return opened.fenced[0] if opened.fenced else None

    def visit(self, data: bytes = DATA, **changes: Any) -> Holder:
        """An honest visit up to its fence."""
        holder = self.install(data, **changes)
        assert self.bring(holder, holder.seal(data)) is None
        self.fence(holder)
        return holder

    def close(self, holder: Holder, work: str = "w1") -> None:
        """After training: commit, scrub, statement."""
        self.world.run(
            gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit)
        )

    def buffer(self, holder: Holder) -> bytes:
        """What lies in the holder's region."""
        place = next(r for r in self.world.regions if r.handle == holder.grant.region)
        return bytes(self.world.hbm.view(place.address, place.length))


def code_of(act: Any) -> str:
    """The code with which an act is refused; "done" where it is not."""
    try:
        act()
    except GputError as error:
        return error.code
    return "done"
