"""The standing long-poll at the orchestrator: from the beginning at every start, on from the last answer, and on through whatever an answer
does to who reads it. Knows no item's meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pydantic import ValidationError

from data_holder.links import OrchestratorLink
from shared.errors import BadRequest, GputError, Unavailable
from shared.service.changes import Stopping
from shared.service.logging import get_logger
from shared.service.trouble import Trouble
from shared.wire.visit import MOST_ITEMS, Inbox, InboxItem

FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 5.0
BEYOND_WAIT_S = 10
_log = get_logger("data_holder.listening")


class Listening:
    """`connected`: whether the last inbox call was answered."""

    def __init__(self, link: OrchestratorLink, wait_s: int, stopping: Stopping) -> None:
        self._link, self._wait_s, self._stopping = link, wait_s, stopping
        self.connected, self._pause_s = False, FIRST_PAUSE_S
        self._away = Trouble(_log, "inbox not reachable")

    async def check(self) -> None:
        """For readiness: the orchestrator answers. Not being enrolled there yet is no fault of this service. Raises: Unavailable."""
        if isinstance(self._away.error, Unavailable):
            raise self._away.error

    async def run(self, take: Callable[[InboxItem], None]) -> None:
        """Until the service stops; `take` is given each item, and waits for nothing."""
        after, self._pause_s, now = 0, FIRST_PAUSE_S, asyncio.get_running_loop().time
        while not self._stopping.is_set:
            asked_at = now()
            try:
                inbox = await self._asked(after)
            except Exception as error:
                # A place that the orchestrator does not have: from the beginning on, what still matters is said again.
                after = 0 if isinstance(error, BadRequest) else after
                # Between two leaders nobody answers for seconds: whoever says so says when to ask again.
                longest = self._refused(error) or LAST_PAUSE_S
            else:
                self.connected, after = True, inbox.next
                self._away.over()
                for item in inbox.items:
                    take(item)
                if inbox.items or now() - asked_at >= self._wait_s / 2:
                    self._pause_s = FIRST_PAUSE_S
                    continue
                longest = LAST_PAUSE_S  # asked to wait, it did not: whoever never does would be asked without end
            if await self._stopping.wait(self._pause_s):
                return
            self._pause_s = min(self._pause_s * 2, longest, LAST_PAUSE_S)

    def _refused(self, error: Exception) -> float | None:
        """Whatever an answer does to who reads it: a holder that has stopped listening hears of no session any more. When to ask again, if
        it says so."""
        if not isinstance(error, (GputError, ValidationError)) and self._away.error is None:
            _log.error("an answer of the inbox broke its reader", exc_info=error)
        self.connected = False
        self._away.met(error if isinstance(error, GputError) else _malformed())
        return error.retry_after_s if isinstance(error, GputError) else None

    async def _asked(self, after: int) -> Inbox:
        params: dict[str, str | int] = {"after": after, "wait": self._wait_s, "owners": "true"}
        said = await self._link.news("/v1/inbox", params=params, timeout_s=self._wait_s + BEYOND_WAIT_S)
        return Inbox.model_validate(said)


def _malformed() -> Unavailable:
    return Unavailable(
        "the orchestrator's inbox cannot be read", code="malformed-inbox",
        expected=f"items as this release knows them, {MOST_ITEMS} in one answer at most",
        remedy="Check that orchestrator_url leads to an orchestrator of this version.",
    )  # fmt: skip
