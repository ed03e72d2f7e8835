"""A device with a real requester in one process: what the orchestrator and a holder do, without HTTP. Test support."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpu_agent.compute.process import ComputeProcess
from gpu_agent.engines import on_device
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform.device_manufacture import manufacture_device
from shared.claims.archive import open_archive
from shared.claims.program import ProgramManifest
from shared.claims.training import SGD, AdamW, TrainingOptions
from shared.claims.visit import CursorRange, Grant
from shared.crypto import schedule
from shared.crypto.command_channel import CommandChannel
from shared.names import RegionKind, holder_port
from shared.protocol.membership import proof_limit
from shared.wire import gpu, gpu_answers
from shared.wire.codec import decode, decode_all, encode, encode_all
from tests.built import built
from tests.gpu.gpu_holder import FEATURES, RECORD_BYTES, Holder, root_of

SESSION, MANIFEST = "s_0123456789abcdef", "ab" * 32
NOW = 1_800_000_000.0
CLASSES, BATCH = 4, 8
CHUNK = 4096
OPTIONS = TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=BATCH, seed=7)
SGD_OPTIONS = TrainingOptions(optimizer=SGD(lr=1e-2), batch_size=BATCH, seed=7)


@cache
def program() -> tuple[bytes, bytes]:
    """A small classifier's archive and its initial weights (safetensors)."""
    return built("classifier", features=FEATURES, classes=CLASSES)


@cache
def manifest() -> ProgramManifest:
    return open_archive(program()[0]).manifest


@cache
def device_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gput-device-"))
    atexit.register(shutil.rmtree, folder)
    manufacture_device(folder, "gpu-0")
    return folder / "devices" / "gpu-0"


def model_region(length: int, options: TrainingOptions = OPTIONS) -> bytes:
    """The initial weights as the model region lays them out."""
    import safetensors.numpy

    from shared.claims.layout import plan_memory

    tensors = safetensors.numpy.load(program()[1])
    data = bytearray(length)
    for placed in plan_memory(manifest(), options).model.tensors:
        data[placed.offset : placed.offset + placed.size_bytes] = tensors[placed.spec.name].tobytes()
    return bytes(data)


def records(count: int, seed: int = 1) -> bytes:
    """Records of the classifier: features float32, label int64."""
    draw = np.random.default_rng(seed)
    kind = np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")])
    rows = np.zeros(count, kind)
    rows["features"] = draw.standard_normal((count, FEATURES), dtype=np.float32)
    rows["label"] = np.abs(rows["features"][:, 0] * 4).astype(np.int64) % CLASSES
    return rows.tobytes()


class Refused(Exception):
    """A Failure answer, for tests."""

    def __init__(self, failure: gpu_answers.Failure) -> None:
        super().__init__(f"{failure.code}: {failure.detail}")
        self.code = failure.code


@dataclass
class World:
    """One device and one orchestrator."""

    device: Device
    hbm: HBM
    compute: ComputeProcess
    now: list[float]
    faults: list[BaseException]
    channel: CommandChannel | None = None
    rk: bytes = b""
    resume_secret: bytes = b""
    export: bytes = b""
    life: int = 0
    boot: int = 0
    regions: list[gpu_answers.RegionInfo] = field(default_factory=list)
    epochs: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    bulk: list[bytes] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    # ---------------------------------------------------------------- sessions

    def connect(
        self, *, resume: bool = False, life: int | None = None, secret: bytes | None = None
    ) -> gpu_answers.LifeOpened:
        from shared.attestation.spdm_requester import SpdmRequester

        target = (self.life + 1 if life is None else life) if resume else 0
        used = self.resume_secret if secret is None else secret

        def prove(random: bytes, point: bytes) -> bytes:
            return schedule.resume_proof(used, target, self.boot, random, point)

        requester = SpdmRequester(
            entropy=os.urandom, signing_key_digest=bytes(32), life=target, resume=prove if resume else None
        )
        message: bytes | None = requester.start()
        while message is not None:
            message = requester.feed(self.device.spdm(message))
        self.export = requester.session.take_export_master_secret()
        self.life = target or 1
        self.channel = CommandChannel(self.export, self.life, "orchestrator")
        self.rk = schedule.root_key(self.export, self.life)
        opened = self.run(gpu.OpenLife())[0]
        self.boot = opened.boot_counter
        self.channel.set_masks(opened.h2d_iv_mask, opened.d2h_iv_mask)
        return opened  # type: ignore[no-any-return]  # answers are a union that tests know

    def run(self, *commands: Any, bulk: list[bytes] | None = None) -> list[Any]:
        """Answers; raises Refused at a failure."""
        answers = self.answers(*commands, bulk=bulk)
        if isinstance(answers[-1], gpu_answers.Failure):
            raise Refused(answers[-1])
        return answers

    def answers(self, *commands: Any, bulk: list[bytes] | None = None) -> list[Any]:
        assert self.channel is not None
        n, ct, sealed = self.channel.seal(encode_all(list(commands)), bulk or [])
        frame = encode(gpu.CommandFrame(life=self.life, n=n, ct=ct, bulk=sealed))
        self.sent.append(frame)
        answer = decode(gpu.CommandFrame, self.device.commands(frame))
        payload, self.bulk = self.channel.open(answer.life, answer.n, answer.ct, answer.bulk)
        return decode_all(gpu_answers.ANSWERS, payload)

    def refused(self, *commands: Any, bulk: list[bytes] | None = None) -> str:
        """The code with which the last command is refused."""
        answers = self.answers(*commands, bulk=bulk)
        assert isinstance(answers[-1], gpu_answers.Failure), answers[-1]
        assert answers[-1].code != "internal", self.faults
        return answers[-1].code

    def program_command(self) -> tuple[gpu.UploadProgram, list[bytes]]:
        archive = program()[0]
        return gpu.UploadProgram(length=len(archive), records=1), [archive]

    def configure_command(self, **changes: Any) -> gpu.Configure:
        fields: dict[str, Any] = {
            "options": OPTIONS, "total_steps": 1000, "buffer_bytes": 64 * 1024, "buffers": 2, "validation_bytes": 8192,
            "loss_decimals": 4, "privacy_floor": 8,
        }  # fmt: skip
        return gpu.Configure(**(fields | changes))

    def set_up(self, **changes: Any) -> list[gpu_answers.RegionInfo]:
        """A fresh session, ready for visits."""
        self.connect()
        self.resume_secret = schedule.resume_secret(self.export, SESSION)
        upload, bulk = self.program_command()
        self.run(gpu.InitSession(session=SESSION, manifest=MANIFEST), upload, bulk=bulk)
        self.regions = self.run(self.configure_command(**changes))[0].regions
        model = self.region(RegionKind.MODEL)
        data = model_region(model.length, changes.get("options", OPTIONS))
        place = gpu.Upload(region=model.handle, offset=0, length=len(data), records=1)
        self.run(place, gpu.InitModel(source="uploaded"), gpu.SetReady(), bulk=[data])
        return self.regions

    def resume(self) -> gpu_answers.LifeOpened:
        """The next life of the orchestrator, ready for visits."""
        opened = self.connect(resume=True)
        upload, bulk = self.program_command()
        self.run(upload, gpu.SetReady(), bulk=bulk)
        return opened

    def region(self, kind: RegionKind, index: int = 0) -> gpu_answers.RegionInfo:
        return [r for r in self.regions if r.kind is kind][index]

    def phase(self, handle: int) -> str:
        return next(r.phase for r in self.run(gpu.Status())[0].regions if r.handle == handle).value

    # ---------------------------------------------------------------- visits

    def open_epoch(self, *kills: int, epoch: int | None = None) -> tuple[int, gpu_answers.EpochOpened, bytes]:
        """(epoch, answer, visit secret)."""
        epoch = next(self.epochs) if epoch is None else epoch
        entropy = os.urandom(32)
        opened = self.run(gpu.OpenEpoch(epoch=epoch, entropy=entropy, kills=list(kills)))[0]
        secret, self.rk = schedule.draw_epoch(self.rk, epoch, entropy, opened.entropy)
        return epoch, opened, secret

    def grant(self, epoch: int, count: int = 32, region: int = 0, dataset: bytes = b"", **changes: Any) -> Grant:
        """A grant for the first `count` records of `dataset`; without one, for the usual records, all of them."""
        dataset = dataset or records(count)
        cursor = changes.get("cursor", CursorRange(start=0, count=count))
        in_all = len(dataset) // RECORD_BYTES
        fields: dict[str, Any] = {
            "session": SESSION, "visit": f"v_{epoch:016d}", "life": self.life, "epoch": epoch, "holder": "north",
            "port": holder_port("north"), "region": self.region(RegionKind.DATASET, region).handle, "cursor": cursor,
            "byte_budget": cursor.count * RECORD_BYTES + proof_limit(cursor, in_all), "dataset_root": root_of(dataset),
            "dataset_records": in_all, "record_bytes": RECORD_BYTES, "chunk_bytes": 1000, "recipient": "cd" * 32,
            "expires_at": int(NOW) + 600,
        }  # fmt: skip
        return Grant(**(fields | changes))

    def install(self, count: int = 32, region: int = 0, dataset: bytes = b"", **changes: Any) -> Holder:
        """Open an epoch, install a grant, be its holder."""
        epoch, _, secret = self.open_epoch()
        grant = self.grant(epoch, count, region, dataset, **changes)
        installed = self.run(gpu.InstallGrant(grant=grant))[0]
        return Holder(self.device, grant, secret, installed, dataset or records(count))

    def visit(self, data: bytes, region: int = 0, **changes: Any) -> Holder:
        """A whole provision: grant, copies, fence."""
        holder = self.install(len(data) // RECORD_BYTES, region, data, **changes)
        holder.send(data)
        self.open_epoch(holder.grant.epoch)
        return holder

    def train_command(self, holder: Holder, work: str = "w1", steps: int = 3, first: int = 0) -> gpu.Train:
        grant = holder.grant
        return gpu.Train(
            work=work, visit=grant.visit, region=grant.region, records=grant.records, first_step=first, steps=steps
        )

    def finish(self, work: str) -> gpu_answers.WorkState:
        """Poll a work to its end."""
        steps = 0
        while True:
            state = self.run(gpu.Poll(work=work, after=steps, wait_ms=5000))[0]
            if state.state != "running":
                return self.run(gpu.Poll(work=work))[0]  # type: ignore[no-any-return]  # as above
            steps = state.steps_done

    def train(self, holder: Holder, work: str = "w1", steps: int = 3, first: int = 0) -> gpu_answers.WorkState:
        self.run(self.train_command(holder, work, steps, first))
        return self.finish(work)

    def measure(self) -> gpu_answers.Measured:
        return self.run(gpu.Measure(nonce=bytes(32)))[0]  # type: ignore[no-any-return]  # as above


def _engines(entropy: Any, hbm_bytes: int, device: str | None) -> tuple[HBM, ComputeProcess]:
    if device is not None:
        return on_device(device, hbm_bytes, entropy)
    hbm = HBM(hbm_bytes, entropy)
    return hbm, ComputeProcess(hbm.fd, hbm.size)


def make_world(entropy: Any = os.urandom, hbm_bytes: int = 80 << 30, device: str | None = None) -> World:
    """`device`: PyTorch's name of a device that keeps memory and computes, instead of this host."""
    now, faults = [NOW], []  # type: tuple[list[float], list[BaseException]]
    boots = itertools.count(1)
    hbm, compute = _engines(entropy, hbm_bytes, device)
    compute.spawn()
    device = Device(
        "gpu-0", RootOfTrust.load(device_folder(), os.urandom), hbm, compute, entropy=entropy,
        clock=lambda: now[0], timer=time.monotonic, next_boot=lambda: next(boots), report=faults.append,
    )  # fmt: skip
    return World(device, hbm, compute, now, faults)
