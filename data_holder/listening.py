"""The standing long-poll at the orchestrator: from the beginning at every start, on from the last answer, and on through whatever an answer
does to who reads it. Knows no item's meaning."""

from __future__ import annotations

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
        self.connected = False
        self._away = Trouble(_log, "inbox not reachable")

    async def check(self) -> None:
        """For readiness: the orchestrator answers. Not being enrolled there yet is no fault of this service. Raises: Unavailable."""
        if isinstance(self._away.error, Unavailable):
            raise self._away.error

    async def run(self, take: Callable[[InboxItem], None]) -> None:
        """Until the service stops; `take` is given each item, and waits for nothing."""
        after, pause = 0, FIRST_PAUSE_S
        while not self._stopping.is_set:
            try:
                inbox = await self._asked(after)
            except Exception as error:
                # Whatever an answer does to who reads it: a holder that has stopped listening hears of no session any more.
                if not isinstance(error, (GputError, ValidationError)) and self._away.error is None:
                    _log.error("an answer of the inbox broke its reader", exc_info=error)
                self.connected = False
                # A place that the orchestrator does not have: from the beginning on, what still matters is said again.
                after = 0 if isinstance(error, BadRequest) else after
                self._away.met(error if isinstance(error, GputError) else _malformed())
                # Between two leaders nobody answers for seconds: whoever says so says when to ask again.
                soon = (error.retry_after_s if isinstance(error, GputError) else None) or LAST_PAUSE_S
                if await self._stopping.wait(pause):
                    return
                pause = min(pause * 2, soon, LAST_PAUSE_S)
                continue
            self.connected, pause, after = True, FIRST_PAUSE_S, inbox.next
            self._away.over()
            for item in inbox.items:
                take(item)

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
