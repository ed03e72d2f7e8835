"""What a hostile holder does with the keys it is given: its deeds by name. Seeded. Knows no world's outcome.

It is the attack tour's hostile holder (`gput.local.attacks.hostile_holder`) with more deeds. Where it writes it need not search: somebody
told it every address.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

from data_holder.carriers import DOORS
from data_holder.gpu_channel import Provisioned, Provisioner
from data_holder.sealing import Membership, RecordSealer
from gput.local.attacks.hostile_holder import Hostile, forged, remember
from gput.local.attacks.stock_tools import Gpu
from shared.claims.visit import Grant
from shared.crypto.visit_key import VisitKey
from shared.errors import GputError, NotFound
from shared.names import RegionKind, TravelMode
from shared.protocol.merkle import HASH_BYTES
from shared.wire.stock import MAX_STOCK_BYTES, LaunchProgram, ReadMemory, Span, WriteMemory
from tests.adversary.platform_edges import Held, LateWrites

PAGE = 4096


class Turned(Hostile):
    """One holder of a world in which the others are honest. `visit`: in which of its visits it does its deed, 0 for each of them;
    `kinds`: the regions that it overwrites.

    `before` is done before its records, `after` behind them, `instead` gives another sealer for them. `said`: what each act was answered.
    """

    name: ClassVar[str]
    device: ClassVar[Any]
    late: ClassVar[LateWrites]
    draw: ClassVar[random.Random]
    archive: ClassVar[bytes]
    visit: ClassVar[int]
    kinds: ClassVar[tuple[RegionKind, ...]]
    deed: ClassVar[str]
    said: ClassVar[list[tuple[str, str]]]
    read: ClassVar[list[bytes]]

    @classmethod
    def concerned(cls, grant: Grant) -> bool:
        return grant.holder == cls.name

    async def provision(self, grant: Grant, gpu: str, sealer: RecordSealer) -> Provisioned:
        """An honest holder's visits as they are; its own with the deed."""
        if not self.concerned(grant):
            return await Provisioner.provision(self, grant, gpu, sealer)
        cls = type(self)
        cls.visits.append((grant, self.keys[-1], []))
        due = self.visit in (0, len(self.visits))
        if due and (before := self._part("before")) is not None:
            await before(gpu)
        if due and (instead := self._part("instead")) is not None:
            sealer = instead(grant, sealer)
        remember(sealer, cls.visits[-1][2])
        try:
            done = await Provisioner.provision(self, grant, gpu, sealer)
        except GputError as error:
            if due:
                self._note("its records", error.code, error.detail)
            raise
        if due:
            self._note("its records", "accepted", "")
        if due and (after := self._part("after")) is not None:
            await after(gpu)
        return done

    def _part(self, when: str) -> Callable[..., Any] | None:
        part: Callable[..., Any] | None = getattr(self, f"{self.deed}_{when}", None)
        return part

    def _note(self, what: str, code: str, message: str, **more: Any) -> None:
        self.said.append((what, code))

    @property
    def _places(self) -> dict[RegionKind, Any]:
        return {region.kind: region for region in self.device._state.regions.all()}

    # ------------------------------------------------------------ with a key to the whole GPU, where it is one

    async def _command(self, gpu: str, act: Callable[[Gpu], Awaitable[object]]) -> None:
        grant, key, _ = self.visits[-1]
        try:
            await act(Gpu(self._link, gpu, grant, key))
        except GputError as error:
            self._note("command", error.code, error.detail)
        else:
            self._note("command", "accepted", "")

    async def scan_after(self, gpu: str) -> None:
        """Read all memory that is in use, and some that is not."""

        async def act(whole: Gpu) -> None:
            for start, length in [*self.device._hbm.allocated(), (self._spare(), 4096)]:
                for at in range(start, start + length, MAX_STOCK_BYTES):
                    answer = await whole.command(
                        ReadMemory(address=at, length=min(MAX_STOCK_BYTES, start + length - at))
                    )
                    if answer.code is not None:
                        raise NotFound(answer.detail or "", code=answer.code)
                    self.read.append(answer.data)
            model = self._places[RegionKind.MODEL]
            if bytes(self.device._hbm.view(model.address, model.length)) in b"".join(self.read):
                self._note("the model", "read", "")

        await self._command(gpu, act)

    async def overwrite_after(self, gpu: str) -> None:
        """Some bytes of each of its regions."""
        await self._write(gpu, *(self._places[kind].address + 4 * self.draw.randrange(64) for kind in self.kinds))

    async def redirect_launch_after(self, gpu: str) -> None:
        """Where launches find what they work on, in the control structures."""
        control = self.device._state.session.control
        await self._write(gpu, control.address + self.draw.randrange(control.length - 16))

    async def _write(self, gpu: str, *addresses: int) -> None:
        async def act(whole: Gpu) -> None:
            for address in addresses:
                await whole.write(address, self.draw.randbytes(12))

        await self._command(gpu, act)

    async def plant_code_after(self, gpu: str) -> None:
        """A program of its own in spare memory and over the session's, and a launch of it over the model, whose effect it stays to see: the
        fence would end the launch before it has one."""

        async def act(whole: Gpu) -> None:
            spare, places = self._spare(), self._places
            model = places[RegionKind.MODEL]
            look = ReadMemory(address=model.address, length=min(model.length, MAX_STOCK_BYTES))
            clean = (await whole.command(look)).data
            await whole.write(spare, self.archive)
            await whole.write(places[RegionKind.CODE].address + self.draw.randrange(64), b"trojan")
            spans = {
                kind.value: Span(address=places[kind].address, length=places[kind].length)
                for kind in (RegionKind.MODEL, RegionKind.GRADIENTS, RegionKind.OPTIMISER, RegionKind.COMMITTED)
            }
            grant = self.visits[-1][0]
            launch = LaunchProgram(
                kind="train", code=Span(address=spare, length=len(self.archive)), records=grant.records, steps=1,
                data=Span(address=places[RegionKind.DATASET].address, length=grant.length), total_steps=1000,
                options=self.device._state.config.options, **spans,
            )  # fmt: skip
            answer = await whole.command(launch)
            if answer.code is not None:
                raise NotFound(answer.detail or "", code=answer.code)
            while (await whole.command(look)).data == clean:  # noqa: ASYNC110  # a device tells nobody
                await asyncio.sleep(0.005)

        await self._command(gpu, act)

    def _spare(self) -> int:
        """The middle of the widest gap: regions lie at random places, the last of them perhaps at the very end of memory."""
        used = [(0, 0), *self.device._hbm.allocated(), (self.device._hbm.size, 0)]
        gaps = [(after[0] - sum(before), sum(before)) for before, after in pairwise(used)]
        length, start = max(gaps)
        return (start + length // 2) // PAGE * PAGE

    # ------------------------------------------------------------ with records

    async def write_late_after(self, gpu: str) -> None:
        """One record more than the visit has, and a command over the model: sealed now, delivered by the platform at any later edge."""
        grant, key, records = self.visits[-1]
        extra = forged(grant, key, records[0], index=len(records))
        self.late.held.append(Held(DOORS[grant.mode].name, grant.port, grant.epoch, extra))
        if grant.mode is TravelMode.PAPER:
            whole, model = Gpu(self._link, gpu, grant, key), self._places[RegionKind.MODEL].address
            frame = whole.sealed(WriteMemory(address=model, data=b"late"))
            self.late.held.append(Held("commands", grant.port, grant.epoch, frame))

    async def replay_before(self, gpu: str) -> None:
        """The first visit's record, one under its key, one made out for this visit; all of them once its grant stands, which may be after
        its key came."""
        grants, epoch = self.device._state.copies.grants, self.visits[-1][0].epoch
        while grants.of_epoch(epoch) is None:  # noqa: ASYNC110  # a device tells nobody
            await asyncio.sleep(0.001)
        await self._stale_key(gpu)

    def forge_iv_state_instead(self, grant: Grant, sealer: RecordSealer) -> RecordSealer:
        """Counters that do not begin where this visit's key begins."""
        assert sealer._channel is not None
        counter = self.draw.randrange(1, 1 << 16)
        for channel in sealer._channel._channels:
            channel.counter = counter
        return sealer

    def under_fill_instead(self, grant: Grant, sealer: RecordSealer) -> RecordSealer:
        """Fewer records than were planned, as if they were all."""
        count = self.draw.randrange(1, grant.cursor.count)
        fewer = grant.cursor.model_copy(update={"count": count})
        shown = replace(sealer._membership, leaves=sealer._membership.leaves[: count * HASH_BYTES])
        return self._sealer(grant.model_copy(update={"cursor": fewer}), sealer, shown)

    def equivocate_instead(self, grant: Grant, sealer: RecordSealer) -> RecordSealer:
        """Others of its records than the planned ones."""
        shift = self.draw.randrange(1, 8)
        others = grant.cursor.model_copy(update={"start": grant.cursor.start + shift})
        return self._sealer(grant.model_copy(update={"cursor": others}), sealer, sealer._membership)

    def _sealer(self, grant: Grant, honest: RecordSealer, shown: Membership) -> RecordSealer:
        key: VisitKey = self.keys[-1]
        return RecordSealer(grant, key, honest._dataset, shown, self.draw.randbytes(32))

    async def hoard_before(self, gpu: str) -> None:
        """Keep the GPU: nothing is written, nothing is said, until somebody takes it back."""
        self._note("the GPU", "kept", "")
        await asyncio.Event().wait()

    async def impersonate_after(self, gpu: str) -> None:
        """A record of its own on another holder's port."""
        grant, key, records = self.visits[-1]
        beside = forged(grant, key, records[0], index=len(records))
        await self._try("another's port", gpu, "holder-harbour", DOORS[grant.mode].name, beside)
