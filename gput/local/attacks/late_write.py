"""HOSTILE CODE (attack tour), H08: a record sealed by the holder, delivered by the platform between each pair of return steps."""

from __future__ import annotations

from gput.local.attacks.attack import Attack
from gput.local.attacks.relay import Answer, Call, Deliver
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from shared.names import ORCHESTRATOR_PORT, TravelMode

WHO = "north"
TRIES = 12


class LateDelivery:
    """Before each command frame of the orchestrator, once the holder has written: binds its port again and delivers its late record."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.said: list[Said] = []

    async def hook(self, call: Call, deliver: Deliver) -> Answer:
        """Calls to the GPU agent."""
        deeds = self._stage.deeds(WHO) if len(self.said) < TRIES else []
        if deeds and call.path.endswith(f"/{ORCHESTRATOR_PORT}/commands"):
            hand, port = self._stage.hand, deeds[0]["port"]
            await hand.bind(port)
            self.said.append(await hand.put(port, "copy", bytes.fromhex(deeds[0]["record"])))
            await hand.bind(ORCHESTRATOR_PORT)
        return await deliver(call)


async def run(stage: Stage) -> Result:
    """A holder that seals one record too many, and a platform that delivers it."""
    late = LateDelivery(stage)
    stage.turn(WHO, "late-write")
    stage.installation.change("orchestrator", agent_url=await stage.relay("agent", late.hook))
    await stage.start()
    view = await stage.ended()
    codes = [said.code for said in late.said]
    before, after = codes.count("copy-refused"), codes.count("no-grant")
    mine = [visit["outcome"] for visit in await stage.visits() if visit["holder"] == WHO]
    shown = [next((said for said in late.said if said.code == code), None) for code in ("copy-refused", "no-grant")]
    return Result(
        f"one record under the visit's own key and next counter, delivered {len(codes)} times: before each of the orchestrator's "
        "commands from the return on, with the MUX bound back to the holder",
        "STOPPED",
        tuple(Said("GPU agent, grants", said.code, said.message) for said in shown if said is not None),
        (
            Fact(
                f"refused {before} times before the fence, {after} times after it",
                before > 0 and after > 0 and before + after == len(codes),
            ),
            Fact(f"{WHO}'s visit: {', '.join(mine)}", mine == ["closed"]),
            completed(view),
            await stage.same_model(view),
        ),
        "fence first, then look: the GPU forgets the visit's key before anything is verified",
    )


ATTACK = Attack(
    "late-write", ("H08", "C03"), (TravelMode.SCOPED, TravelMode.PAPER), f"data holder {WHO} together with the platform",
    "a write delivered after the visit's return, between the steps that verify it",
    "H08: fence first, then verify. C03: fence", run, rounds=1,
)  # fmt: skip
