"""Real keys and manifests for the orchestrator's unit tests. Nothing here pretends to be a GPU."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.library import Library
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.heritage import Heritage
from orchestrator.sessions.keyring import CvmKeys, Keyring
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import Known
from orchestrator.tables import PROGRAMS
from shared.canonical import json_bytes, sha256
from shared.claims.manifest import EvidencePolicy, Manifest, RosterEntry
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import TrainingOptions
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.protocol.visit import VisitFact
from shared.service.changes import Stopping
from shared.service.journal import Journal, NewFact
from shared.service.migrations import upgrade
from shared.service.statements import put_row
from shared.service.store import Store
from shared.wire.visit import Approval, Signed
from tests.schemas import lay

EMULATED = EvidencePolicy(roots=("EMULATED",))
RECORD_BYTES = 8
SESSION = "s_aaaaaaaaaaaaaaaa"
CVM = b"this CVM"
MODEL = {"model": "1" * 64, "optimiser": "2" * 64, "step": 0, "validation": 3.0}
STORED: dict[str, Any] = {"archive_sha256": "b" * 64, "archive_bytes": 1, "summary": {}, "stored_at": 1.0}
KNOWN = Known(programs={}, weights={}, validation={}, parties={}, gpus=("gpu-0",), allow_emulated=True)
PLACEMENT = {
    "code": "3",
    "control": "4",
    "model_region": 1,
    "dataset_region": 2,
    "dataset_length": 4096,
    "validation_region": None,
}


def key(seed: int) -> PartyKey:
    """A key that is the same in every run."""
    return PartyKey.generate(lambda n: bytes([seed]) * n)


def program() -> ProgramManifest:
    """A tiny program: one weight, records of two float32."""
    return ProgramManifest(
        name="tiny",
        records=RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(2,)),)),
        parameters=(TensorSpec(name="w", dtype="float32", shape=(2, 3)),),
        graphs={"train": "0" * 96, "eval": "1" * 96},
        operators=(),
        initial_weights=SeedInit(seed=1, rules=(InitRule(name="w", kind="normal", std=1.0),)),
    )


def manifest(holders: int = 3, **changes: Any) -> Manifest:
    """A sound manifest over `holders` holders h0, h1, …"""
    fields: dict[str, Any] = {
        "name": "study", "program": "a" * 96, "training": TrainingOptions(batch_size=4, seed=7),
        "roster": tuple(RosterEntry(holder=f"h{i}", key=key(i + 1).fingerprint, evidence=EMULATED) for i in range(holders)),
        "gpu_evidence": EMULATED, "orchestrator_evidence": EMULATED, "rounds": 3, "steps_per_visit": 2, "buffer_bytes": 4096,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def signed(by: PartyKey, label: str, document: bytes) -> Signed:
    """A signed document."""
    return Signed(document=b64encode(document).decode(), signature=b64encode(by.sign(label, document)).decode())


def approval(holder: int, of: Manifest, decision: str = "approve", session: str = SESSION, **changes: Any) -> Signed:
    """A holder's signed decision."""
    stated = {"records": 40, "record_bytes": 8, "dataset_root": "d0" * 32} if decision == "approve" else {}
    said = Approval(
        session=session,
        holder=f"h{holder}",
        manifest=of.digest().hex(),
        decision=decision,
        **({"at": 1} | stated | changes),  # type: ignore[arg-type]  # tests pass the literals
    )
    return signed(key(holder + 1), "gput/approval", json_bytes(said.model_dump(mode="json")))


def planned(state: SessionState, visit: str = "v_1") -> NewFact:
    """The next stop's plan."""
    stop = state.next_stop()
    assert stop is not None
    return new_fact(
        VisitFact.PLANNED, visit=visit, round=stop.round, index=stop.index, attempt=state.attempts + 1, holder=stop.holder,
        cursor={}, records=8, first_step=0, steps=2, epoch=state.last_epoch + 1, fence_epoch=state.last_epoch + 2, region=2, ahead=False,
    )  # fmt: skip


def keyring(cvm: bytes = CVM) -> Keyring:
    """The keys that one CVM has."""
    return Keyring(CvmKeys(*(Secret(sha256(cvm + bytes([number]))) for number in range(3))), os.urandom)


@contextmanager
def no_own_keys() -> Iterator[None]:
    """Sessions are submitted as by a release before they had keys of their own: under those of the CVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Keyring, "create", lambda ring, session, manifest: lambda connection: ring.load(connection, session)
        )
        yield


class Room:
    """A catalogue over a real database in a folder."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'state.db'}"
        upgrade(lay(self.url, "orchestrator"), "orchestrator")
        self.store = Store(self.url)
        self.folder = folder
        self.keyring = keyring()

    async def catalogue(self, cvm: bytes = CVM) -> Catalogue:
        """Another process's view of the same database, as this CVM."""
        await self.store.open()
        self.keyring = keyring(cvm)
        library = Library(self.store, self.folder, lambda: 1.0)
        heritage = Heritage(
            self.store, self.keyring, library.parties, lambda session: self.folder / session, os.urandom
        )
        return Catalogue(self.store, self.keyring, library, heritage, lambda: 1.0, Stopping())

    def journal(self) -> Journal:
        """The journal itself, with the keys of whichever sessions the newest catalogue has opened; it takes every kind of fact."""
        return Journal(self.keyring.journal_key)

    async def submitted(self, catalogue: Catalogue, session: str = SESSION, **changes: Any) -> Book:
        """A session in the database, waiting for approvals."""
        agreed_manifest, owner = manifest(**changes), key(99)
        signature = owner.sign("gput/manifest", agreed_manifest.canonical())
        await self.store.write(lambda c: put_row(c, PROGRAMS, {"digest": agreed_manifest.program}, STORED))
        await catalogue._create(
            session,
            agreed_manifest,
            KNOWN,
            agreed_manifest.canonical(),
            signature,
            "alice",
            owner.public,
            "gpu-0",
            None,
        )
        return await catalogue.open(session)
