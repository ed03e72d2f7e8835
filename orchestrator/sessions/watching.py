"""Who is told of each fact once it is durable: to count it, to trace it. Decides nothing, and can stop nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.service.logging import get_logger

_log = get_logger("watching")


@dataclass(frozen=True)
class Noted:
    """One durable fact; `at`: seconds since 1970."""

    session: str
    kind: str
    body: dict[str, Any]
    at: float


Watcher = Callable[[Noted], None]


class Watchers:
    """All of them. One that breaks is said in the log: a session must not fail because it could not be counted."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def tell(self, noted: Noted) -> None:
        """Each one of them, in order."""
        for watcher in self._watchers:
            try:
                watcher(noted)
            except Exception as error:
                _log.error("a watcher broke", session=noted.session, fact=noted.kind, exc_info=error)
