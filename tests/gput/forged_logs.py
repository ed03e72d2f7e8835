"""Logs as an attested orchestrator could have written them and none may: sound signatures over what the parties did not agree to.

Made as `gput bench receipts` makes its sessions, of the services' own parts; what a receipt or its device statement says is changed before
it is signed. Knows no test.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.local.receipts_bench import HOLDERS, Maker, _Channel
from gput.receipt_folder import write
from gput.receipts import Verified, verify
from orchestrator.ids import new_visit_id
from orchestrator.ledger.tree import MerkleTree
from orchestrator.visits.receipts import sign_receipt
from shared.claims.manifest import Manifest
from shared.protocol.log_events import event_bytes
from shared.protocol.merkle import leaf_hash
from shared.protocol.stops import holder_at, round_of

A, B, C = HOLDERS


@dataclass(frozen=True)
class Visited:
    """One receipt. `said`, `told`: what device statement and receipt say otherwise than usual; `start`: the leaf whose visit left the model
    that this one begins with, if not the last one's; -1: the first model. `holder`: whoever's stop it is, if nobody else."""

    stop: int
    holder: str = ""
    said: dict[str, Any] | None = None
    told: dict[str, Any] | None = None
    start: int | None = None


@dataclass(frozen=True)
class Happened:
    """An event."""

    kind: str
    details: Any


@dataclass(frozen=True)
class Again:
    """A leaf's bytes once more."""

    leaf: int


Leaf = Visited | Happened | Again | bytes


class Forger(Maker):
    """One session under one manifest, whose log is written as often as one likes: all logs are of the same keys."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self._changes = changes
        super().__init__(folder / "work", len(HOLDERS))
        self._folder, self._count = folder, 0
        self._opened = asyncio.run(self._channels())

    def _manifest(self) -> Manifest:
        return Manifest.model_validate(super()._manifest().model_dump() | self._changes)

    def bundle(self, *leaves: Leaf, **parts: Any) -> dict[str, Any]:
        """What the API gives of a session whose log has these leaves. `parts`: of it, otherwise than usual."""
        self.tree = MerkleTree()
        return self._bundle(self._opened, list(self._made(leaves))) | parts

    def saved(self, bundle: dict[str, Any]) -> Path:
        """The folder in which it is kept."""
        self._count += 1
        folder = self._folder / f"log-{self._count}"
        write(folder, bundle, self.installation.trust)
        return folder

    def log(self, *leaves: Leaf, **parts: Any) -> Path:
        """A saved folder of `bundle`."""
        return self.saved(self.bundle(*leaves, **parts))

    def verified(self, *leaves: Leaf, **parts: Any) -> Verified:
        """The log, written and verified."""
        return verify(self.log(*leaves, **parts))

    def _made(self, leaves: Sequence[Leaf]) -> Iterator[bytes]:
        made: list[bytes] = []
        self.models = {-1: secrets.token_hex(32)}
        model, self._epoch = self.models[-1], 0
        self._steps = {model: 0}
        for at, leaf in enumerate(leaves):
            match leaf:
                case Visited():
                    start = model if leaf.start is None else self.models[leaf.start]
                    data, after = self._visited(leaf, start, self._opened)
                    self.models[at] = model = after
                case Happened():
                    details = leaf.details(self) if callable(leaf.details) else leaf.details
                    data = event_bytes(self.session, leaf.kind, details)
                case Again():
                    data = made[leaf.leaf]
                case bytes():
                    data = leaf
            made.append(data)
            self.tree.append(leaf_hash(data))
            yield data

    def _visited(self, leaf: Visited, model: str, channels: dict[str, _Channel]) -> tuple[bytes, str]:
        self._epoch += 2
        holder = leaf.holder or holder_at(self.manifest, leaf.stop)
        visit = new_visit_id(secrets.token_bytes)
        usual = self._statement(max(1, leaf.stop), holder, visit, model)  # no claim is made of a stop before the first
        said = usual.model_copy(
            update={"epoch": self._epoch, "first_step": self._steps.get(model, 0)} | (leaf.said or {})
        )
        told = {"round": round_of(self.manifest, leaf.stop)} | (leaf.told or {})
        receipt = self._receipt(leaf.stop, said, channels[holder]).model_copy(update=told)
        after = said.model_after if receipt.outcome == "closed" else model
        self._steps.setdefault(after, said.first_step + said.steps)
        return sign_receipt(receipt, self.signing_key), after
