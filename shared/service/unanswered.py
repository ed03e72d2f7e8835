"""What is said of a peer that did not answer, or with nothing that is an answer of its own. Knows no retry."""

from __future__ import annotations

import httpx2

from shared.errors import Unavailable
from shared.service.answers import BadAnswer, NotItself


def unanswered(error: httpx2.TransportError, name: str, url: str, asked: str) -> Unavailable:
    """What a call's end means. `asked`: its method and path."""
    if isinstance(error, NotItself):
        return error.meant
    if isinstance(error, BadAnswer):
        return unintelligible(name, url, f"{asked} with something that is not read: {error}")
    unsent = isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout))
    timed_out = isinstance(error, httpx2.TimeoutException) and not unsent
    what = "did not answer in time" if timed_out else "cannot be reached"
    if isinstance(error, httpx2.PoolTimeout):
        what = "was not asked, since too many requests of this service wait for its answers already"
    return Unavailable(
        f"{name} at {url} {what} ({asked}: {type(error).__name__})",
        code="peer-timeout" if timed_out else "peer-unreachable",
        remedy=f"Check that {name} runs and that its address is right.",
    )


def unintelligible(name: str, url: str, answered: str) -> Unavailable:
    """The error of an answer that this service does not give: another program does, and nobody knows what became of the request."""
    return Unavailable(
        f"{name} at {url} answered {answered}",
        code="peer-unintelligible",
        remedy="Check that the address leads to this service and not to another program.",
    )
