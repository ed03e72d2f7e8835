"""HOSTILE CODE (attack tour), V08: the agent plays a GPU that another manufacturer made. Knows no service's inside."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

from gpu_agent.platform.device_manufacture import manufacture_device
from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage
from gput.local.installation import GPU
from shared.errors import EmulationWarning


async def run(stage: Stage) -> Result:
    """Start the agent with a counterfeit's keys, and let the session begin."""
    counterfeit = stage.folder / "counterfeit"
    await asyncio.to_thread(_make, counterfeit)
    stage.installation.change("agent", device_dir=counterfeit / "devices" / GPU)
    await stage.start()
    view = await stage.ended()
    failure = view["failure"] or {}
    visits = await stage.visits()
    links = [await stage.operator(entry["holder"], "links") for entry in view["holders"]]
    written = sum(link["dataset_bytes_to_gpu"] for link in links)
    return Result(
        "a GPU with flawless firmware, measurements and chain of certificates, all from a maker of its own",
        "STOPPED",
        (Said("orchestrator, appraisal of the GPU's evidence", str(failure.get("code")), str(failure.get("detail"))),),
        (
            Fact(
                f"session {view['phase']} before any visit: {len(visits)} visits",
                view["phase"] == "FAILED" and not visits,
            ),
            Fact(f"{written} bytes of records written by all holders together", written == 0),
            Fact("no model and no key went into it", view["model"] is None and view["step"] == 0),
        ),
        "the same chain check, against NVIDIA's root; the emulated maker's name says EMULATED",
    )


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)  # the screen says EMULATED in words
        manufacture_device(folder, GPU)


ATTACK = Attack(
    "fake-gpu", ("V08",), EVERY, "platform that puts a counterfeit GPU behind the MUX",
    "a GPU of another maker, otherwise flawless, answers for the real one",
    "V08: attestation; keys only in a genuine device", run, rounds=1,
)  # fmt: skip
