"""HOSTILE CODE (attack tour), V06: the GPU appears at another VM than the one that was offered the visit. Knows no service's inside."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gput.local.attacks.attack import Attack
from gput.local.attacks.platform_hand import GPU_AGENT, PlatformHand
from gput.local.attacks.relay import Answer, Call, Deliver
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from shared.names import TravelMode, holder_port

VICTIM, OTHER = "north", "harbour"
WINDOW = 8


class Misrouter:
    """At the victim's first record: binds the GPU to the other VM, gives that one all it saw, and only then lets things go on."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.tried: list[Said] = []
        self.victim: Said | None = None
        self.seen: list[bytes] = []

    async def hook(self, call: Call, deliver: Deliver) -> Answer:
        """Calls to the GPU agent."""
        if not call.path.endswith(f"/{holder_port(VICTIM)}/copy"):
            return await deliver(call)
        self.seen.append(call.body)
        if self.victim is not None:
            return await deliver(call)
        hand: PlatformHand = self._stage.hand
        await hand.bind(holder_port(OTHER))
        self.victim = await hand.put(holder_port(VICTIM), "copy", call.body)
        self.tried.append(await hand.put(holder_port(OTHER), "copy", call.body))
        self.tried.append(await hand.put(holder_port(OTHER), "commands", call.body))
        await hand.bind(holder_port(VICTIM))
        return await deliver(call)


async def run(stage: Stage) -> Result:
    """A relay in front of the agent, and the platform's own key."""
    router = Misrouter(stage)
    stage.between_machines()
    stage.installation.change("orchestrator", agent_url=await stage.relay("agent", router.hook))
    await stage.start()
    view = await stage.ended()
    windows = await asyncio.to_thread(leaked, router.seen, stage.folder / "data" / VICTIM)
    refused = [said for said in router.tried if said.code != "accepted"]
    victim = router.victim or Said(GPU_AGENT, "nothing happened", "no record came by")
    return Result(
        f"the MUX was bound to {OTHER} in {VICTIM}'s visit; at {OTHER}'s port the record that it snooped, as copy and as command",
        "STOPPED",
        (Said("GPU agent, MUX", victim.code, victim.message), *refused[:1]),
        (
            Fact(
                f"{len(refused)} of {len(router.tried)} tries at {OTHER}'s port refused",
                len(refused) == len(router.tried) > 0,
            ),
            Fact(
                f"{windows} windows of {WINDOW} record bytes in {sum(map(len, router.seen)):,} bytes that passed by",
                windows == 0,
            ),
            completed(view),
            await stage.same_model(view),
        ),
        "the key is the access right, not the MUX: a wrong switch costs time only",
    )


def leaked(seen: list[bytes], corpus: Path) -> int:
    """How many 8-byte windows of a holder's data occur in what was seen on the wire."""
    wire = {body[at : at + WINDOW] for body in seen for at in range(len(body) - WINDOW + 1)}
    files = (path.read_bytes() for path in corpus.rglob("*") if path.is_file())
    return sum(data[at : at + WINDOW] in wire for data in files for at in range(len(data) - WINDOW + 1))


ATTACK = Attack(
    "wrong-vm", ("V06", "V01"), (TravelMode.SCOPED, TravelMode.PAPER), "platform, together with the VM of another holder",
    "the platform routes the GPU to another holder's VM in the middle of a visit",
    "V06: the key is the access right; ciphertext only. V01: AES-GCM", run, rounds=1,
)  # fmt: skip
