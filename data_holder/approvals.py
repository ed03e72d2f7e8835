"""Requests to this holder and its answers: shown, decided by a person or the policy, signed, stored, then delivered until acknowledged.

A decision is committed before it is sent, and sent again until the orchestrator has it. Knows the orchestrator's link, no GPU.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection

from data_holder.awaiting import Awaiting
from data_holder.catalogue import Catalogue
from data_holder.commitments import Commitments
from data_holder.datasets import CONVERSION
from data_holder.deciding import Word, corrects, read_as_approved
from data_holder.delivery import Delivery
from data_holder.fitting import Chosen, fitting
from data_holder.identity import OwnKeys
from data_holder.judging import Judging
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.once_at_a_time import OnceAtATime
from data_holder.policy import Policy
from data_holder.policy_rules import evaluate
from data_holder.programs import Programs
from data_holder.protocol.state import DECISION, ENDED, REQUEST, SessionState, request_body
from data_holder.requests import (
    Approved,
    VerifiedManifest,
    sign_decision,
    verify_approved,
    verify_decision,
    verify_manifest,
    verify_signer,
)
from data_holder.rule_finding import RuleFinding
from data_holder.succession import Predecessors
from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.attestation.owners import verify_owner
from shared.claims.program import ProgramManifest
from shared.errors import (
    Conflict,
    GputError,
    InvalidManifest,
    InvalidProgram,
    Unavailable,
    VerificationFailed,
    may_heal,
)
from shared.protocol.membership import RULE
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.printable import printable
from shared.service.statements import put_row, update_row
from shared.service.store import Store
from shared.wire.visit import Approval

_NEVER = (VerificationFailed, InvalidManifest, InvalidProgram)
"""What no waiting makes good: somebody lied, or the manifest may not be approved. (Of a dataset it is this holder's to mend.)"""
STATES = {"approve": "approved", "refuse": "refused", "veto": "vetoed"}
_log = get_logger("data_holder.approvals")


class Approvals:
    """Everything between `approval_wanted` and a delivered, signed decision.

    `on_veto(session)` is called after a veto is committed, so that a running visit of that session stops at once.
    """

    def __init__(
        self, *, name: str, keys: OwnKeys, ledger: Ledger, store: Store, catalogue: Catalogue, commitments: Commitments,
        link: OrchestratorLink, clock: Clock, policy: Policy | None, automatic: bool, default_dataset: str | None,
    ) -> None:  # fmt: skip
        self.name, self.keys, self.policy, self.automatic = name, keys, policy, automatic
        self._ledger, self._store, self._catalogue, self._link, self._clock = ledger, store, catalogue, link, clock
        self._commitments, self._default_dataset = commitments, default_dataset
        self.delivery, self.awaiting = Delivery(ledger, store, link), Awaiting(store)
        self._deciding, self.once = asyncio.Lock(), OnceAtATime(lambda: self.keys, ledger)
        self.programs = Programs(store, link.unhurried)
        self._predecessors = Predecessors(name, lambda: self.keys, ledger, store, link.unhurried)
        defaults = (None if policy is None else policy.dataset, default_dataset)
        self.judging = Judging(name, lambda: self.keys, ledger, catalogue, self.programs, self._predecessors, defaults)
        commitments.told = self._busy
        self.on_veto: Callable[[str], None] = lambda session: None

    async def receive(self, session: str, manifest_bytes: bytes, owner: tuple[bytes, bytes] | None = None) -> None:
        """Take in a request; a known one is delivered again if decided. Another manifest for a known session is refused.

        Args:
            owner: the key (raw) that signed the manifest, and its signature; None from an orchestrator that does not say.

        Raises:
            VerificationFailed: `bad-signature`: the manifest is not that owner's.
            InvalidManifest, NotPermitted: not addressed to this holder as it is. Conflict: `manifest-changed`.
        """
        if owner is not None:
            verify_owner(manifest_bytes, *owner)
        known = self._ledger.knows(session)
        request = verify_manifest(manifest_bytes, self.name, self.keys if known else OwnKeys(self.keys.current))
        if known:
            state = self._ledger.state(session)
            if state.manifest != manifest_bytes:
                raise Conflict(f"session {session} was offered with another manifest before", code="manifest-changed")
            if owner is not None and state.owner is None:  # it came from an orchestrator that did not say
                await self._ledger.record(
                    session, [(REQUEST, request_body(manifest_bytes, owner))], lambda connection: None
                )
            if state.decision is not None:
                await self._update(session, {"delivered": False})
            return
        row = {
            "manifest_digest": request.digest, "manifest": request.data, "program": None, "state": "waiting", "phase": None,
            "dataset": None, "reason": "", "decided_by": None, "decided_at": None, "delivered": False, "findings": "[]",
            "waiting_for": "the orchestrator (program archive)", "received_at": self._clock(),
        }  # fmt: skip
        await self._ledger.record(
            session, [(REQUEST, request_body(manifest_bytes, owner))],
            lambda connection: put_row(connection, REQUESTS, {"session": session}, row),
        )  # fmt: skip
        _log.info("approval wanted", session=session, manifest=request.digest)

    async def is_waiting(self, session: str) -> bool:
        """Whether nobody has decided yet, and the session has not ended. Raises: NotFound."""
        return bool(
            (await self._store.read(lambda connection: rows.request(connection, session)))["state"] == "waiting"
        )

    async def examined(self, session: str) -> tuple[VerifiedManifest, ProgramManifest]:
        """The request with all that is checked before anybody decides: its program, and what is said of a predecessor.

        Raises:
            Unavailable: the orchestrator did not answer; call again later. VerificationFailed, InvalidProgram: it lied. ManifestRefused:
                it may not go on with its predecessor's model.
        """
        async with self._shown(session, "the orchestrator"):
            request, program = await self.show(session)
            await self._predecessors.check(session, request.manifest)
        return request, program

    async def put_before(self, session: str, findings: list[RuleFinding], whom: str) -> None:
        """Show what was found, and who decides."""
        shown = json.dumps([finding.as_json() for finding in findings])
        await self.awaiting.show(session, whom, findings=shown)

    async def show(self, session: str) -> tuple[VerifiedManifest, ProgramManifest]:
        """The request as verified from its bytes: manifest and program. Raises: as `examined`."""
        request = verify_manifest(self._ledger.state(session).manifest, self.name, self.keys)
        return request, await self.programs.of(session, request.manifest.program)

    @asynccontextmanager
    async def _shown(self, session: str, whom: str) -> AsyncIterator[None]:
        """Why it cannot be decided yet, and `whom` it waits for, is shown to the operator."""
        try:
            yield
        except GputError as error:
            if self._ledger.state(session).decision is None:
                lied = isinstance(error, _NEVER) and not error.code.startswith("dataset-")
                said = "nobody: it cannot be approved" if lied else whom
                with suppress(Unavailable):  # it may be the database that does not answer
                    await self.awaiting.show(session, printable(f"{said} ({error.code}: {error.detail})"))
            raise

    async def _busy(self, session: str, doing: str) -> None:
        """Show what this holder does with its data before a decision is made."""
        if self._ledger.state(session).decision is None:
            await self.awaiting.show(session, f"this holder's data ({doing})")

    async def unknown_datasets(self) -> list[str]:
        """Datasets that policy or settings name for approvals, and that this holder does not have. Raises: Unavailable."""
        known = await self._catalogue.names()
        named = (self._default_dataset, None if self.policy is None else self.policy.dataset)
        return [name for name in named if name is not None and name not in known]

    def findings(self, session: str, request: VerifiedManifest, program: ProgramManifest) -> list[RuleFinding]:
        """What the local policy says; empty without a policy. Raises: VerificationFailed: the stored owner was changed."""
        owner = verify_signer(self._ledger.state(session))
        fingerprint = None if owner is None else owner.fingerprint
        return [] if self.policy is None else evaluate(self.policy, request.manifest, program, self.name, fingerprint)

    async def decide(self, session: str, word: Word, *, by: str, measure: bool = True) -> None:
        """Sign, store and try to deliver a decision.

        Args:
            measure: whether an approval's profile may say how large values are and which classes are there; a policy may forbid it.

        Raises:
            Conflict: as `deciding.says_news`, `deciding.corrects`. InvalidData: the dataset does not fit; it says why.
            ManifestRefused, VerificationFailed: as `Predecessors.check` and `Catalogue.open_dataset`, of an approval.
        """
        decision = word.decision
        # Before the lock: hashing a large dataset takes minutes, and a veto elsewhere must not wait for it.
        wanted = decision == "approve" and self.judging.news(session, word)
        chosen = await self._fitting(session, word.dataset, measure) if wanted else None
        async with self._deciding:
            if self.judging.news(session, word):
                approval = Approval(
                    session=session, holder=self.name, manifest=word.manifest, decision=decision,
                    reason=word.reason, at=int(self._clock()), **({} if chosen is None else chosen.stated),
                )  # fmt: skip
                if not word.anew or corrects(self._ledger.state(session), self.keys, approval, chosen):
                    await self._store_decision(session, approval, None if chosen is None else chosen.name, by)
        _log.info("decided", session=session, decision=decision, by=by)
        if decision == "veto":
            self.on_veto(session)
        try:
            await self.delivery.send(session)
        except GputError as error:
            if not may_heal(error):  # the ledger's; of the orchestrator's answers nothing else comes here
                raise
            _log.warning("decision not delivered yet", session=session, code=error.code)

    async def _fitting(self, session: str, dataset: str | None, measure: bool) -> Chosen:
        request, program = await self.examined(session)
        name = self.judging.dataset(session, dataset)
        await self._busy(session, "being read")
        async with self._shown(session, "this holder's operator"):
            with read_as_approved(self._ledger.state(session), name):
                return await fitting(
                    self._catalogue, self._commitments, session, self.name, request.manifest, program, name,
                    measure=measure and self.may_measure,
                )  # fmt: skip

    @property
    def may_measure(self) -> bool:
        """Whether the policy lets a profile say how large values are and which classes are there."""
        return self.policy is None or self.policy.profile.statistics

    async def _store_decision(self, session: str, approval: Approval, dataset: str | None, by: str) -> None:
        signed = sign_decision(self.keys.current, approval)
        before = self._ledger.state(session).decision
        kept = before.dataset if approval.decision == "veto" and before is not None else dataset
        body = {
            "document": signed.document, "signature": signed.signature, "dataset": kept, "by": by,
            "dataset_root": approval.dataset_root, "records": approval.records, "record_rule": RULE,
            "conversion": CONVERSION,
        }  # fmt: skip
        row: dict[str, Any] = {
            "dataset": kept, "reason": approval.reason, "decided_by": by, "decided_at": self._clock(), "delivered": False,
        }  # fmt: skip
        now = {"state": STATES[approval.decision], "waiting_for": "the orchestrator (delivery)"}

        def show(connection: Connection) -> None:
            # An ended one, also if the end came just before, stays shown as that, with what is owed.
            shown = row | now if self._ledger.state(session).ended is None else row
            update_row(connection, REQUESTS, {"session": session}, shown)

        await self._ledger.record(session, [(DECISION, body)], show)

    async def remind(self, session: str) -> None:
        """Say a refusal or a veto again, to an orchestrator that asks as if it had not been said. Raises: as `Delivery.send`."""
        if (said := verify_decision(self._ledger.state(session), self.keys)) and said.decision != "approve":
            await self.delivery.send(session)

    async def unconsidered(self) -> list[str]:
        """Requests still waiting for their program or for the policy."""
        return await self._store.read(partial(rows.unconsidered, with_program=self.automatic))

    async def waiting_since(self, at: float) -> list[str]:
        """Requests that wait for a decision, and came then or before. Raises: Unavailable."""
        return await self._store.read(lambda connection: rows.waiting_since(connection, at))

    async def ended(self, session: str, phase: str, waiting_for: str | None) -> None:
        """The session is over; nothing of it is served any more. `waiting_for`: who still owes something; None once nobody does."""
        if self._ledger.state(session).ended is not None:
            await self._update(session, {"waiting_for": waiting_for})
            return
        row = {"state": "ended", "phase": phase, "waiting_for": waiting_for, "delivered": True}
        await self._ledger.record(
            session, [(ENDED, {"phase": phase})],
            lambda connection: update_row(connection, REQUESTS, {"session": session}, row),
        )  # fmt: skip
        _log.info("session ended", session=session, phase=phase)

    async def received_at(self, session: str) -> float:
        """When this holder first heard of the session, Unix seconds. Raises: NotFound."""
        return float((await self._store.read(lambda connection: rows.request(connection, session)))["received_at"])

    def approved(self, session: str) -> Approved:
        """What an offer may rely on. Raises: NotFound, NotPermitted, VerificationFailed (see `verify_approved`)."""
        return self.stands(self._ledger.state(session))

    def stands(self, state: SessionState) -> Approved:
        """As `approved`, by that state. Raises: NotPermitted, VerificationFailed."""
        return verify_approved(state, self.name, self.keys)

    async def _update(self, session: str, values: dict[str, Any]) -> None:
        await self._store.write(lambda connection: update_row(connection, REQUESTS, {"session": session}, values))
