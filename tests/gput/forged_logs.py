"""Logs as an attested orchestrator could have written them and none may: sound signatures over what the parties did not agree to.

Made as `gput bench receipts` makes its sessions, of the services' own parts; what a receipt or its device statement says is changed before
it is signed. Knows no test.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gput.local.receipts_bench import HOLDERS, Maker
from gput.receipt_folder import write
from gput.receipts import Verified, verify
from orchestrator.ids import new_visit_id
from orchestrator.ledger.tree import MerkleTree
from orchestrator.visits.receipts import sign_receipt
from shared.canonical import cbor_bytes
from shared.claims.manifest import Manifest
from shared.claims.receipt import Accumulated, DeviceStatement, TourStatement
from shared.crypto.cose import sign1
from shared.crypto.signing import PartyKey
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
class Ended:
    """A tour's end, of a session that accumulates gradients. `said`, `told`: what the device's word and the leaf say otherwise than usual;
    `dropped`: no step was taken; `start` as in `Visited`. `key`: whose word it is, if not the device's."""

    round: int = 1
    dropped: bool = False
    said: dict[str, Any] | None = None
    told: dict[str, Any] | None = None
    start: int | None = None
    key: PartyKey | None = None


@dataclass(frozen=True)
class Happened:
    """An event."""

    kind: str
    details: Any


@dataclass(frozen=True)
class Again:
    """A leaf's bytes once more."""

    leaf: int


Leaf = Visited | Ended | Happened | Again | bytes


class State(NamedTuple):
    """What stands in the GPU: model, steps behind it, accumulator and batches in that."""

    model: str
    step: int
    accumulator: str
    batches: int


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
        state = State(secrets.token_hex(32), 0, secrets.token_hex(32), 0)
        self.states, self._epoch = {-1: state}, 0
        for at, leaf in enumerate(leaves):
            match leaf:
                case Visited() | Ended():
                    begun = state if leaf.start is None else self.states[leaf.start]
                    data, state = self._visited(leaf, begun) if isinstance(leaf, Visited) else self._ended(leaf, begun)
                    self.states[at] = state
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

    def _visited(self, leaf: Visited, begun: State) -> tuple[bytes, State]:
        self._epoch += 2
        holder = leaf.holder or holder_at(self.manifest, leaf.stop)
        visit = new_visit_id(secrets.token_bytes)
        rejected = (leaf.told or {}).get("outcome") == "rejected"
        stop = max(1, leaf.stop)  # of one before the first no claim is made, only changed to be
        usual = self._statement(stop, holder, visit, begun.model)
        added = {} if self.manifest.accumulate is None else self._added(begun, usual, rejected=rejected)
        said = usual.model_copy(update={"epoch": self._epoch, "first_step": begun.step} | added | (leaf.said or {}))
        told = {"index": leaf.stop, "round": round_of(self.manifest, leaf.stop)} | (leaf.told or {})
        receipt = self._receipt(stop, said, self._opened[holder]).model_copy(update=told)
        kept = said.accumulated
        after = begun if rejected else State(
            said.model_after, said.first_step + said.steps, *((kept.after, kept.batches) if kept else begun[2:])
        )  # fmt: skip
        return sign_receipt(receipt, self.signing_key), after

    def _added(self, begun: State, usual: DeviceStatement, *, rejected: bool) -> dict[str, Any]:
        """What the statement says where a visit adds to the accumulator."""
        after, more = (begun.accumulator, 0) if rejected else (secrets.token_hex(32), usual.steps)
        kept = Accumulated(before=begun.accumulator, after=after, batches=begun.batches + more)
        return {"model_after": usual.model_before, "accumulated": kept}

    def _ended(self, leaf: Ended, begun: State) -> tuple[bytes, State]:
        usual = TourStatement(
            device=self.device.device, backend=self.device.backend.value, boot_counter=1, life=1, session=self.session,
            program=self.manifest.program, round=leaf.round, batches=begun.batches, stepped=not leaf.dropped,
            model_before=begun.model, model_after=begun.model if leaf.dropped else secrets.token_hex(32),
            optimiser_before=begun.accumulator, optimiser_after=secrets.token_hex(32),
        )  # fmt: skip
        said = usual.model_copy(update=leaf.said or {})
        data = cbor_bytes(said.model_dump(mode="python", warnings=False))
        cose = self.device.sign_statement(data) if leaf.key is None else sign1(data, leaf.key, kid=b"k")
        details = {
            "round": usual.round, "stepped": usual.stepped, "statement": b64encode(cose).decode(), "validation_before": 2.5,
            "validation_after": 2.25,
        } | (leaf.told or {})  # fmt: skip
        after = State(said.model_after, begun.step, said.optimiser_after, 0)
        return event_bytes(self.session, "tour_ended", details), after
