"""HOSTILE CODE (attack tour): find an attack by name, play it on a stage of its own, print its screen. Knows no attack's inside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gput.local.attacks.attack import Attack
from gput.local.attacks.screen import listing, screen
from gput.local.attacks.stage import Stage
from gput.local.attacks.table import ATTACKS
from gput.local.demos.texts import Texts
from gput.output import say
from shared.errors import BadRequest, NotFound

SMALL = {"layers": 1, "width": 32, "batch": 4}
"""As small as training goes: an attack shows itself in any model."""


def find(name: str) -> Attack:
    """Raises: NotFound."""
    if name not in ATTACKS:
        raise NotFound(
            f"there is no attack {name!r}", code="unknown-attack", remedy="`gput demo --attack list` names them."
        )
    return ATTACKS[name]


def plan_of(attack: Attack, given: Mapping[str, Any]) -> Texts:
    """The attack's plan, with what the person asked for. Raises: BadRequest: the attack makes no sense in this travel mode."""
    mode = given.get("mode", attack.modes[0])
    if mode not in attack.modes:
        known = " or ".join(known.value for known in attack.modes)
        raise BadRequest(
            f"attack {attack.name} is played in mode {known}, not {mode.value}",
            code="attack-mode",
            remedy=f"Say --mode {known}.",
        )
    return Texts(**{**SMALL, "rounds": attack.rounds, "steps": attack.steps, **given, "mode": mode})


def stage_for(attack: Attack, folder: Path, plan: Texts) -> Stage:
    """A stage in an empty folder; started by the attack itself."""
    return Stage(folder, plan, say, again=f"gput demo --attack {attack.name}")


async def play(attack: Attack, stage: Stage) -> int:
    """Play it and print its screen; exit code 0 when everything came as expected, else 1."""
    began = time.monotonic()
    say(f"attack {attack.name} against real services on this machine  ·  EMULATED, not confidential")
    result = await attack.run(stage)
    print(screen(attack, stage.plan.mode, result, time.monotonic() - began))
    return 0 if result.as_expected else 1


def table() -> str:
    """All attacks, for people."""
    return listing()
