"""Going on with an ended session's model: may it be, with which sealed file, under which key. Knows files and keys, no visit and no HTTP.

A successor reads its predecessor's checkpoint where it lies, once, at its set-up; then it seals one of its own. Until then it has the one
key that opens that file, sealed under a key of its own, so that it needs nothing of its predecessor's but the file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from orchestrator.files import is_there
from orchestrator.gpu_session.checkpoints import restore_file
from orchestrator.gpu_session.life import GpuLife
from orchestrator.gpu_session.placement import Fill
from orchestrator.gpu_session.sealed import SealedSecrets, SessionSecrets
from orchestrator.ledger.log import read_head
from orchestrator.parties import Parties
from orchestrator.sessions.book import Book
from orchestrator.sessions.keyring import Keyring
from orchestrator.sessions.remembered import Checkpoint, ModelState
from orchestrator.sessions.rows import legible
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.succession import Rest, at_rest, mismatches
from orchestrator.tables import LEAVES, REMOVALS, SESSIONS
from shared.attestation.key_rotations import moved_keys
from shared.canonical import cbor_value
from shared.claims.faults import Finding, ManifestRefused
from shared.claims.manifest import Manifest, Predecessor
from shared.claims.succession import succession_findings
from shared.crypto.schedule import checkpoint_key
from shared.crypto.secret import Secret
from shared.errors import Conflict, NotFound, VerificationFailed
from shared.protocol.log_events import LABEL
from shared.protocol.merkle import leaf_hash
from shared.service.clock import Entropy
from shared.service.statements import find_row
from shared.service.store import Store

Open = Callable[[str], Awaitable[Book]]


@dataclass(frozen=True)
class Inheritance:
    """What a session that is being submitted goes on with: what its first fact says, and what is written in that transaction."""

    fact: dict[str, Any]
    write: Callable[[Connection, str], None]


class Heritage:
    """One orchestrator's. `folder`: a session's files."""

    def __init__(
        self, store: Store, keyring: Keyring, parties: Parties, folder: Callable[[str], Path], entropy: Entropy
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._parties = parties
        self._folder = folder
        self._entropy = entropy

    def file(self, session: str, checkpoint: Checkpoint) -> Path:
        """Where a session's checkpoint lies."""
        return self._folder(session) / "checkpoints" / f"{checkpoint.name}.sealed"

    def restoring(self, life: GpuLife, state: SessionState, key: Secret | None) -> Fill | None:
        """What brings the predecessor's model into a GPU that is being filled; None: there is no predecessor. When it is used, it raises
        VerificationFailed: `checkpoint-gone`: file or key; `checkpoint-mismatch`: the GPU holds another model than the manifest names."""
        inherited, said = state.inherited, state.manifest.predecessor
        if said is None:
            return None

        async def restore() -> ModelState:
            if inherited is None or key is None:
                raise VerificationFailed(f"The key to the checkpoint of {said.session} is gone", code="checkpoint-gone")
            path = self.file(inherited.session, inherited.checkpoint)
            model = await restore_file(life, path, key.reveal(), inherited.checkpoint)
            if model.weights != (said.model, said.optimiser, said.step):
                raise VerificationFailed(
                    f"The GPU holds another model than the one of {said.session} that everybody approved", code="checkpoint-mismatch",
                    expected=f"{said.model} at step {said.step}", got=f"{model.model} at step {model.step}",
                )  # fmt: skip
            return model

        return restore

    async def offered(self, state: SessionState) -> Rest:
        """What a successor of this session goes on with.

        Raises:
            Conflict: as `at_rest`. VerificationFailed: `log-mismatch`, `log-rolled-back`: the stored head cannot be the newest one that was
                signed. `journal-tampered`. Unavailable.
        """
        with legible(state.id):
            size = await self._store.read(lambda connection: _signed_size(connection, state)) if state.ended else 0
        return at_rest(state, size, lambda checkpoint: is_there(self.file(state.id, checkpoint)))

    async def taken(self, manifest: Manifest, owner: str, owner_key: str, open_book: Open) -> Inheritance | None:
        """What a session under this manifest begins with; None where it has no predecessor.

        Raises:
            ManifestRefused: with every finding. KeyAway: the predecessor's key is another CVM's.
        """
        said = manifest.predecessor
        if said is None:
            return None
        try:
            state = (await open_book(said.session)).durable
            rest = await self.offered(state)
        except NotFound as error:
            remedy = "It was removed, or never was here: begin a new session."
            raise ManifestRefused(
                [Finding("predecessor.session", error.detail, remedy, "unknown-predecessor")]
            ) from None
        except Conflict as error:
            raise ManifestRefused([
                Finding("predecessor.session", error.detail, error.remedy or "Begin a new session.", error.code),
            ])  from None  # fmt: skip
        if (state.owner, state.owner_key) != (owner, owner_key):
            # Also where a later key has the owner's name: a model is released to the key alone that signed its manifest, and a successor's
            # is to who signs that one's.
            whose = "was submitted with another key" if state.owner == owner else "is another owner's"
            raise ManifestRefused([
                Finding("predecessor.session", f"{said.session} {whose}", "Have it submitted by who submitted that one, with that key.",
                        "predecessor-not-yours"),
            ])  # fmt: skip
        moved = await self._moved(state.manifest, manifest, rest.says)
        findings = [*mismatches(said, rest.says), *succession_findings(state.manifest, manifest, moved)]
        if findings:
            raise ManifestRefused(findings)
        return await self._inheritance(state.id, rest.checkpoint)

    async def _moved(self, old: Manifest, new: Manifest, says: Predecessor) -> set[str]:
        """Parties that changed their keys by their own signatures since."""
        keys = {entry.holder: entry.key for entry in new.roster}
        asked = moved_keys(old, says, keys)
        return {party for party, before in asked.items() if await self._parties.came_from(keys[party], before)}

    async def _inheritance(self, session: str, checkpoint: Checkpoint) -> Inheritance:
        sealed = SealedSecrets(self._store, self._keyring.sealing_key(session), session, self._entropy)
        secrets = await sealed.load()
        if secrets is None:
            raise ManifestRefused([
                Finding("predecessor.session", f"{session} has no keys any more", "Begin a new session.", "predecessor-without-model"),
            ])  # fmt: skip
        key = Secret(checkpoint_key(secrets.checkpoint.reveal(), checkpoint.name))

        def write(connection: Connection, heir: str) -> None:
            there = connection.execute(select(SESSIONS.c.id).where(SESSIONS.c.id == session)).first()
            if there is None or find_row(connection, REMOVALS, {"session": session}) is not None:
                raise Conflict(
                    f"{session} was removed just now", code="unknown-predecessor", remedy="Begin a new session."
                )
            own = SessionSecrets(Secret(b""), Secret(self._entropy(32)), key)
            SealedSecrets(self._store, self._keyring.sealing_key(heir), heir, self._entropy).saving(own)(connection)

        return Inheritance({"session": session, "checkpoint": asdict(checkpoint)}, write)


def _signed_size(connection: Connection, state: SessionState) -> int:
    """Leaves under the newest signed head of an ended session; 0: there is none.

    The row is the platform's, and under no MAC: what it says must be what the journal says of so many leaves, and no fewer than a holder
    was shown or has a receipt among, or an older head was put back. Raises: as `Heritage.offered`.
    """
    head = read_head(connection, state.id)
    if head is None:
        return 0
    size, shown = int(head["size"]), max(state.offered_heads.values(), default=0)
    if not 0 <= size <= state.tree.size or head["root"] != state.tree.root(size).hex():
        raise VerificationFailed(f"The stored head of {state.id}'s log is of another log", code="log-mismatch")
    if size < shown or not _only_events(connection, state, size):
        raise VerificationFailed(
            f"The stored head of {state.id}'s log is an older one than its holders know", code="log-rolled-back",
            remedy="Put back the newest copy of the database; without one, begin a new session.", got=f"{size} leaves",
        )  # fmt: skip
    return size


def _only_events(connection: Connection, state: SessionState, size: int) -> bool:
    """Whether no leaf from this one on is a receipt: told by the leaves themselves, which must be those of the journal. A few things happen
    to a session while nobody signs heads, and none of them is a receipt."""
    stored = select(LEAVES.c.idx, LEAVES.c.leaf).where(LEAVES.c.session == state.id, LEAVES.c.idx >= size)
    leaves = connection.execute(stored.order_by(LEAVES.c.idx).execution_options(yield_per=16))
    for index in range(size, state.tree.size):
        row = leaves.fetchone()
        if row is None or row.idx != index or leaf_hash(row.leaf) != state.tree.leaf(index) or not _is_event(row.leaf):
            return False
    return True


def _is_event(leaf: bytes) -> bool:
    match cbor_value(leaf):
        case [kind, *_]:
            return bool(kind == LABEL)
    return False
