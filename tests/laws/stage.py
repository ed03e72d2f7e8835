"""Plays a schedule on a world of its own and has the laws checked all along. Knows worlds, acts and monitors; no test."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpu_agent.hardware.mux import Mux
from gpu_agent.unit import GpuUnit
from orchestrator.visits import granting
from shared.names import TravelMode
from shared.service.logging import configure_logging
from tests.laws.acts import Act, Say, Stage, Veto
from tests.laws.case import Case, Needles
from tests.laws.laws import LAWS, broken_laws
from tests.laws.witness import Witness, witnessing
from tests.world.world import ENDED, World
from tests.world.world_material import Material
from tests.world.world_power import rebooted

CHUNK_BYTES = 700  # several records a visit, so that their order can be disturbed


class MovableClock:
    """Seconds since 1970, as the machine says, moved ahead by what a test wants."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Theatre:
    """What every play uses: made once, for the GPU's compute takes seconds to start. `clock` is the GPU's, `folder` the current play's."""

    material: Material
    unit: GpuUnit
    clock: MovableClock
    needles: dict[str, Needles]
    folder: Path = Path()

    def power_cycle(self) -> None:
        """Another GPU, as after power-on, over the same memory and with the same warm compute process."""
        old, device = self.unit, self.unit.device
        for threads in old._threads.values():
            threads.shutdown(wait=True)
        fresh = rebooted(device, self.clock)
        self.unit = GpuUnit(fresh, old.compute, Mux(()))


class LawsBroken(AssertionError):
    """`laws`: what did not hold, by law."""

    def __init__(self, laws: dict[str, list[str]], after: object) -> None:
        found = "\n".join(f"  {law}: {words}" for law, breaches in laws.items() for words in breaches[:5])
        super().__init__(f"after {after}:\n{found}")
        self.laws = laws


@dataclass
class Play:
    """One session under a schedule. `judging`: stop at the first breach of a law; `more`: what else its manifest says."""

    theatre: Theatre
    folder: Path
    acts: Sequence[Act]
    holders: tuple[str, ...] = ("city", "harbour")
    patience_s: float = 300.0
    judging: bool = True
    mode: TravelMode = TravelMode.SCOPED
    more: Mapping[str, Any] = field(default_factory=dict)
    case: Case = field(init=False)

    def run(self) -> Case:
        """To the session's end.

        Raises:
            LawsBroken: a monitor reports; after which act, and what. TimeoutError: there was no end.
        """
        words, theatre = io.StringIO(), self.theatre
        configure_logging("debug", "json", words)
        theatre.folder, theatre.clock.ahead = self.folder, 0.0
        with (
            redirect_stdout(words), redirect_stderr(words), patch.object(granting, "MAX_CHUNK_BYTES", CHUNK_BYTES),
            witnessing() as witness,
        ):  # fmt: skip
            self.case = Case(witness, self.folder, words, {name: theatre.needles[name] for name in self.holders})
            try:
                asyncio.run(self._whole(witness))
            except BaseException as error:
                error.add_note("the services' last words:\n" + _tail(words))
                raise
        return self.case

    def breaches(self, law: str) -> list[str]:
        """What one monitor says of a run that goes on whatever breaks. That it may have no end at all is no matter here."""
        self.judging = False
        with suppress(TimeoutError):
            self.run()
        return LAWS[law](self.case).breaches

    async def _whole(self, witness: Witness) -> None:
        world = World(self.folder, self.theatre.material, self.theatre.unit, holders=self.holders)
        witness.watch(world.wire)

        def move_clock(seconds: float) -> None:
            world.offset += seconds
            self.theatre.clock.ahead += seconds

        async with asyncio.timeout(self.patience_s), world:
            # Where a holder may leave, the others are enough; everywhere else nobody may be passed over.
            quorum = 1 if any(isinstance(act, Veto) for act in self.acts) else None
            session = await world.submit(lease_s=2, quorum=quorum, travel_mode=self.mode, **self.more)
            stage = Stage(world, self.theatre.unit, witness, session, move_clock)
            for act in self.acts:
                await act.do(stage)
                self._judge(act)
            await self._to_the_end(stage)
        self._judge("the end")

    async def _to_the_end(self, stage: Stage) -> None:
        """Nobody says or does anything more, but what was armed; a session that pauses is told to go on."""
        while (view := await stage.view())["phase"] not in ENDED:
            if view["phase"] == "PAUSED":
                await Say("resume").do(stage)
            await asyncio.sleep(0.02)
        for task in [*stage.doing, *(trap.task for trap in stage.traps if trap.task is not None)]:
            await task
        self.case.view = await stage.view()
        self.case.visits = await stage.items("visits")

    def _judge(self, after: object) -> None:
        broken = broken_laws(self.case) if self.judging else {}
        if broken:
            raise LawsBroken(broken, after)


def _tail(words: io.StringIO) -> str:
    """What services said last, but for plain requests."""
    lines = [line for line in words.getvalue().splitlines() if '"event": "request"' not in line]
    return "\n".join(lines[-40:])
