"""What a holder checks of a session that goes on from another, before it approves: the predecessor's manifest, and its own memory of it.

The orchestrator checked the same at submission; nothing is taken from its word that this holder can know better. Decides nothing else.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from data_holder.answers import listed
from data_holder.identity import OwnKeys
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.log_reader import LogReader
from data_holder.protocol.state import RECEIPT, SessionState
from data_holder.receipts import explain
from data_holder.tables import rows
from shared.attestation.key_rotations import came_by_rotation, moved_keys
from shared.canonical import sha256
from shared.claims.faults import ManifestRefused
from shared.claims.manifest import Manifest, Predecessor, parse_manifest
from shared.claims.succession import succession_findings
from shared.errors import BadRequest, VerificationFailed
from shared.protocol.log_events import restored_to
from shared.protocol.merkle import leaf_hash, verify_consistency, verify_inclusion
from shared.service.store import Store

PAGE = 200
MAX_PAGES = 50
"""Of a party's keys: somebody who changes it weekly fills one in four years."""


class Predecessors:
    """Checks each session that has a predecessor once in this process, as long as it stands. `keys`: this holder's, as they are now."""

    def __init__(
        self, name: str, keys: Callable[[], OwnKeys], ledger: Ledger, store: Store, link: OrchestratorLink
    ) -> None:
        self._name, self._keys, self._ledger, self._store, self._link = name, keys, ledger, store, link
        self._checked: set[str] = set()

    async def check(self, session: str, manifest: Manifest) -> None:
        """As `judge`, and remembered."""
        if manifest.predecessor is not None:
            await self.judge(session, manifest)
            self._checked.add(session)

    async def judge(self, session: str, manifest: Manifest) -> None:
        """That the session may go on with its predecessor's model, and that this is the predecessor that this holder knows.

        Raises:
            ManifestRefused: what the predecessor's holders agreed to does not allow this session. VerificationFailed: code
                `predecessor-mismatch`: it is another than this holder knows, or log and proof do not hold. Unavailable: no answer.
        """
        said = manifest.predecessor
        if said is None or session in self._checked:
            return
        old = await self._manifest(session, said)
        if findings := succession_findings(old, manifest, await self._moved(old, manifest, said)):
            raise ManifestRefused(findings)
        if self._ledger.knows(said.session):
            own = self._ledger.state(said.session)
            if sha256(own.manifest).hex() != said.manifest:
                raise _other("manifest", sha256(own.manifest).hex(), said.manifest)
            log = LogReader(self._link, own)
            await _log(log, own, said)
            await self._models(log, said)

    async def _manifest(self, session: str, said: Predecessor) -> Manifest:
        """The predecessor's manifest: its digest stands in the one that is to be approved."""
        answer: Any = await self._link.get_json(f"/v1/sessions/{session}/predecessor")
        try:
            document = b64decode(answer["document"], validate=True)
            manifest = parse_manifest(document)
        except (KeyError, TypeError, ValueError, BadRequest):
            raise VerificationFailed("the predecessor's manifest is malformed", code="predecessor-mismatch") from None
        if sha256(document).hex() != said.manifest:
            raise _other("manifest", said.manifest, sha256(document).hex())
        return manifest

    async def _moved(self, old: Manifest, new: Manifest, said: Predecessor) -> set[str]:
        """Parties that changed their keys since, by the signatures of the old ones."""
        keys, found = {entry.holder: entry.key for entry in new.roster}, set()
        for party, before in moved_keys(old, said, keys).items():
            if party == self._name:
                came = before in self._keys().publics
            else:
                came = came_by_rotation(await self._keys_of(party), party, keys[party], before)
            found |= {party} if came else set()
        return found

    async def _keys_of(self, party: str) -> list[Any]:
        """Every key that it had. Raises: VerificationFailed `predecessor-mismatch`: what the orchestrator lists is none, or without end."""
        return [
            item async for item in listed(self._link, f"/v1/parties/{party}/keys", "predecessor-mismatch", MAX_PAGES)
        ]

    async def _models(self, log: LogReader, said: Predecessor) -> None:
        """Where an own receipt says what the model was at this step, it was this one; and whose visit was accepted until then is a
        contributor. Unless the log shows that a restore took the visit back: then nothing of it need be in the model."""
        async for index, cose in self._closed(said.session):
            receipt, statement = explain(cose)
            contradiction = _contradicted(self._name, statement, said)
            if contradiction is not None and not await _taken_back(log, said, cose, index, receipt["index"]):
                raise contradiction

    async def _closed(self, session: str) -> AsyncIterator[tuple[int, bytes]]:
        """By leaf, this holder's verified receipts of accepted visits, all that its journal remembers: the rows by themselves are the
        platform's word, which can write them and take them away.

        Raises:
            VerificationFailed: `predecessor-mismatch`: one is not there. Or `journal-tampered`.
        """
        facts = [fact for fact in await self._ledger.facts(session, RECEIPT) if fact["outcome"] == "closed"]
        lacking = {bytes.fromhex(fact["leaf"]) for fact in facts}
        after: tuple[str, int] | None = None
        while page := await self._store.read(partial(rows.receipts, session=session, after=after, limit=PAGE)):
            for row in page:
                cose = bytes(row["cose"])
                if (leaf := leaf_hash(cose)) in lacking:
                    lacking.remove(leaf)
                    yield row["index"], cose
            after = session, page[-1]["index"]
        if lacking:
            raise _other("receipts", f"{len(facts)} here of accepted visits", f"{len(lacking)} fewer in the database")


def _contradicted(name: str, statement: Mapping[str, Any], said: Predecessor) -> VerificationFailed | None:
    """What is wrong with the manifest's word on its predecessor if this accepted visit of `name` stands."""
    before, after = statement["first_step"], statement["first_step"] + statement["steps"]
    named = {one.holder for one in said.contributors}
    if after <= said.step and name not in named:
        return _other("contributors", f"{name} among them", ", ".join(sorted(named)))
    for step, model in ((before, statement["model_before"]), (after, statement["model_after"])):
        if step == said.step and model != said.model:
            return _other(f"model at step {step}", model, said.model)
    return None


async def _taken_back(log: LogReader, said: Predecessor, cose: bytes, index: int, stop: int) -> bool:
    """Whether the log that the model came to rest with has the leaf of a restore to before this stop behind its receipt, leaf `index`.

    Raises:
        VerificationFailed: what the orchestrator shows for it is not in that log.
    """
    size, root = said.log_size, bytes.fromhex(said.log_root)
    if index >= size:
        return False
    verify_inclusion(leaf_hash(cose), index, size, await log.path(index, size), root)
    async for at, event in log.events(size, root):
        position = restored_to(event)
        if at > index and position is not None and position < stop:
            return True
    return False


async def _log(log: LogReader, own: SessionState, said: Predecessor) -> None:
    """The log that the model came to rest with extends the one that this holder saw last."""
    remembered = own.head
    if remembered is None:
        return
    if said.log_size < remembered.size:
        raise _other("log", f"at least {remembered.size} leaves", f"{said.log_size}")
    path = await log.consistency(remembered.size, said.log_size)
    verify_consistency(remembered.size, remembered.root, said.log_size, bytes.fromhex(said.log_root), path)


def _other(what: str, expected: str, got: str) -> VerificationFailed:
    return VerificationFailed(
        f"the predecessor's {what} is not what this holder knows", code="predecessor-mismatch", expected=expected, got=got,
        remedy="Refuse it, and ask owner and orchestrator's operator; `gput receipts verify` shows who holds which log.",
    )  # fmt: skip
