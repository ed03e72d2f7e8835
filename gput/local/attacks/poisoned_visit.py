"""HOSTILE CODE (attack tour), H15: a holder whose records are made to spoil the model. Knows no service's inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from gput.local.demos.texts import HOLDERS
from shared.claims.manifest import Manifest

WHO = "harbour"
POISON_BYTES = 200_000
MOST_INCREASE = 0.005
QUORUM = 2


def _guarded(manifest: Manifest) -> Manifest:
    """The session's owner checks every visit, and goes on without whoever fails."""
    if manifest.validation is None:
        return manifest
    validation = manifest.validation.model_copy(update={"every_visits": 1, "max_loss_increase": MOST_INCREASE})
    return manifest.model_copy(update={"validation": validation, "quorum": QUORUM})


async def run(stage: Stage) -> Result:
    """Its private data is one byte that no text has, again and again: training on it takes the model away from text."""
    stage.manifest_change, stage.min_parties = _guarded, QUORUM
    stage.poison(WHO, _write_poison)
    await stage.start()
    view = await stage.ended()
    visits = await stage.visits()
    mine = [visit for visit in visits if visit["holder"] == WHO]
    others = [visit for visit in visits if visit["holder"] != WHO]
    closed = [
        visit for visit in others if visit["outcome"] == "closed"
    ]  # `direct` recalls what was loaded ahead, and repeats it
    first = mine[0]
    following: dict[str, Any] = next((visit for visit in closed if visit["round"] > first["round"]), {})
    back, undone = first["validation_before"], following.get("validation_before")
    shown = next(entry for entry in view["holders"] if entry["holder"] == WHO)
    losses = view["validation_loss"]
    return Result(
        f"{WHO} approved and brought {POISON_BYTES:,} bytes of a value that no text has, under its own valid key",
        "UNDONE",
        (Said("orchestrator, validation on held-out records", str(first["outcome"]), str(first["reason"])),),
        (
            Fact(f"{WHO}: {shown['rejected']} visit rejected, then visited no more",
                 [v["outcome"] for v in mine] == ["rejected"] and shown["quarantined"]),
            Fact(f"held-out loss before it {back}, before the next visit {undone}", back == undone),
            Fact(f"the others: all their {len(closed)} visits closed", len(closed) == stage.plan.rounds * (len(HOLDERS) - 1)),
            Fact(f"held-out loss {losses['first']:.3f} at the start, {losses['last']:.3f} at the end", losses["last"] < losses["first"]),
            completed(view),
        ),
        "the same; poison that leaves the held-out loss alone is not seen by it",
    )  # fmt: skip


def _write_poison(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "corpus.txt").write_bytes(b"\xff" * POISON_BYTES)


ATTACK = Attack(
    "poisoned-visit", ("H15",), EVERY, f"data holder {WHO}, with a valid key and hostile data",
    "records made to spoil the model",
    "H15: per-visit validation, clip, roll-back", run, steps=40,
)  # fmt: skip
