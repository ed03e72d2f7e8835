"""What a hostile platform does with MUX and power: leads elsewhere, or to two at once, exchanges the GPU, resets it. Knows no result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx2

from gpu_agent.hardware.device import Device
from tests.adversary.platform import COMMANDS, HostilePlatform, elsewhere, record
from tests.world.world_power import another, rebooted
from tests.world.world_wire import Call, Deliver

NOBODY = "holder-nobody"
TIMES = 6


def reroute(platform: HostilePlatform) -> None:
    """In mid-visit, just as a record comes, the MUX leads to another machine; and back after it."""
    mux, others = platform.gpu.mux, [NOBODY, *(f"holder-{name}" for name in platform.world.holders)]

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if not record(call) or platform.done >= TIMES:
            return await deliver(call)
        platform.done += 1
        bound = mux.selected.port
        mux.bind(platform.draw.choice([port for port in others if port != bound]))
        try:
            return await deliver(call.at_once())
        finally:
            mux.bind(bound)

    platform.hook(hook)


def bind_two_ports(platform: HostilePlatform) -> None:
    """The MUX leads to everybody at once. Two machines write in turns, each record also on another's port; and while the holder writes, the
    orchestrator's port is open as well, for a frame of long ago."""
    mux, frames = platform.gpu.mux, list[Call]()
    open_to_all(platform)

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.path.endswith(COMMANDS):
            frames.append(call)
        if not record(call) or platform.done >= 4 * TIMES:
            return await deliver(call)
        others = [NOBODY, *(f"holder-{name}" for name in platform.world.holders if name not in call.client)]
        await platform.say(elsewhere(call, platform.draw.choice(others)), deliver)
        if len(frames) > 1 and mux.selected.port != "orchestrator":
            await platform.say(platform.draw.choice(frames[:-1]), deliver)
        return await deliver(call)

    platform.hook(hook)


def open_to_all(platform: HostilePlatform) -> None:
    """From here on the MUX turns nobody away, whichever port is bound."""
    mux = platform.gpu.mux
    mux.require = lambda port: None  # type: ignore[method-assign]  # a MUX of the platform's own making
    platform.undo.callback(lambda: delattr(mux, "require"))


def here(platform: HostilePlatform, call: Call) -> bool:
    """Whether a call is answered as it comes: its port is bound, or it is for staging, which is host memory."""
    port = platform.gpu.mux.selected.port
    return f"/ports/{port}/" in call.path or call.path.endswith("/staging")


def exchange_once(platform: HostilePlatform) -> None:
    """One command and one record come to another genuine GPU, behind the same MUX; the first one is there again afterwards."""
    _exchange(platform, for_good=False)


def exchange_for_good(platform: HostilePlatform) -> None:
    """From one command on, another genuine GPU stands in the first one's place."""
    _exchange(platform, for_good=True)


def _exchange(platform: HostilePlatform, *, for_good: bool) -> None:
    unit, first = platform.gpu, platform.gpu.device
    second = another(platform.world.folder, first)
    platform.undo.callback(second.close)
    platform.undo.callback(lambda: setattr(unit, "device", first))
    due = {COMMANDS: platform.draw.randrange(8, 16)} | ({} if for_good else {"records": platform.draw.randrange(2, 6)})

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        kind = "records" if record(call) else COMMANDS if call.path.endswith(COMMANDS) else ""
        if kind not in due:
            return await deliver(call)
        # A record that waits for the GPU would keep the other one here for as long as it waits.
        if kind == "records" and not here(platform, call):
            return await deliver(call)
        due[kind] -= 1
        if due[kind] != 0:
            return await deliver(call)
        platform.done += 1
        unit.device = second
        try:
            return await deliver(call)
        finally:
            if not for_good:
                unit.device = first

    platform.hook(hook)


def reset(platform: HostilePlatform) -> None:
    """The GPU loses all it holds, twice: between two commands and between two records."""
    due = {COMMANDS: platform.draw.randrange(8, 16), "records": platform.draw.randrange(2, 6)}

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        kind = "records" if record(call) else COMMANDS if call.path.endswith(COMMANDS) else ""
        if kind in due:
            due[kind] -= 1
            if due[kind] == 0:
                await reset_now(platform)
        return await deliver(call)

    platform.hook(hook)


async def reset_now(platform: HostilePlatform, clock: Callable[[], float] = time.time) -> None:
    """Now; a command that is under way ends first."""
    platform.done += 1
    unit = platform.gpu

    def act() -> Device:
        with unit.device._ordered():
            return rebooted(unit.device, clock)

    unit.compute.wake()
    unit.device = await asyncio.to_thread(act)
