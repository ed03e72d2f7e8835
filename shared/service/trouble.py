"""Something that does not work at the moment: said once when it begins or changes, and once when it is over. Knows no cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.errors import GputError, Unavailable


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

    def fault(self, error: Exception) -> None:
        """It failed by a fault of this program, and is tried again like anything else: the frames are said once for an outage. Called
        where `error` is handled."""
        if self.error is None:
            self._log.exception("a fault in this program", **self._names)
        self.met(Unavailable(f"a fault in this program ({type(error).__name__})", code="internal"))

    def over(self) -> None:
        """It worked."""
        if self.error is not None:
            self._log.info(f"over: {self._event}", **self._names)
        self.error = None


TroubleOf = Callable[[str, str], Trouble]
"""(session, event) -> where an outage of it is said once."""
