"""All demos by name, and the plan that a run's folder keeps. Knows no process."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gput.local.demos.digits import Digits
from gput.local.demos.hospitals import Hospitals
from gput.local.demos.llmc import LlmC
from gput.local.demos.plan import Plan
from gput.local.demos.texts import Texts
from shared.errors import BadRequest

DEMOS: Final[dict[str, type[Plan]]] = {kind.name: kind for kind in (Texts, Hospitals, Digits, LlmC)}
STATE: Final = "demo.json"
"""Which session a run's folder belongs to, and by which plan."""


def plan_of(name: str, given: dict[str, Any]) -> Plan:
    """A demo's plan with what the person asked for.

    Raises:
        BadRequest: no such demo, or an option that it does not have, or not together with another.
    """
    if name not in DEMOS:
        raise BadRequest(f"there is no demo {name!r}", code="unknown-demo", remedy=f"There are: {', '.join(DEMOS)}.")
    kind = DEMOS[name]
    strange = sorted(set(given) - set(kind.__dataclass_fields__))
    if strange:
        raise BadRequest(f"the demo {name!r} has no --{strange[0]}", code="demo-option")
    return kind.of(given)


def kept(folder: Path) -> Plan | None:
    """The plan of the run in this folder; None before anything was submitted.

    Raises:
        BadRequest: code `no-demo`: what lies there as a run's state is none.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_text())
        return DEMOS[state.get("demo", Texts.name)](**state["plan"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(
            f"{path} does not say which demo it is of", code="no-demo", remedy="Begin in another folder: `gput demo`."
        ) from error


def keep(session: str, plan: Plan) -> bytes:
    """What `kept` reads, as the file's content."""
    return json.dumps({"session": session, "demo": plan.name, "plan": asdict(plan)}, indent=2).encode() + b"\n"
