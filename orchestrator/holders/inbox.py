"""What waits for each holder, over its standing long-poll. Knows no HTTP and no storage: it is volatile, and says so.

Sequence numbers start at the clock's microseconds, so they grow over restarts, but where the clock was put back or another machine's is
behind. A holder that asks from before this process's start, from before what is still kept, or from beyond all that was said here, gets
what still matters again from `standing`; receipts it missed it fetches from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from shared.service.changes import Changes, Stopping
from shared.service.clock import Clock
from shared.wire.visit import MOST_ITEMS, Inbox, InboxItem

KEPT = 64
Standing = Callable[[str], Awaitable[list[dict[str, Any]]]]
"""What still matters to a holder: field sets of items, without sequence numbers."""


class _Box:
    def __init__(self, floor: int, stopping: Stopping) -> None:
        self.items: deque[InboxItem] = deque(maxlen=KEPT)
        self.floor = floor
        self.changes = Changes(stopping)

    def heard(self, after: int) -> None:
        """The holder has everything up to `after`: offers and receipts of all its visits need not be kept."""
        while self.items and self.items[0].seq <= after:
            self.floor = self.items.popleft().seq


class Inboxes:
    """One bounded box per holder."""

    def __init__(self, clock: Clock, stopping: Stopping) -> None:
        self._clock, self._stopping = clock, stopping
        self._seq = int(clock() * 1_000_000)
        self._start = self._seq
        self._boxes: dict[str, _Box] = {}
        self.last_seen: dict[str, float] = {}

    def _box(self, holder: str) -> _Box:
        return self._boxes.setdefault(holder, _Box(self._start, self._stopping))

    def _item(self, fields: dict[str, Any]) -> InboxItem:
        self._seq += 1
        return InboxItem(seq=self._seq, **fields)

    def post(self, holder: str, **fields: Any) -> None:
        """Put one item into a holder's box and wake it."""
        box = self._box(holder)
        if len(box.items) == KEPT:
            box.floor = box.items[0].seq
        box.items.append(self._item(fields))
        box.changes.notify()

    def withdraw(self, holder: str, session: str, kinds: tuple[str, ...]) -> None:
        """Take back items that no longer hold (a recalled offer)."""
        box = self._box(holder)
        kept = [item for item in box.items if item.session != session or item.kind not in kinds]
        box.items = deque(kept, maxlen=KEPT)

    def replaced(self, holder: str) -> None:
        """Its key was: what was put there for who had the old one is not for who has the new one, and whoever waits has waited in vain."""
        self._seq += 1
        box = self._boxes.pop(holder, None)
        self._boxes[holder] = _Box(self._seq, self._stopping)
        if box is not None:
            box.changes.notify()

    async def read(self, holder: str, after: int, wait_s: float, standing: Standing) -> Inbox:
        """Everything after `after`; waits up to `wait_s` seconds for the first item."""
        self.last_seen[holder] = self._clock()
        box = self._box(holder)
        if not box.floor <= after <= self._seq:
            after = self._seq
            stands = await standing(holder)
            # What was posted while we looked may be part of what stands, or not. An offer never is, and it is taken back when it does not
            # hold any more: it may have come between the channel that a starting holder opened and its first question.
            posted = [item for item in box.items if item.seq > after or item.kind == "offer"]
            again = [self._item(fields) for fields in stands if not any(_says(item, fields) for item in posted)]
            # No more than one answer holds: ends stand last, and are said again at this process's next start.
            again = again[: MOST_ITEMS - len(posted)]
            if posted or again:
                items = [*posted, *again]
                return Inbox(items=items, next=items[-1].seq)
        box.heard(after)
        seen = box.changes.version
        items = _after(box, after)
        if not items and wait_s > 0:
            await box.changes.wait(seen, wait_s)
            items = _after(box, after)
        self.last_seen[holder] = self._clock()
        return Inbox(items=items, next=items[-1].seq if items else after)


def _says(item: InboxItem, fields: dict[str, Any]) -> bool:
    return all(getattr(item, name) == value for name, value in fields.items())


def _after(box: _Box, after: int) -> list[InboxItem]:
    return [item for item in box.items if item.seq > after]
