"""HOSTILE CODE (attack tour), H09, H10, C03: an earlier visit's key and records in a later visit. Knows no service's inside."""

from __future__ import annotations

from gput.local.attacks.attack import Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from shared.names import TravelMode

WHO = "north"


async def run(stage: Stage) -> Result:
    """A holder that keeps its first key, in a session of two rounds."""
    stage.turn(WHO, "stale-key")
    await stage.start()
    view = await stage.ended()
    deeds = stage.deeds(WHO)
    refused = [deed for deed in deeds if deed["code"] != "accepted"]
    mine = [visit["outcome"] for visit in await stage.visits() if visit["holder"] == WHO]
    first, last = (refused[0], refused[-1]) if refused else ({}, {})
    return Result(
        f"{len(deeds)} records in the second visit: the first visit's own, a new one under its key, and one made out for the new "
        "visit in all that is public",
        "STOPPED",
        tuple(Said("GPU agent, grants", str(d.get("code")), str(d.get("message"))) for d in (first, last)),
        (
            Fact(f"{len(refused)} of {len(deeds)} refused", len(deeds) == 3 and len(refused) == 3),
            Fact(
                f"{WHO}'s visits: {', '.join(mine)}; what ended was repeated", mine == ["closed", "recalled", "closed"]
            ),
            completed(view),
            await stage.same_model(view),
        ),
        "the epoch is fenced in the GPU; a key is drawn afresh per epoch and follows from no other",
    )


ATTACK = Attack(
    "stale-key", ("H09", "H10"), (TravelMode.SCOPED, TravelMode.PAPER), f"data holder {WHO}, which kept an old visit's key",
    "an earlier visit's key and records, used in a later visit",
    "H09: epoch in key and AAD; H10: rotation that no old key derives", run,
)  # fmt: skip
