"""Whether a long session grows, for `gput bench life`: looks at it by windows of visits while it runs. Knows the API's views only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from gput.client import AsyncClient
from gput.local.crowd import Crowd
from gput.local.growth import Sample, sample
from gput.local.job import Say
from gput.steps import percentiles
from shared.errors import JobFailed, Unavailable
from shared.protocol.work import control_s

PAGE = 20
PATIENCE_S = 300.0
AGAINST = ("refuse", "veto")


async def live(crowd: Crowd, windows: int, samples: list[Sample], say: Say) -> None:
    """Run the session to its end; each window's sample is in `samples` as soon as it is known.

    Raises:
        JobFailed: the session ended otherwise.
    """
    try:
        client = await crowd.start()
        visits = _Visits(client, f"sessions/{crowd.session}/visits")
        total = crowd.rounds * len(crowd.names)
        for number in range(1, windows + 1):
            samples.append(await _window(visits, crowd, total * number // windows, say))
    finally:
        await crowd.stop()


def named(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The trends as figures by name; a trend of too few windows is none."""
    return {
        f"{row['figure'].replace(' ', '.')}.{name}": float(row[name])
        for row in rows
        for name in ("last", "per_1000_visits")
        if row[name] is not None
    }


class _Visits:
    """Reads each visit once, in order."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self.client, self._path = client, path
        self._after: str | None = None

    async def costs(self) -> list[float]:
        """Control cost in seconds of each closed visit since the last call; what does not fill a page yet waits for more."""
        found: list[float] = []
        while True:
            page = await _patiently(partial(self.client.get, self._path, after=self._after, limit=PAGE))
            if page["next"] is None:
                return found
            self._after = page["next"]
            found += [control_s(visit) for visit in page["items"] if visit["receipt"] is not None]


async def _window(visits: _Visits, crowd: Crowd, wanted: int, say: Say) -> Sample:
    look = partial(visits.client.session, crowd.session)
    view = await _patiently(look)
    while view["visits_closed"] < wanted:
        require_hope(view)
        await asyncio.sleep(0.5)
        view = await _patiently(look)
    found, costs = sample(wanted, crowd.processes(), crowd.folders()), _costs(await visits.costs())
    # Costs come a page of visits at a time: a window in which none filled has none.
    say(f"{view['visits_closed']} visits" + (f", control {costs['control_median_ms']} ms" if costs else ""))
    return Sample(wanted, {**costs, **found.figures})


def require_hope(view: dict[str, Any]) -> None:
    """Raises: JobFailed: the session, by its page, has ended or never will."""
    if view["phase"] in ("FAILED", "CANCELLED"):
        raise JobFailed(f"the session ended {view['phase']}", remedy=str(view.get("failure")))
    for party in view["holders"]:
        if party["decision"] in AGAINST:
            remedy = "Its own page of requests says which limit of its policy stands against it."
            raise JobFailed(f"{party['holder']} said {party['decision']}: the session waits for ever", remedy=remedy)


async def _patiently(ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Its answer, though the machine be busy: at a session's end all holders, on the same cores, ask for their receipts at once."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await ask()
        except Unavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(1.0)


def _costs(seconds: list[float]) -> dict[str, float]:
    return {f"control_{name}": value for name, value in percentiles(seconds).items()} if seconds else {}
