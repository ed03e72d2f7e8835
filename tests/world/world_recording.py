"""One undisturbed session, recorded whole, that many tests read: views, receipts, log, model, wire. Knows no test."""

from __future__ import annotations

import asyncio
import io
import itertools
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_agent.unit import GpuUnit
from gput.receipts import Verified, save, verify
from tests.world.world import World
from tests.world.world_material import Material
from tests.world.world_wire import Wire


@dataclass
class Recording:
    """What was seen."""

    session: str
    view: dict[str, Any]
    visits: list[dict[str, Any]]
    losses: dict[str, list[Any]]
    links: dict[str, dict[str, int]]
    heads: list[dict[str, Any]]
    consistency: list[list[str]]
    receipts: Verified
    approvals: list[dict[str, Any]]
    holder_receipts: dict[str, list[Any]]
    model: bytes
    wire: Wire
    folder: Path


def record_session(folder: Path, material: Material, unit: GpuUnit) -> Recording:
    """Run the usual session once."""
    words = io.StringIO()
    with redirect_stdout(words), redirect_stderr(words):
        try:
            return asyncio.run(_record(folder, material, unit))
        except BaseException as error:
            error.add_note("the services' last words:\n" + words.getvalue()[-8000:])
            raise


async def _record(folder: Path, material: Material, unit: GpuUnit) -> Recording:
    async with World(folder, material, unit) as world:
        session = await world.submit()
        heads = []
        for closed in (2, 4):
            await world.until(session, lambda view, closed=closed: view["visits_closed"] >= closed)
            heads.append(await world.owner.get(f"sessions/{session}/log/head"))
        view = await world.completed(session)
        heads.append(await world.owner.get(f"sessions/{session}/log/head"))
        proofs = [
            (await world.owner.get(f"sessions/{session}/log/consistency", **{"from": a["size"], "to": b["size"]}))[
                "path"
            ]
            for a, b in itertools.pairwise(heads)
        ]
        await save(world.owner, session, folder / "receipts", folder / "trust")
        await world.owner.model(session, folder / "model.safetensors")
        return Recording(
            session=session, view=view, visits=await world.visits(session),
            losses={"owner": await world.owner.items(f"sessions/{session}/losses")},
            links={name: await world.operator(name).get("links") for name in world.holders},
            heads=heads, consistency=proofs, receipts=verify(folder / "receipts"),
            approvals=await world.owner.items(f"sessions/{session}/approvals"),
            holder_receipts={name: await _receipts(world, name, session) for name in world.holders},
            model=(folder / "model.safetensors").read_bytes(), wire=world.wire, folder=folder,
        )  # fmt: skip


async def _receipts(world: World, holder: str, session: str) -> list[Any]:
    operator = world.operator(holder)
    for _ in range(200):
        items: list[Any] = (await operator.get(f"receipts?session={session}"))["items"]
        if len(items) >= 2:
            break
        await asyncio.sleep(0.02)
    return items
