"""A world of four holders: three begin a session, one of them is gone half-way, and a fourth can take its place. Knows no test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_agent.unit import GpuUnit
from gput.succession import successor_of
from shared.claims.manifest import Manifest, Predecessor
from shared.claims.training import AdamW, Schedule, TrainingOptions
from tests.world.world import World
from tests.world.world_faults import Point, Trap
from tests.world.world_material import BATCH, RECORDS, STEPS, Material
from tests.world.world_recorder import Ordered, Recorder

LEFT, CAME = "harbour", "valley"
FIRST = (LEFT, "city", "north")
"""Whoever is gone is visited first: what it does not come back to is the beginning of a round."""
PARTIES = (*FIRST, CAME)
ROUNDS = 3
LEASE_S = 3
"""For so long an offer to who is gone, or was killed, is waited upon."""
VISIT_RECORDS = BATCH * STEPS
OPTIONS = TrainingOptions(
    optimizer=AdamW(lr=1e-2), batch_size=BATCH, seed=7, schedule=Schedule(kind="cosine", warmup_steps=2)
)
CONTINUATION = "continuation = true\n"


@dataclass(frozen=True)
class Rested:
    """Files of a world whose session came to rest. Of its undisturbed successor: the `model`, and what its set-up commanded the GPU."""

    folder: Path
    session: str
    model: Mapping[str, Any]
    commands: tuple[str, ...]


def set_up(recorder: Recorder) -> tuple[str, ...]:
    """Names of all GPU commands before the first grant, in order."""
    batches = [event.commands for event in recorder.timeline if isinstance(event, Ordered)]
    names = [type(one).__name__ for batch in batches for one in batch]
    return tuple(names[: names.index("OpenEpoch")])


NewWorld = Callable[..., AbstractAsyncContextManager["SuccessorWorld"]]


class SuccessorWorld(World):
    """As World, of four holders whose policies agree to sessions that may go on without them."""

    def __init__(self, folder: Path, material: Material, unit: GpuUnit | None = None, **options: Any) -> None:
        options.setdefault("holders", PARTIES)
        super().__init__(folder, material, unit, **options)
        for name in self.holders:
            policy = self.folder / f"holder-{name}" / "policy.toml"
            if CONTINUATION not in (text := policy.read_text()):
                policy.write_text(text.replace("[session]\n", f"[session]\n{CONTINUATION}"))

    def first(self, **changes: Any) -> Manifest:
        """The predecessor's manifest: three holders, three rounds, a decaying rate, and it may go on without some of them."""
        usual = {
            "holders": FIRST,
            "lease_s": LEASE_S,
            "rounds": ROUNDS,
            "continuation": "remaining",
            "validation": None,
            "training": OPTIONS,
        }
        return self.material.manifest(**(usual | changes))

    async def begun(self, **changes: Any) -> str:
        """The predecessor, submitted."""
        await self.enrol()
        return str((await self.owner.submit(self.first(**changes)))["id"])

    async def left(self, **changes: Any) -> str:
        """A session that `LEFT` does not come back to after its first visit: it stands at the second round, whose first stop is there."""
        service = self[f"holder-{LEFT}"]
        gone = Trap(self, Point(f"holder-{LEFT}", "orchestrator", "/report", "after"), service.kill)
        session = await self.begun(**changes)
        await gone.done()
        await self.until(session, lambda view: view["visits_closed"] == len(FIRST) and view["phase"] == "RUNNING")
        return session

    async def ended(self, **changes: Any) -> str:
        """The same, given up by its owner; who is still there has heard of it, and remembers the log that it ended with."""
        session = await self.left(**changes)
        await self.owner.act(session, "cancel")
        assert (await self.finish(session))["phase"] == "CANCELLED"
        for name in set(FIRST) - {LEFT}:
            await self._has_ended(name, session)
        return session

    async def _has_ended(self, holder: str, session: str) -> None:
        async with asyncio.timeout(60):
            while True:
                request = await self.operator(holder).request(session)
                if (request["state"], request["waiting_for"]) == ("ended", None):
                    return
                await asyncio.sleep(0.02)

    async def succeed(self, session: str, **options: Any) -> str:
        """The successor, submitted: `CAME` in the place of `LEFT`."""
        options.setdefault("replace", {LEFT: CAME})
        return str((await self.owner.submit(await self.owner.successor(session, **options)))["id"])

    async def has_inherited_key(self, session: str) -> bool:
        """Whether the key to its predecessor's checkpoint is kept with the session's secrets."""
        app = self["orchestrator"].app
        assert app is not None
        house = app.state.orchestrator.house
        await house.catalogue.open(session)  # what opens them is read with its journal
        secrets = await house.sealed(session).load()
        assert secrets is not None
        return secrets.inherited is not None

    async def rest(self, session: str) -> Predecessor:
        """What a successor's manifest must say of the session."""
        return Predecessor.model_validate(await self.owner.get(f"sessions/{session}/continuation"))

    async def wanted(self, session: str, *, says: Mapping[str, Any] | None = None, **changes: Any) -> Manifest:
        """A successor's manifest with changes that the command would not write; `says`: changes of what it says of its predecessor."""
        keys = {name: self.material.keys[name].fingerprint for name in PARTIES}
        rest = await self.rest(session)
        sound = successor_of(await self.owner.manifest(session), rest, keys, replace={LEFT: CAME})
        predecessor = rest.model_copy(update=dict(says or {}))
        return Manifest.model_validate(sound.model_dump() | {"predecessor": predecessor.model_dump()} | changes)

    async def refusal(self, holder: str, session: str) -> str:
        """For whom the holder's request waits, once it has been looked at: for nobody, as it is not to be approved by hand either."""
        operator = self.operator(holder)
        async with asyncio.timeout(60):
            while True:
                request = await operator.request(session)
                said = str(request["waiting_for"])
                if said.startswith("nobody"):
                    break
                await asyncio.sleep(0.02)
        answer = await operator.say(f"requests/{session}/approve", {"manifest": request["manifest"], "dataset": "ehr"})
        assert answer.status_code in (403, 422), answer.text
        assert answer.json()["code"] in said
        return said


def give_records_on(folder: Path) -> None:
    """Give `CAME` the records of `LEFT`, from where `LEFT` stops after one visit: what is learned then is what `LEFT` would have taught."""
    arrays = np.load(folder / f"holder-{LEFT}" / "ehr.npz")
    order = (np.arange(RECORDS) + VISIT_RECORDS) % RECORDS
    np.savez(folder / f"holder-{CAME}" / "ehr.npz", **{name: arrays[name][order] for name in arrays.files})
