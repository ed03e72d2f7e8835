"""A request that nobody has decided yet: its program fetched, what is checked before anybody decides, the policy asked. Signs nothing.

What does not work is tried again, each time after twice as long: a try may read the whole dataset. What a policy would answer with a
refusal is said for good, so it refuses what its rules deny, and data that were read and do not fit; all else waits for its operator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from data_holder.approvals import Approvals
from data_holder.deciding import Word
from data_holder.fitting import UNFIT
from data_holder.ledger import Ledger
from data_holder.once_at_a_time import MANIFEST_AGAIN
from data_holder.outward import sentence
from data_holder.pauses import Due
from data_holder.policy_rules import OWNERS, UNKNOWN_OWNER, allowed
from data_holder.requests import VerifiedManifest
from data_holder.rule_finding import RuleFinding
from shared.errors import GputError, InvalidData, Unavailable, VerificationFailed
from shared.service.logging import get_logger
from shared.service.printable import printable
from shared.service.trouble import TroubleOf
from shared.wire.visit import Decision

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 600.0
AWAY_PAUSE_S: Final = 16.0
"""The longest pause while something does not answer: that needs nobody's hand, and costs no reading."""
_UNKNOWN = "Correct `dataset` in the policy or the settings, or add a dataset of that name"
_log = get_logger("data_holder.considering")


class Considering:
    """Each session is considered by its own worker, once at a time: `take` it for that, then `consider` it."""

    def __init__(self, approvals: Approvals, ledger: Ledger, trouble: TroubleOf) -> None:
        self._approvals, self._ledger, self._trouble = approvals, ledger, trouble
        self._once = approvals.once
        self._taken: set[str] = set()
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        self._failed: dict[str, Due] = {}

    async def due(self) -> list[str]:
        """Sessions that are to be considered now. Raises: Unavailable."""
        waiting = [session for session in await self._approvals.unconsidered() if self._is_open(session)]
        self._failed = {session: due for session, due in self._failed.items() if self._is_open(session)}
        again = [session for session, due in self._failed.items() if due.is_now]
        return [*again, *(session for session in self._once.not_behind(waiting) if session not in self._failed)]

    def take(self, session: str) -> bool:
        """Whether nobody has taken it already; then it is the caller's to have it considered."""
        if session in self._taken:
            return False
        self._taken.add(session)
        return True

    def leave(self, session: str) -> None:
        """It is said to be over: what is being considered is given up, and what was taken is not begun, for its end is heard behind that,
        and another session of its manifest waits for it. A thread that reads its data reads to its end, for nobody."""
        if (work := self._at_work.get(session)) is not None:
            work.cancel()
        elif session in self._taken:
            self._left.add(session)

    async def consider(self, session: str) -> None:
        """Consider a session that was taken. What does not work is shown to the operator, and tried again later."""
        trouble = self._trouble(session, "request not considered yet")
        try:
            await self._unless_left(session)
        except GputError as error:
            if self._is_open(session):
                self._once_more(session, AWAY_PAUSE_S if isinstance(error, Unavailable) else LAST_PAUSE_S)
                trouble.met(error)
                return
            # Somebody decided in the meantime, or it has ended.
        except Exception:
            self._once_more(session, LAST_PAUSE_S)
            raise
        finally:
            self._taken.discard(session)
            self._left.discard(session)
        self._failed.pop(session, None)
        trouble.over()

    async def warn_of_unknown(self) -> None:
        """A dataset that is named for approvals may be added later; until then nothing is approved with it. Raises: Unavailable."""
        for name in await self._approvals.unknown_datasets():
            _log.warning("approvals name a dataset that is not known", dataset=name, remedy=_UNKNOWN)

    def _is_open(self, session: str) -> bool:
        state = self._ledger.find(session)
        return state is not None and state.decision is None and state.ended is None

    def _once_more(self, session: str, last_s: float) -> None:
        self._failed[session] = Due.after(self._failed.get(session), FIRST_PAUSE_S, last_s)

    async def _unless_left(self, session: str) -> None:
        if session in self._left:
            return
        work = self._at_work[session] = asyncio.create_task(self._consider(session))
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:  # the service stops
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            del self._at_work[session]
        if work.cancelled():
            _log.info("a session that is said to be over is not considered any more", session=session)
            return
        work.result()

    async def _consider(self, session: str) -> None:
        if not await self._approvals.is_waiting(session):
            return
        request, program = await self._approvals.examined(session)
        findings = self._approvals.findings(session, request, program)
        if not self._approvals.automatic:
            await self._approvals.put_before(session, findings, "this holder's operator")
            return
        await self._approvals.put_before(session, findings, "this holder's policy")
        if not allowed(findings):
            await self._refused(session, request, findings)
        elif (other := self._once.other(session)) is not None:
            await self._again(session, findings, other)
        else:
            with self._once.approving(session):
                await self._approved(session, request, findings)

    async def _refused(self, session: str, request: VerifiedManifest, findings: list[RuleFinding]) -> None:
        broken = [found for found in findings if not found.ok]
        if [(found.rule, found.got) for found in broken] == [(OWNERS, UNKNOWN_OWNER)]:
            raise await self._unsigned(session)
        reasons = [f"{found.rule}: expected {found.expected}, got {found.got}" for found in broken]
        await self._decide(session, request, "refuse", "; ".join(reasons))

    async def _again(self, session: str, findings: list[RuleFinding], other: str) -> None:
        """The policy allows it, beside one that goes on: a person may want both; who shows an owner's manifest twice gets one."""
        whom = f"this holder's operator ({MANIFEST_AGAIN}: session {other} of the same manifest goes on)"
        await self._approvals.put_before(session, findings, whom)
        self._once.put_behind(session, other)
        _log.warning("another session of a manifest that was approved is asked for", session=session, beside=other)

    async def _approved(self, session: str, request: VerifiedManifest, findings: list[RuleFinding]) -> None:
        try:
            await self._decide(session, request, "approve", "")
        except InvalidData as error:
            if error.code not in UNFIT:
                raise
            _log.warning("the data do not fit", session=session, code=error.code, detail=error.detail)
            # Which dataset, file and row is for the operator; what is signed goes to the orchestrator and the owner.
            found = RuleFinding("dataset", ok=False, expected="data that fit", got=printable(error.detail))
            await self._approvals.put_before(session, [*findings, found], "this holder's policy")
            await self._decide(session, request, "refuse", f"{error.code}: {sentence(error.code)}")

    async def _unsigned(self, session: str) -> GputError:
        """Whose manifest it is may be known later, so that nothing is refused for good."""
        error = VerificationFailed(
            "the policy names owners, and the orchestrator does not say who signed the manifest", code="owner-unknown",
            remedy="Have the orchestrator updated, or decide by hand",
        )  # fmt: skip
        await self._approvals.awaiting.show(session, f"this holder's operator ({error.code}: {error.detail})")
        return error

    async def _decide(self, session: str, request: VerifiedManifest, decision: Decision, reason: str) -> None:
        word = Word(request.digest, decision, reason=printable(reason)[:500])
        await self._approvals.decide(session, word, by="policy")
