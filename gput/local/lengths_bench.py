"""What a visit costs here, for `gput bench lengths` and `gput plan`: visits of three lengths in real processes, told apart.

Knows the API's views only. By default the records are large and the program tiny, so that a visit's own cost and its data's stand out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gput.files import content
from gput.local.crowd import Crowd, Load
from gput.local.job import Say
from gput.planning import Costs, Visit, calibrate
from shared.claims.archive import open_archive
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import JobFailed

HOLDERS = 3
LENGTHS = (1, 4, 16)
DIGITS = 48
LARGE = Load(steps=LENGTHS, features=4096, training=TrainingOptions(optimizer=AdamW(lr=1e-3), batch_size=16, seed=1))


def load_of(program: Path | None, training: TrainingOptions | None = None) -> Load:
    """Visits that train this program, by these options or its own; without one, the tiny program over large records."""
    return LARGE if program is None else dataclasses.replace(LARGE, program=program, training=training)


def digest_of(program: Path) -> str:
    """The first half of an archive's digest, 48 hexadecimal digits: what a result names the program by.

    Raises:
        BadRequest: it cannot be read, or is none.
    """
    return open_archive(content(program, "no-program")).digest.hex()[:DIGITS]


async def lengths(folder: Path, visits: int, say: Say, load: Load = LARGE) -> Costs:
    """What the visits of a session cost: at least `visits` of them.

    Raises:
        JobFailed: the session did not complete. BadRequest: there is no such program, or its visits say too little.
    """
    crowd = Crowd(folder, visits, HOLDERS, say, load)
    try:
        client = await crowd.start()
        view = await client.wait(crowd.session)
        if view["phase"] != "COMPLETED":
            raise JobFailed(f"the session ended {view['phase']}: {view.get('failure')}", code="session-failed")
        found = await client.items(f"sessions/{crowd.session}/visits")
        return calibrate([Visit.of(visit) for visit in found if visit["outcome"] == "closed"])
    finally:
        await crowd.stop()
