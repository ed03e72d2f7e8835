"""The finished model as safetensors: committed bytes read under the D2H key, sealed to the disk, checked against the committed digest.

Knows no output policy and no HTTP.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import BinaryIO

from orchestrator.gpu_session.bulk import BATCH_BYTES, BATCH_RECORDS
from orchestrator.gpu_session.life import GpuLife
from orchestrator.model_file import Making, ModelFile
from orchestrator.weights import read_at, write_header
from shared.claims.layout import RegionPlan, region_digest
from shared.errors import VerificationFailed
from shared.service.threads import aside
from shared.wire.gpu import MAX_BULK_RECORD, Export


@dataclass(frozen=True)
class Exported:
    """A model file: region digest, SHA-256 of the file, size in bytes."""

    digest: str
    sha256: str
    size_bytes: int


async def export_model(life: GpuLife, plan: RegionPlan, place: ModelFile, expected: str) -> Exported:
    """Read the committed model out of the GPU into `place`.

    Raises:
        VerificationFailed: what came out is not the committed model (code `export-mismatch`); no file appears.
    """
    async with place.making() as file:
        write_header(file, plan)
        for group in _groups(plan):
            batch = await life.batch([Export(offset=offset, length=length) for offset, length in group])
            got = 0
            for record in batch.bulk:
                got += file.write(record)
            if got != sum(length for _, length in group):
                raise VerificationFailed(
                    "The GPU exported another number of bytes than asked for", code="export-mismatch"
                )
        # Seconds for a large model: on the event loop they would cost this process its lease, and the next one its.
        return await aside(_read_back, file, plan, expected)


def _read_back(file: Making, plan: RegionPlan, expected: str) -> Exported:
    with file.read_back() as (model, size):
        digest = _digest(model, size, plan)
        if digest != expected:
            raise VerificationFailed(
                "The exported model is not the committed one", code="export-mismatch", expected=expected, got=digest
            )
        model.seek(0)
        return Exported(digest, hashlib.file_digest(model, "sha256").hexdigest(), size)


def _groups(plan: RegionPlan) -> list[list[tuple[int, int]]]:
    """(offset, length) reads, tensor by tensor without padding, grouped into batches whose answers fit a frame."""
    groups: list[list[tuple[int, int]]] = []
    room = records = 0
    for placed in plan.tensors:
        for done in range(0, placed.size_bytes, BATCH_BYTES):
            length = min(BATCH_BYTES, placed.size_bytes - done)
            need = -(-length // MAX_BULK_RECORD)
            if length > room or need > records:
                groups.append([])
                room, records = BATCH_BYTES, BATCH_RECORDS
            groups[-1].append((placed.offset + done, length))
            room, records = room - length, records - need
    return groups


def _digest(file: BinaryIO, size: int, plan: RegionPlan) -> str:
    places: dict[int, int] = {}
    at = size - sum(placed.size_bytes for placed in plan.tensors)  # tensors are what stands at the end
    for placed in plan.tensors:
        if placed.size_bytes:  # a zero-size tensor may share its offset with the next one
            places[placed.offset] = at
        at += placed.size_bytes
    return region_digest(plan, lambda offset, length: read_at(file, places[offset], length) if length else b"").hex()
