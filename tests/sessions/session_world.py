"""A world around a program, weights and datasets of a test's own choice. Knows the in-process world; no test."""

from __future__ import annotations

import tomllib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cbor2
import numpy as np

from gpu_agent.unit import GpuUnit
from gput.receipts import save, verify
from shared.claims.archive import open_archive
from tests.world.world import World
from tests.world.world_material import HOLDERS, POLICY, Material


@dataclass(frozen=True)
class Work:
    """What a session is about. `weights` None: nothing is uploaded; `datasets`: each holder's file or folder."""

    archive: bytes
    weights: bytes | None = None
    datasets: Mapping[str, Path] = field(default_factory=dict)


class SessionWorld(World):
    """As World, with `work` in place of the usual program and data."""

    def __init__(
        self, folder: Path, material: Material, unit: GpuUnit, work: Work, *,
        settings: Mapping[str, Mapping[str, Any]] | None = None, holders: Sequence[str] = HOLDERS, approve: str = "policy",
    ) -> None:  # fmt: skip
        self.work = work
        folder.mkdir(parents=True, exist_ok=True)
        policy = folder / "approve-this.toml"
        policy.write_text(_policy(open_archive(work.archive).digest.hex()))
        changes = {name: dict(items) for name, items in (settings or {}).items()}
        for name in holders:
            own: dict[str, Any] = {"policy": policy}
            if name in work.datasets:
                own["datasets"] = {"ehr": work.datasets[name]}
            changes[f"holder-{name}"] = own | changes.get(f"holder-{name}", {})
        super().__init__(
            folder, replace(material, archive=work.archive), unit, holders=holders, settings=changes, approve=approve
        )

    @property
    def canaries(self) -> tuple[bytes, ...]:
        """A piece from the middle of each holder's own data, or the usual records."""
        return tuple(_middle(path) for path in self.work.datasets.values()) or super().canaries

    async def enrol(self) -> None:
        """Holders, program and this work's weights; validation data where the usual program's fit."""
        for name in self.holders:
            await self.owner.enrol(name, self.material.keys[name].public)
        await self.owner.upload_program(self.work.archive)
        await self.owner.upload_validation(self.material.validation)
        if self.work.weights is not None:
            await self.owner.upload_weights(self.work.weights)

    async def losses(self, session: str) -> list[float]:
        """Released losses of all steps, in order of the step."""
        items = await self.owner.items(f"sessions/{session}/losses")
        return [float(item["loss"]) for item in sorted(items, key=lambda item: item["step"])]

    async def model_file(self, session: str) -> Path:
        """The exported model."""
        return await self.owner.model(session, self.folder / f"{session}.safetensors")

    async def statements(self, session: str) -> list[Any]:
        """(outcome, the GPU's statement) of each receipt in order; the bundle verifies offline first."""
        folder = self.folder / f"receipts-{session}"
        await save(self.owner, session, folder, self.folder / "trust")
        verify(folder)
        items = await self.owner.items(f"sessions/{session}/receipts")
        return [(item["outcome"], _payload(_payload(b64decode(item["cose"]))["statement"])) for item in items]


def _middle(path: Path) -> bytes:
    """64 bytes: of the first array's numbers, or of the file as it is."""
    data = path.read_bytes()
    if path.suffix == ".npz":
        arrays = np.load(path)
        data = arrays[sorted(arrays.files)[0]].tobytes()
    return data[len(data) // 2 :][:64]


def _payload(cose: bytes) -> Any:
    """Claims of a COSE_Sign1 (RFC 9052 section 4.2) whose signature was verified elsewhere."""
    return cbor2.loads(cbor2.loads(cose).value[2])


def _policy(program: str) -> str:
    text = "\n".join(line for line in POLICY.splitlines() if not line.startswith("operators")).format(program=program)
    assert tomllib.loads(text)["programs"] == {"digests": [program]}
    return text
