"""One session with one death in it, watched by the laws' monitors from before its submission to its end. Knows worlds; no cell by name."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from shared.errors import GputError
from tests.crash.cells import Way
from tests.crash.reaper import Reaper
from tests.laws.acts import AGENT, COMMANDS, ORCH, Stage
from tests.laws.stage import Play
from tests.laws.witness import Witness
from tests.world.test_world_early_stop import asked as stops_early
from tests.world.world import World
from tests.world.world_faults import Point, Trap

LEASE_S = 2
EVERY_VISIT = {"checkpoint_interval_s": 1e-6, "checkpoint_share": 1e6}
"""A checkpoint after each visit: by the clock, a machine that is fast enough has none yet when its GPU is wiped, and never restores one."""
AT_THE_END_S = 120.0
"""How long after the session's end a holder may still come to the last of its own steps."""


@dataclass
class CrashPlay(Play):
    """`receipts`: the log's, once the session has ended. `database_url`: where the orchestrator keeps its state, if not in a file."""

    reaper: Reaper = field(default_factory=lambda: Reaper(None))
    way: Way = field(default_factory=Way)
    database_url: str = ""
    receipts: list[dict[str, Any]] = field(default_factory=list)

    async def _whole(self, witness: Witness) -> None:
        settings: dict[str, dict[str, Any]] = {ORCH: dict(EVERY_VISIT)}
        if self.database_url:
            settings[ORCH]["database_url"] = self.database_url
        theatre = self.theatre
        world = World(self.folder, theatre.material, theatre.unit, holders=self.holders, settings=settings)
        witness.watch(world.wire)
        with self.reaper.watching():
            async with asyncio.timeout(self.patience_s), world:
                stage = Stage(world, theatre.unit, witness, "", self._clock_stands)
                self.reaper.arm(stage)
                for act in self.way.first:
                    await act.do(stage)
                if self.way.power_lost_at:
                    point = Point(ORCH, AGENT, COMMANDS, "after", 2, self.way.power_lost_at)
                    stage.traps.append(Trap(world, point, self.reaper.power_lost, witness))
                stage.session = await self._submitted(world)
                for act in self.way.then:
                    await act.do(stage)
                await self._to_the_end(stage)
                if self.reaper.cell is not None:
                    await self.reaper.done(AT_THE_END_S)
                    await self._to_the_end(stage)
                else:  # the same of holders, who hear of the end when their turn with the processor comes
                    for holder in self.holders:
                        await world.operator(holder).request(stage.session, AT_THE_END_S, phase=self.case.view["phase"])
                self.receipts = await stage.items("receipts")
        self._judge("the end")

    async def _submitted(self, world: World) -> str:
        """As an owner does whose orchestrator may die meanwhile: the same again, under the same key."""
        while True:
            with suppress(GputError):
                await world.enrol()
                tours = {self.way.tours: "tour"} if self.way.tours else {}
                early = stops_early(world.material) if self.way.early else {}
                manifest = world.material.manifest(
                    holders=self.holders, lease_s=LEASE_S, travel_mode=self.way.mode, **tours, **early
                )
                return str((await world.owner.submit(manifest, idempotency_key="the-one-session"))["id"])
            await asyncio.sleep(0.02)

    @staticmethod
    def _clock_stands(seconds: float) -> None:
        raise AssertionError(f"no act of this matrix moves a clock, by {seconds} s or at all")
