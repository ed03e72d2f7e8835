"""What of the inbox did not work and is to be done again: one of each kind and session, and of two the one that was said last. Does nothing
itself."""

from __future__ import annotations

from typing import Final, Literal

from data_holder.pauses import Due
from shared.wire.visit import InboxItem

Item = InboxItem | Literal["veto", "consider"]
"""What a session's worker does: what came through the inbox, or what this holder itself wants done behind it."""
PAUSES: Final = {"share_wanted": (1.0, 16.0)}
"""First and last pause, in seconds, of what is not tried each time that is looked: each try for a share costs the orchestrator a quote, and
it asks again by itself for as long as it has none."""
_Key = tuple[str, str, int | None]


def kind_of(item: Item) -> str:
    """What an item is called in the log."""
    return item if isinstance(item, str) else item.kind


class Repeats:
    """One holder's. An item that was taken in is handled, and then `failed` or `done`."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, Item] = {}
        self._pauses: dict[_Key, Due] = {}

    def takes(self, session: str, item: Item) -> bool:
        """Whether to handle it now. It takes the place of what waits to be done again, and waits in it until that one's time."""
        key = _key(session, item)
        if self._waiting.pop(key, None) is not None and not self._pauses[key].is_now:
            self._waiting[key] = item
            return False
        return True

    def failed(self, session: str, item: Item) -> None:
        """It is to be done again."""
        key = _key(session, item)
        self._waiting[key] = item
        self._pauses[key] = Due.after(self._pauses.get(key), *PAUSES.get(kind_of(item), (0.0, 0.0)))

    def done(self, session: str, item: Item) -> None:
        """It worked, or never will."""
        for held in (self._waiting, self._pauses):
            held.pop(_key(session, item), None)

    def due(self) -> list[tuple[str, Item]]:
        """Those whose time has come: the caller's to have handled."""
        return [(key[0], self._waiting.pop(key)) for key in list(self._waiting) if self._pauses[key].is_now]

    def of(self, session: str) -> bool:
        """Whether anything of the session waits."""
        return any(whose == session for whose, _, _ in self._waiting)


def _key(session: str, item: Item) -> _Key:
    """Receipts are many of one kind, each the leaf of its own."""
    return session, kind_of(item), None if isinstance(item, str) else item.receipt_index
