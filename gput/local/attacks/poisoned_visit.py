"""HOSTILE CODE (attack tour), H15: a holder whose records are made to spoil the model. Knows no service's inside."""

from __future__ import annotations

import random
from pathlib import Path

from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage, completed
from shared.claims.manifest import Manifest

WHO = "city"
POISON_BYTES = 200_000
MOST_INCREASE = 0.01


def _guarded(manifest: Manifest) -> Manifest:
    """The session's owner checks every visit, and goes on without whoever fails."""
    if manifest.validation is None:
        return manifest
    validation = manifest.validation.model_copy(update={"every_visits": 1, "max_loss_increase": MOST_INCREASE})
    return manifest.model_copy(update={"validation": validation, "quorum": 2})


async def run(stage: Stage) -> Result:
    """Its private data is noise of bytes that no text has."""
    stage.manifest_change = _guarded
    stage.poison(WHO, lambda folder: _write_poison(folder, stage.plan.seed))
    await stage.start()
    view = await stage.ended()
    visits = await stage.visits()
    mine = [visit for visit in visits if visit["holder"] == WHO]
    others = [visit["outcome"] for visit in visits if visit["holder"] != WHO]
    first = mine[0]
    shown = next(entry for entry in view["holders"] if entry["holder"] == WHO)
    losses = view["validation_loss"]
    return Result(
        f"{WHO} approved and brought {POISON_BYTES:,} bytes of noise from outside of text, under its own valid key",
        "UNDONE",
        (Said("orchestrator, validation on held-out records", str(first["outcome"]), str(first["reason"])),),
        (
            Fact(f"{WHO}: {shown['rejected']} visit rejected and rolled back bit for bit, then visited no more",
                 [v["outcome"] for v in mine] == ["rejected"] and shown["quarantined"]),
            Fact(f"the others: {len(others)} visits closed", set(others) == {"closed"}),
            Fact(f"held-out loss {losses['first']:.3f} at the start, {losses['last']:.3f} at the end", losses["last"] < losses["first"]),
            completed(view),
        ),
        "the same; poison that leaves the held-out loss alone is not seen by it",
    )  # fmt: skip


def _write_poison(folder: Path, seed: int) -> None:
    noise = random.Random(seed)  # noqa: S311  # repeatable noise, no secret
    folder.mkdir(parents=True)
    (folder / "corpus.txt").write_bytes(bytes(noise.randrange(128, 256) for _ in range(POISON_BYTES)))


ATTACK = Attack(
    "poisoned-visit", ("H15",), EVERY, f"data holder {WHO}, with a valid key and hostile data",
    "records made to spoil the model",
    "H15: per-visit validation, clip, roll-back", run,
)  # fmt: skip
