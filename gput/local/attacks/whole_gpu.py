"""HOSTILE CODE (attack tour), H04, H05: a holder uses its visit key as a key to the whole GPU. Knows no service's inside."""

from __future__ import annotations

from typing import Any

from gput.local.attacks.attack import Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from shared.names import TravelMode

WHO = "north"
MEMORY_BYTES = 64 * 1024**2
MODES = (TravelMode.PAPER, TravelMode.SCOPED)
RESTORED = {
    "quarantined": "from the GPU's committed copy",
    "lost": "from the newest checkpoint: the committed copy was hit",
}
"""From where the model came back. Model and committed copy lie at random addresses, and the search finds either of them first."""
HARDWARE = "memory here is 64 MiB, so that the search takes seconds; in 80 GiB it takes longer and finds the same"


async def model_overwrite(stage: Stage) -> Result:
    """Find the model's weights and zero some of them."""
    view, deeds, mine = await _play(stage, "model-overwrite")
    if stage.plan.mode is not TravelMode.PAPER:
        return await _no_command_path(stage, view, deeds, mine)
    found, restored = mine[0], RESTORED.get(mine[0]["outcome"])
    return Result(
        _tried(deeds),
        "UNDONE",
        (Said("orchestrator, verify after the fence", str(found["outcome"]), str(found["reason"])),),
        (
            Fact("the write succeeded: paper mode leaves memory open to a visit key", _taken(deeds)),
            Fact(f"visit {found['outcome']} before training; then {mine[-1]['outcome']}; model restored {restored or 'from nowhere'}",
                 restored is not None and mine[-1]["outcome"] == "closed"),
            completed(view),
            await stage.same_model(view),
        ),
        HARDWARE,
    )  # fmt: skip


async def trojan_code(stage: Stage) -> Result:
    """Find the training program and change an operator of it."""
    view, deeds, mine = await _play(stage, "trojan-code")
    if stage.plan.mode is not TravelMode.PAPER:
        return await _no_command_path(stage, view, deeds, mine)
    first = mine[0]
    facts = await stage.facts(first["id"])
    return Result(
        _tried(deeds),
        "UNDONE",
        (Said("orchestrator, on return: upload again, measure", str(first["outcome"]), f"the visit's facts: {', '.join(facts)}"),),
        (
            Fact("the write succeeded: paper mode leaves memory open to a visit key", _taken(deeds)),
            Fact("the approved program was uploaded over it and measured before training",
                 "verified" in facts and facts.index("fenced") < facts.index("verified") < facts.index("trained")),
            completed(view),
            await stage.same_model(view),
        ),
        HARDWARE,
    )  # fmt: skip


async def _play(stage: Stage, deed: str) -> tuple[Any, list[Any], list[Any]]:
    """(session, deeds, the attacker's visits), once the session has ended."""
    stage.installation.change("agent", hbm_bytes=MEMORY_BYTES)
    stage.turn(WHO, deed)
    await stage.start()
    view = await stage.ended()
    return view, stage.deeds(WHO), [visit for visit in await stage.visits() if visit["holder"] == WHO]


def _taken(deeds: list[Any]) -> bool:
    """Whether the GPU obeyed."""
    return [deed["code"] for deed in deeds] == ["accepted"]


def _tried(deeds: list[Any]) -> str:
    first: dict[str, Any] = deeds[0] if deeds else {}
    return f"searched GPU memory ({first.get('reads', 0)} reads of 1 MiB); {first.get('message', 'nothing done')}"


async def _no_command_path(stage: Stage, view: Any, deeds: list[Any], mine: list[Any]) -> Result:
    said = tuple(Said("GPU agent", deed["code"], deed["message"]) for deed in deeds)
    refused = [deed for deed in deeds if deed["code"] != "accepted"]
    return Result(
        "stock commands under the visit key to search memory, then a copy record for a region that is not its own",
        "STOPPED",
        said,
        (
            Fact(
                f"{len(refused)} of {len(deeds)} refused; in paper mode the commands are taken",
                len(deeds) == len(refused) == 2,
            ),
            Fact(
                f"{WHO}'s visit {mine[0]['outcome']}: what is refused changes nothing", mine[0]["outcome"] == "closed"
            ),
            completed(view),
            await stage.same_model(view),
        ),
        "a key that opens no command is this system's; stock firmware's key does (paper mode)",
    )


MODEL_OVERWRITE = Attack(
    "model-overwrite", ("H03", "H04"), MODES, f"data holder {WHO}, with a key to the whole GPU",
    "finds the model in GPU memory by reading all of it, and writes into it",
    "H04: digest before/after, roll-back. H03: paper's random addresses only cost a search, reading stays open",
    model_overwrite, rounds=1,
)  # fmt: skip
TROJAN_CODE = Attack(
    "trojan-code", ("H05",), MODES, f"data holder {WHO}, with a key to the whole GPU",
    "finds the training program in GPU memory and puts another one in its place",
    "H05: the code is uploaded again and verified", trojan_code, rounds=1,
)  # fmt: skip
