"""Something that does not work at the moment: said once when it begins or changes, and once when it is over. Knows no cause."""

from __future__ import annotations

from typing import Any

from shared.errors import GputError


class Trouble:
    """What is tried again and again writes one line for an outage and not one for each try. `error`: the last one, while it lasts."""

    def __init__(self, log: Any, event: str, **names: str) -> None:
        """`event` says what does not work, with `names` beside it."""
        self.error: GputError | None = None
        self._log, self._event, self._names = log, event, names

    def met(self, error: GputError) -> None:
        """It failed (again)."""
        if self.error is None or self.error.code != error.code:
            self._log.warning(self._event, code=error.code, detail=error.detail, remedy=error.remedy, **self._names)
        self.error = error

    def over(self) -> None:
        """It worked."""
        if self.error is not None:
            self._log.info(f"over: {self._event}", **self._names)
        self.error = None
