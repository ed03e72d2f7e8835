"""Writes the code's protocol tables as Promela: constants and one `…_move` per machine. Knows the tables, no model.

python -m docs.spec.tables            writes docs/spec/tables.pml
python -m docs.spec.tables --check    exits 1 where that file is not what the code says
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gpu_agent.hardware.regions import REGION
from shared.protocol.machine import Machine
from shared.protocol.training import TRAINING
from shared.protocol.visit import VISIT

FILE = Path(__file__).with_name("tables.pml")
MACHINES = (("V", "visit", VISIT), ("T", "training", TRAINING), ("R", "region", REGION))
PLATE = "/* Made from the code's protocol tables by docs/spec/tables.py. Not to be edited: an illegal move is an assertion violation. */"


def promela(letter: str, name: str, machine: Machine[Any, Any]) -> str:
    """Constants (from 1; 0 is NONE) and the inline that looks a move up, as the machine's `after` does."""
    phases = sorted(phase.name for phase in machine.phases())
    facts = sorted({fact.name for _, fact in machine.moves})
    lines = [f"#define {letter}_{phase} {number}" for number, phase in enumerate(phases, 1)]
    lines += [f"#define {letter}F_{fact} {number}" for number, fact in enumerate(facts, 1)]
    lines += [f"inline {name}_move(phase, fact) {{", "    if"]
    lines += [
        f"    :: phase == {letter}_{phase.name} && fact == {letter}F_{fact.name} -> phase = {letter}_{move.to.name}"
        for (phase, fact), move in machine.moves.items()
    ]
    return "\n".join([*lines, "    :: else -> assert(false)", "    fi", "}", ""])


def tables() -> str:
    """The whole file."""
    return "\n".join([PLATE, "", *(promela(*machine) for machine in MACHINES)])


def main() -> int:
    """Write, or compare."""
    if "--check" in sys.argv[1:]:
        if FILE.read_text() == tables():
            return 0
        print(f"{FILE} is not what the code's tables say. Run: python -m docs.spec.tables", file=sys.stderr)
        return 1
    FILE.write_text(tables())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
