"""HOSTILE CODE (attack tour), V11: the GPU's clearing engine does nothing and says it is done. Knows no service's inside."""

from __future__ import annotations

from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage
from shared.names import TravelMode


async def run(stage: Stage) -> Result:
    """Start the agent patched, and let the session run into its first scrub."""
    stage.installation.modules["agent"] = "gput.local.attacks.lazy_agent"
    await stage.start()
    view = await stage.ended()
    failure = view["failure"] or {}
    # The stop that comes next is planned along with the end of the one before, and granted behind the scrub alone. Its phase does not say
    # so any more: what the failed session left open was recalled.
    visits = [visit for visit in await stage.visits() if "granted" in await stage.facts(visit["id"])]
    buffers = (
        2 if stage.plan.mode is TravelMode.DIRECT else 1
    )  # `direct` loads ahead into a second one, never used before
    holders = ", ".join(sorted(visit["holder"] for visit in visits))
    receipts = [visit for visit in visits if visit["receipt"] is not None]
    return Result(
        "memory clearing patched to do nothing and report success; everything else runs as it must",
        "STOPPED",
        (
            Said(
                "GPU's own read-back, passed on by the orchestrator",
                str(failure.get("code")),
                str(failure.get("detail")),
            ),
        ),
        (
            Fact(f"session {view['phase']} at its first scrub of used memory", failure.get("code") == "scrub-failed"),
            Fact(f"granted: {holders}; {buffers} buffer(s), none granted again", 0 < len(visits) <= buffers),
            Fact(f"{len(receipts)} receipts signed: no scrub was proven", not receipts),
        ),
        "here only memory is patched, so read-back finds it; firmware that also lied about read-back is another image, whose "
        "measurement no reference value (RIM) has",
    )


ATTACK = Attack(
    "lazy-scrub", ("V11", "H01"), EVERY, "platform with a GPU whose scrub only says that it is done",
    "a GPU that leaves the last holder's records where the next one writes",
    "V11: authenticated read-back of zeros; refused without it", run, rounds=1,
)  # fmt: skip
