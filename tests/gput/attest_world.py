"""An emulated installation's trust folder, and evidence from it as files: what `gput attest` is tried on. Knows no command."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.attestation.ear import claims_set, sign_result
from shared.claims.event_log import Event
from shared.crypto.signing import PartyKey
from shared.wire.snp_certificates import ASK, VCEK
from shared.wire.visit import GpuEvidence
from tests.attestation.cpu_world import AT, HOLDER_CODE, ORCHESTRATOR_CODE, Machine
from tests.attestation.gpu_evidence_world import NONCE, GpuWorld
from tests.attestation.nvidia_eat_world import bundle
from tests.attestation.snp_world import MEASUREMENT, REPORT_DATA, body, good_chip, platform, signed, table

TIME = "2026-09-21T14:13:20Z"
DATA = REPORT_DATA
KEY = PartyKey.generate(lambda size: b"\x07" * size)


@dataclass
class Files:
    """The installation: its trust folder and evidence by name."""

    trust: Path
    folder: Path
    machine: Machine
    gpu: GpuWorld

    def path(self, name: str) -> str:
        return str(self.folder / name)


def make(folder: Path) -> Files:
    """Everything that an installation has, and one piece of evidence of each kind."""
    world, machine = GpuWorld.make(folder / "made"), Machine()
    trust = folder / "made" / "trust"
    (trust / "cpu-roots.pem").write_bytes(machine.root_pem)
    (trust / "snp-roots.pem").write_bytes(platform().pem(platform().ask))
    codes = {
        role: {"mr_td": code.hex()}
        for role, code in (("orchestrator", ORCHESTRATOR_CODE), ("data_holder", HOLDER_CODE))
    }
    snp = {"profiles": {"orchestrator": {"measurement": MEASUREMENT.hex()}}}
    (trust / "reference.json").write_text(json.dumps({"gpu": {}, "cvms": codes, "snp": snp}))
    (trust / "collateral").mkdir(exist_ok=True)
    (trust / "collateral" / "own.json").write_bytes(machine.collateral.document())
    evidence = folder / "evidence"
    evidence.mkdir()
    for name, content in pieces(machine, world):
        (evidence / name).write_bytes(content)
    return Files(trust, evidence, machine, world)


def pieces(machine: Machine, world: GpuWorld) -> Iterator[tuple[str, bytes]]:
    """File name -> content."""
    quote, report, chip = machine.raw(DATA), world.report(), good_chip()
    yield "quote.bin", quote
    yield "quote.hex", b"0x" + quote.hex().encode()
    yield "quote.b64", base64.encodebytes(quote)
    yield "quote5.bin", Machine("five", 5).raw(DATA)
    yield "collateral.json", machine.collateral.document()
    events = (Event(register=3, type="started", content={"what": "test"}),)
    yield "cvm.json", machine.evidence("orchestrator", DATA, events).model_dump_json().encode()
    yield "report.bin", report
    yield "report.txt", report.hex().encode() + b"\n"
    yield "chain.pem", world.rot.chain_pem.encode()
    for kind, path in world.rims.items():
        yield f"{kind}.xml", path.read_bytes()
    nvidia = {
        "arch": "HOPPER",
        "certificate": b64(world.rot.chain_pem.encode()),
        "evidence": b64(report),
        "nonce": NONCE.hex(),
    }
    yield "nvidia.json", json.dumps([nvidia]).encode()
    own = GpuEvidence(report=b64(report), chain=world.rot.chain_pem, challenge="00" * 32, th2="00" * 48, epoch=0)
    yield "gpu.json", own.model_dump_json().encode()
    snp = signed(body(), chip.key)
    yield "snp.bin", snp
    yield "vcek.der", chip.leaf
    yield "ask.pem", platform().pem(platform().ask)
    yield "table.bin", table({VCEK: chip.leaf, ASK: platform().ask.der})
    yield "snp.json", platform().evidence(snp, chip.leaf).model_dump_json().encode()
    yield "nvidia-eat.json", bundle(int(AT))
    yield "result.jwt", sign_result(claims_set([world.verify().appraisal], build="test", at=int(AT)), KEY).encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
