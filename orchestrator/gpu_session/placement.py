"""Filling a wiped GPU: session, program, memory plan, initial model, validation data, baseline digests (design 4.2 step 3).

Knows no holder and no visit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.files import CheckedFile
from orchestrator.gpu_session.bulk import batches, records_of
from orchestrator.gpu_session.life import Batch, GpuLife
from orchestrator.library import Library
from orchestrator.sessions.remembered import ModelState, Placement
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import weights_digest
from orchestrator.weights import map_weights
from shared.claims.archive import Archive
from shared.claims.layout import plan_memory
from shared.errors import VerificationFailed
from shared.names import RegionKind
from shared.protocol.travel import TRAVEL, buffers
from shared.service.clock import Entropy
from shared.wire.base import Wire
from shared.wire.gpu import (
    MAX_BULK_RECORD,
    Configure,
    InitModel,
    InitSession,
    Measure,
    RollBack,
    SetReady,
    Sweep,
    Upload,
    UploadProgram,
)
from shared.wire.gpu_answers import Committed, Configured, Measured, ProgramLoaded, RegionInfo, Swept


@dataclass(frozen=True)
class Placed:
    """What lies where, and the model that the GPU holds now."""

    placement: Placement
    model: ModelState


Regions = dict[RegionKind, list[RegionInfo]]
Fill = Callable[[], Awaitable[ModelState]]
"""How the model comes in when it is not made there: a checkpoint's restore, of this session or of its predecessor."""


class Placer:
    """Fills one GPU for one session."""

    def __init__(self, life: GpuLife, state: SessionState, library: Library, entropy: Entropy) -> None:
        self._life, self._state, self._library, self._entropy = life, state, library, entropy

    async def place(self, restore: Fill | None = None) -> Placed:
        """Everything up to a ready GPU, with the initial model or the one that `restore` brings in.

        Raises:
            CommandRefused: `gpu-out-of-memory` and others. VerificationFailed: the GPU holds something else than it was given.
        """
        archive = await self._library.archive_bytes(self._state.manifest.program)
        program = await self._library.program(self._state.manifest.program)
        regions = await self._configure(archive, program)
        for region in regions.get(RegionKind.VALIDATION, []):
            await self._upload_validation_to(region.handle)
        model = await (self._init_model(program, regions) if restore is None else restore())
        baseline = [Sweep()] if TRAVEL[self._state.manifest.travel_mode].whole_gpu else []
        batch = await self._life.batch([SetReady(), Measure(nonce=self._entropy(32)), *baseline])
        measured = batch.answer(1, Measured)
        check_program(measured, self._state.manifest.program)
        swept = batch.of(Swept).validation if baseline else ""
        return Placed(_placement(regions, measured, swept, collect=self._state.manifest.collect == "tour"), model)

    async def refill(self, sweep: Sequence[Wire]) -> tuple[Batch, bytes]:
        """After a resumed life: program and validation data again, the model rolled back, `sweep`, everything read back under the nonce.

        Raises:
            CommandRefused, VerificationFailed, Unavailable.
        """
        archive = await self._library.archive_bytes(self._state.manifest.program)
        records, placement = records_of(archive), self._state.placement
        await self._life.batch([UploadProgram(length=len(archive), records=len(records))], records)
        if placement is not None and placement.validation_region is not None:
            await self._upload_validation_to(placement.validation_region)
        nonce = self._entropy(32)
        return await self._life.batch([SetReady(), RollBack(), *sweep, Measure(nonce=nonce)]), nonce

    async def _configure(self, archive: bytes, program: Archive) -> Regions:
        manifest = self._state.manifest
        validation = manifest.validation
        length = 0 if validation is None else validation.records * program.manifest.records.record_bytes
        records = records_of(archive)
        answers = await self._life.batch(
            [
                InitSession(session=self._state.id, manifest=manifest.digest().hex()),
                UploadProgram(length=len(archive), records=len(records)),
                Configure(
                    options=manifest.training, total_steps=manifest.optimiser_steps,
                    buffer_bytes=manifest.buffer_bytes, buffers=buffers(manifest), validation_bytes=length,
                    loss_decimals=manifest.loss_decimals, privacy_floor=manifest.privacy_floor, travel_mode=manifest.travel_mode,
                    privacy=manifest.privacy, accumulate=manifest.accumulate, collect=manifest.collect,
                ),
            ],
            records,
        )  # fmt: skip
        if answers.answer(1, ProgramLoaded).program != manifest.program:
            raise VerificationFailed("The GPU loaded another program", code="program-mismatch",
                                     expected=manifest.program, got=answers.answer(1, ProgramLoaded).program)  # fmt: skip
        regions: Regions = {}
        for region in answers.answer(2, Configured).regions:
            regions.setdefault(region.kind, []).append(region)
        return regions

    async def _upload_validation_to(self, region: int) -> None:
        validation = self._state.manifest.validation
        if validation is not None:
            pieces = _file_pieces(self._library.files["validation"].find(validation.dataset), validation.dataset)
            await self._upload(region, pieces)

    async def _init_model(self, program: Archive, regions: Regions) -> ModelState:
        manifest = self._state.manifest
        digest = weights_digest(manifest, program.manifest)
        if digest is None:
            return model_state((await self._life.batch([InitModel(source="seed")])).answer(0, Committed))
        plan = plan_memory(program.manifest, manifest.training).model
        weights = map_weights(self._library.files["weights"].find(digest), digest, plan)
        await self._upload(regions[RegionKind.MODEL][0].handle, weights.region_pieces(MAX_BULK_RECORD))
        committed = (await self._life.batch([InitModel(source="uploaded")])).answer(0, Committed)
        if committed.model != self._state.start_model:
            raise VerificationFailed("The GPU holds other initial weights than were submitted", code="initial-weights-mismatch",
                                     expected=self._state.start_model, got=committed.model)  # fmt: skip
        return model_state(committed)

    async def _upload(self, region: int, pieces: Iterator[tuple[int, bytes]]) -> None:
        for group in batches(((offset, data), len(data)) for offset, data in pieces if data):
            commands = [Upload(region=region, offset=o, length=len(d), records=1) for o, d in group]
            await self._life.batch(commands, [data for _, data in group])


def _file_pieces(path: Path, sha256: str) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of a file that is read once. Raises: VerificationFailed: at its end, when it was not the one of this digest."""
    with CheckedFile(path, sha256) as file:
        offset = 0
        while piece := file.read(MAX_BULK_RECORD):
            yield offset, piece
            offset += len(piece)


def _placement(regions: Regions, measured: Measured, validation_digest: str, *, collect: bool) -> Placement:
    validation, (dataset, *more) = regions.get(RegionKind.VALIDATION, []), regions[RegionKind.DATASET]
    return Placement(
        code=measured.code,
        control=measured.control,
        model_region=regions[RegionKind.MODEL][0].handle,
        dataset_region=dataset.handle,
        dataset_length=dataset.length,
        dataset_address=dataset.address,
        ahead_region=more[0].handle if more and not collect else None,
        validation_region=validation[0].handle if validation else None,
        validation=validation_digest,
        tour_regions=[dataset.handle, *(region.handle for region in more)] if collect else [],
    )


def check_program(measured: Measured, program: str) -> None:
    """The program in the code region is the approved one. Raises: VerificationFailed."""
    if measured.program != program:
        raise VerificationFailed("The code region holds another program than the approved one", code="program-mismatch",
                                 expected=program, got=measured.program)  # fmt: skip


def model_state(committed: Committed, validation: float | None = None) -> ModelState:
    """The GPU's answer as state."""
    return ModelState(
        committed.model, committed.optimiser, committed.step, validation, committed.batches, committed.version
    )
