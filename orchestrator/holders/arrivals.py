"""Where holders' reports and refusals meet the visit that waits for them. Knows no HTTP and no storage.

A report is volatile until the runner has committed it: after a crash the visit is recalled and repeated, so an answer of 202 promises
receipt, not effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shared.errors import Conflict, NotPermitted
from shared.wire.visit import VisitRefusal, VisitReport

Word = VisitReport | VisitRefusal


class Recall(Exception):  # not an error: the runner's word to itself
    """The visit is to be called back: why, and whether the holder is to blame. `own`: it was its own doing, for which it is to blame only
    if that goes on and on."""

    def __init__(self, reason: str, *, blame: bool, skip: bool = False, own: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.blame, self.skip, self.own = reason, blame, skip, own


@dataclass
class _Open:
    holder: str
    key: str
    epoch: int
    word: asyncio.Future[Word]
    offered: bool = False
    heard: Callable[[], None] | None = None  # while somebody waits


class Arrivals:
    """Visits that are planned or away, by id."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def plan(self, visit: str, holder: str, epoch: int, key: str) -> None:
        """The visit is planned: from now on it can be called back, as by a veto while the GPU is asked for its grant.

        Args:
            key: fingerprint of the one by which the manifest's roster names the holder. The list of enrolled keys is the platform's to
                change; this one was approved, and no holder has another while a session goes on.
        """
        self._open[visit] = _Open(holder, key, epoch, asyncio.get_running_loop().create_future())

    def expect(self, visit: str) -> None:
        """It is about to be offered: its holder's word may come."""
        self._open[visit].offered = True

    def called_back(self, visit: str) -> Recall | None:
        """Why the visit is not to be offered any more, if it was called back."""
        word = self._open[visit].word
        error = word.exception() if word.done() and not word.cancelled() else None
        return error if isinstance(error, Recall) else None

    def forget(self, visit: str) -> None:
        """The visit is over; late words are refused from now on."""
        entry = self._open.pop(visit, None)
        if entry is None:
            return
        if not entry.word.done():
            entry.word.cancel()
        elif not entry.word.cancelled():
            entry.word.exception()  # a recall that nobody waited for is no fault

    def away(self, visit: str) -> bool:
        """Whether the holder's word is still awaited."""
        entry = self._open.get(visit)
        return entry is not None and entry.offered and not entry.word.done()

    def awaits(self, visit: str, holder: str, key: str) -> bool:
        """Whether it is this holder's word that is awaited of the visit. `key`: fingerprint of the one that signed it."""
        return self.away(visit) and (self._open[visit].holder, self._open[visit].key) == (holder, key)

    def deliver(self, visit: str, holder: str, key: str, word: Word) -> None:
        """A holder's report or refusal; the same one again has no effect. `key`: fingerprint of the one that signed it.

        Raises:
            Conflict: nobody waits for it (code `visit-recalled`). NotPermitted: not that holder's visit, or another key than the roster's
                (`key-replaced`).
        """
        entry = self._open.get(visit)
        if entry is None or not entry.offered or entry.word.cancelled():
            raise Conflict(f"{visit} is not away", code="visit-recalled", remedy="Wait for the next offer.")
        if entry.holder != holder:
            raise NotPermitted("This is another holder's visit", code="not-your-visit")
        if entry.key != key:
            raise NotPermitted("The roster names this visit's holder by another key than yours", code="key-replaced",
                               remedy="Ask the session's owner.", expected=entry.key, got=key)  # fmt: skip
        if word.visit != visit or word.epoch != entry.epoch:
            raise Conflict("The report speaks of another epoch or visit", code="visit-recalled",
                           expected=str(entry.epoch), got=str(word.epoch))  # fmt: skip
        if not entry.word.done():
            entry.word.set_result(word)
            if entry.heard is not None:
                entry.heard()
        elif entry.word.exception() is not None or entry.word.result() != word:
            raise Conflict("Another report came first", code="visit-recalled")

    def recall(self, visit: str, reason: str, *, blame: bool, own: bool = False) -> None:
        """Call a visit back: a veto, a cancellation, the holder's new channel."""
        entry = self._open.get(visit)
        if entry is not None and not entry.word.done():
            entry.word.set_exception(Recall(reason, blame=blame, own=own))

    async def word(self, visit: str, timeout_s: float, heard: Callable[[], None]) -> Word | None:
        """The holder's word; None: there is none yet.

        Args:
            heard: called at once when it comes while this waits, whatever it is: who waits is woken only some turns of the loop later.
        Raises:
            Recall: the visit was called back.
        """
        entry = self._open[visit]
        entry.heard = heard
        try:
            await asyncio.wait([entry.word], timeout=timeout_s)
        finally:
            entry.heard = None
        return entry.word.result() if entry.word.done() else None
