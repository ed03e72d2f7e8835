"""Opens the channels that this holder needs, and remembers those that must be tried again. Knows no inbox and no visit's content."""

from __future__ import annotations

from typing import Final

from data_holder.approvals import Approvals
from data_holder.channel import Channels, Disbelieved
from data_holder.ending import Ending
from data_holder.ledger import Ledger
from data_holder.pauses import Due
from data_holder.requests import verify_decision
from data_holder.visits import Visits
from shared.errors import Conflict, GputError, VerificationFailed, may_heal
from shared.service.metrics import Failures
from shared.service.trouble import TroubleOf

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 16.0
NOT_TRUSTED: Final = "nobody: the orchestrator is not trusted"
NOT_BELIEVED: Final = "nobody: the orchestrator does not believe this holder"


class Openings:
    """`wanted`: sessions whose channel is to be tried again, each time after twice as long, for each try costs the orchestrator an
    attestation of the GPU: a holder whose CVM was taken from it is refused until somebody restarts it. Whoever asks for a channel has it
    tried at once. `distrust`: orchestrators that were not believed, by code.
    """

    def __init__(
        self, *, ledger: Ledger, approvals: Approvals, channels: Channels, visits: Visits, ending: Ending, trouble: TroubleOf,
    ) -> None:  # fmt: skip
        self._ledger, self._approvals, self._channels, self._visits = ledger, approvals, channels, visits
        self._ending, self._trouble = ending, trouble
        self.wanted: dict[str, Due] = {}
        self.distrust = Failures()

    def due(self) -> list[str]:
        """Those that are to be tried again now; not when they have ended since, or been removed."""
        self.wanted = {session: due for session, due in self.wanted.items() if self.goes_on(session)}
        return [session for session, due in self.wanted.items() if due.is_now]

    async def open(self, session: str) -> None:
        """A new channel kills the old one: a visit under the old one is over. Whoever asks for one after the session's end gets it: the
        end was said over an old copy of the database, and the newest one was put back.

        Returns also when nobody answers, what is answered may heal (this holder is not enrolled yet), or what was asked for is gone by the
        time that it is proven: then the session is `wanted`.

        Raises:
            NotFound, NotPermitted: no approval of the session stands. VerificationFailed: the orchestrator is not trusted; not tried again.
            Disbelieved: nor is this holder by it.
        """
        closed = self._trouble(session, "channel not open yet")
        try:
            await self._open(session)
        except GputError as error:
            # A conflict too: the GPU may have begun another life meanwhile, and whoever asked would ask again only after a whole lease.
            if may_heal(error) or isinstance(error, Conflict):
                self._once_more(session)
                closed.met(error)
                return
            self.wanted.pop(session, None)
            raise
        closed.over()
        self.wanted.pop(session, None)

    async def open_again(self, session: str) -> None:
        """At start, when the keys of before are gone; not of what this holder has vetoed since. Raises: as `open`."""
        said = verify_decision(self._ledger.state(session), self._approvals.keys)
        if said is not None and said.decision == "approve":
            await self.open(session)

    def _once_more(self, session: str) -> None:
        self.wanted[session] = Due.after(self.wanted.get(session), FIRST_PAUSE_S, LAST_PAUSE_S)

    def goes_on(self, session: str) -> bool:
        """Whether the session was ever offered here, has not ended, and is not refused."""
        state = self._ledger.find(session)
        return state is not None and state.ended is None

    async def _open(self, session: str) -> None:
        approved = self._approvals.approved(session)
        # Looked at before: once the channel is open an offer may come at once, and nothing here must come between.
        doubted = (await self._approvals.awaiting.shown(session) or "").startswith((NOT_TRUSTED, NOT_BELIEVED))
        await self._visits.cancel(session)
        try:
            await self._channels.open(session, approved)
        except VerificationFailed as error:
            self.distrust.met(error.code)
            await self._approvals.awaiting.show(session, f"{NOT_TRUSTED} ({error.code}: {error.detail})")
            raise
        except Disbelieved as error:
            await self._approvals.awaiting.show(session, f"{NOT_BELIEVED} ({error.code}: {error.detail})")
            raise
        await self._ending.taken_back(session)
        if doubted:
            await self._approvals.awaiting.over(session, (NOT_TRUSTED, NOT_BELIEVED))
