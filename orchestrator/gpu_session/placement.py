"""Filling a wiped GPU: session, program, memory plan, initial model, validation data, baseline digests (design 4.2 step 3).

Knows no holder and no visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.gpu_session.bulk import batches, records_of
from orchestrator.gpu_session.life import GpuLife
from orchestrator.library import Library
from orchestrator.sessions.state import ModelState, Placement, SessionState
from orchestrator.sessions.submission import weights_digest
from orchestrator.weights import map_weights
from shared.claims.archive import Archive
from shared.claims.layout import plan_memory
from shared.errors import VerificationFailed
from shared.names import RegionKind
from shared.service.clock import Entropy
from shared.wire.gpu import (
    MAX_BULK_RECORD,
    Committed,
    Configure,
    Configured,
    InitModel,
    InitSession,
    Measure,
    Measured,
    ProgramLoaded,
    RegionInfo,
    SetReady,
    Upload,
    UploadProgram,
)


@dataclass(frozen=True)
class Placed:
    """What lies where, and the initial model (None when a checkpoint is to be restored over it)."""

    placement: Placement
    model: ModelState | None

    def body(self) -> dict[str, object]:
        """As the journal keeps it."""
        return {"placement": asdict(self.placement), "model": None if self.model is None else asdict(self.model)}


class Placer:
    """Fills one GPU for one session."""

    def __init__(self, life: GpuLife, state: SessionState, library: Library, entropy: Entropy) -> None:
        self._life, self._state, self._library, self._entropy = life, state, library, entropy

    async def place(self, *, restoring: bool) -> Placed:
        """Everything up to a ready GPU.

        Raises:
            CommandRefused: `gpu-out-of-memory` and others. VerificationFailed: the GPU holds something else than it was given.
        """
        archive = await self._library.archive_bytes(self._state.manifest.program)
        program = await self._library.program(self._state.manifest.program)
        regions = await self._configure(archive, program)
        await self._upload_validation(regions)
        committed = None if restoring else await self._init_model(program, regions)
        await self._life.batch([SetReady()])
        measured = (await self._life.batch([Measure(nonce=self._entropy(32))])).answer(0, Measured)
        check_program(measured, self._state.manifest.program)
        placement = _placement(regions, measured)
        return Placed(placement, committed)

    async def _configure(self, archive: bytes, program: Archive) -> dict[RegionKind, RegionInfo]:
        manifest = self._state.manifest
        validation = manifest.validation
        length = 0 if validation is None else validation.records * program.manifest.records.record_bytes
        records = records_of(archive)
        answers = await self._life.batch(
            [
                InitSession(session=self._state.id, manifest=manifest.digest().hex()),
                UploadProgram(length=len(archive), records=len(records)),
                Configure(
                    options=manifest.training, total_steps=self._state.itinerary.total_steps,
                    buffer_bytes=manifest.buffer_bytes, validation_bytes=length, loss_decimals=manifest.loss_decimals,
                    privacy_floor=manifest.privacy_floor,
                ),
            ],
            records,
        )  # fmt: skip
        if answers.answer(1, ProgramLoaded).program != manifest.program:
            raise VerificationFailed("The GPU loaded another program", code="program-mismatch",
                                     expected=manifest.program, got=answers.answer(1, ProgramLoaded).program)  # fmt: skip
        return {region.kind: region for region in answers.answer(2, Configured).regions}

    async def _upload_validation(self, regions: dict[RegionKind, RegionInfo]) -> None:
        validation = self._state.manifest.validation
        if validation is None:
            return
        path = self._library.files["validation"].open(validation.dataset)
        await self._upload(regions[RegionKind.VALIDATION], _file_pieces(path))

    async def _init_model(self, program: Archive, regions: dict[RegionKind, RegionInfo]) -> ModelState:
        manifest = self._state.manifest
        digest = weights_digest(manifest, program.manifest)
        if digest is None:
            answer = await self._life.batch([InitModel(source="seed")])
        else:
            plan = plan_memory(program.manifest, manifest.training).model
            weights = map_weights(self._library.files["weights"].open(digest), plan)
            await self._upload(regions[RegionKind.MODEL], weights.region_pieces(MAX_BULK_RECORD))
            answer = await self._life.batch([InitModel(source="uploaded")])
        return model_state(answer.answer(0, Committed))

    async def _upload(self, region: RegionInfo, pieces: Iterator[tuple[int, bytes]]) -> None:
        for group in batches(((offset, data), len(data)) for offset, data in pieces if data):
            commands = [Upload(region=region.handle, offset=o, length=len(d), records=1) for o, d in group]
            await self._life.batch(commands, [data for _, data in group])


def _file_pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        offset = 0
        while piece := file.read(MAX_BULK_RECORD):
            yield offset, piece
            offset += len(piece)


def _placement(regions: dict[RegionKind, RegionInfo], measured: Measured) -> Placement:
    validation = regions.get(RegionKind.VALIDATION)
    dataset = regions[RegionKind.DATASET]
    return Placement(
        code=measured.code,
        control=measured.control,
        model_region=regions[RegionKind.MODEL].handle,
        dataset_region=dataset.handle,
        dataset_length=dataset.length,
        validation_region=None if validation is None else validation.handle,
    )


def check_program(measured: Measured, program: str) -> None:
    """The program in the code region is the approved one. Raises: VerificationFailed."""
    if measured.program != program:
        raise VerificationFailed("The code region holds another program than the approved one", code="program-mismatch",
                                 expected=program, got=measured.program)  # fmt: skip


def model_state(committed: Committed, validation: float | None = None) -> ModelState:
    """The GPU's answer as state."""
    return ModelState(committed.model, committed.optimiser, committed.step, validation)
