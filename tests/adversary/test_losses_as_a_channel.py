"""A program of the owner's that writes another's records into what it may see: losses and the update (H24). Bits are counted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gpu_agent.hardware.ledger import ReleaseRule
from gpu_agent.workload.source import ProgramSource
from shared.claims.privacy import Privacy
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import SGD, TrainingOptions
from shared.names import RegionKind, TravelMode
from shared.wire import gpu
from tests.adversary.private_world import Trained, run_as, train
from tests.adversary.rows import attack
from tests.adversary.visitor import Visitors
from tests.gpu.gpu_world import RECORD_BYTES, World

BYTES = RecordSchema(fields=(RecordField(name="bytes", dtype="uint8", shape=(RECORD_BYTES,)),))
BATCH, STEPS = 8, 4
OPTIONS = TrainingOptions(optimizer=SGD(lr=1.0), batch_size=BATCH, seed=7)
PRIVATE = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5)
SECRET = bytes(
    torch.randint(0, 256, (BATCH * STEPS * RECORD_BYTES,), generator=torch.Generator().manual_seed(5)).tolist()
)


class Teller(nn.Module):
    """One weight for each byte of a record."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(RECORD_BYTES))


def teller(bits: int, scale: float) -> ProgramSource:
    """Each batch's mean loss is the first `bits` bits of its first record, as a number around zero, times `scale`. Its gradient is the
    mean of the records themselves, which are bytes from -128 to 127."""

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        values = batch["bytes"].to(torch.float64)
        whole, rest = divmod(bits, 8)
        number = sum((values[:, at] * 2.0 ** (8 * at) for at in range(whole)), torch.zeros_like(values[:, 0]))
        number = number + values[:, whole].remainder(2**rest) * 2.0 ** (8 * whole)
        first = (torch.arange(values.shape[0]) == 0).to(torch.float64) * values.shape[0]
        carried = ((values - 128.0) * model.weight.to(torch.float64)).sum(dim=1)
        return (number - 2.0 ** (bits - 1)) * scale * first + carried - carried.detach()

    return ProgramSource(name="teller", model=Teller(), loss=loss, records=BYTES)


def read(told: float, bits: int, scale: float) -> int:
    """What a loss says."""
    return round(told / scale) + (1 << (bits - 1))


def truth(step: int, bits: int) -> int:
    """The first bits of the first record of a step."""
    record = SECRET[step * BATCH * RECORD_BYTES :][:RECORD_BYTES]
    return int.from_bytes(record, "little") & ((1 << bits) - 1)


def recovered(trained: Trained, bits: int, scale: float) -> int:
    """Bits of records that the released losses gave away, of all steps and of the visit's mean (if that is all there is)."""
    steps = [loss for _, loss in trained.told.losses]
    if steps:
        return sum(bits for step, loss in enumerate(steps) if read(loss, bits, scale) == truth(step, bits))
    if trained.told.loss is None:
        return 0
    mean = sum(truth(step, bits) for step in range(STEPS)) / STEPS  # a number of as many bits, of four records together
    return bits if abs(read(trained.told.loss, bits, scale) - mean) <= 1 else 0


def bytes_in_the_update(trained: Trained, scale: float = 1.0) -> int:
    """Bytes of a record that the model itself gives away, where every record of the one step was this one; `scale`: what clipping took."""
    weight = trained.model["weight"] * scale
    return sum(round(-float(w)) + 128 == b for w, b in zip(weight, SECRET[:RECORD_BYTES], strict=True))


def told(device: World, data: bytes = SECRET, **changes: Any) -> Trained:
    return train(device, data, OPTIONS, **({"privacy_floor": BATCH} | changes))


def test_without_any_rule_a_loss_carries_all_that_a_float_holds(device: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the numbers below would say nothing."""
    monkeypatch.setattr(ReleaseRule, "release", lambda self, loss, records: loss)
    run_as(monkeypatch, teller(48, 1.0))
    assert recovered(told(device), 48, 1.0) == 48 * STEPS


@attack(
    "H24",
    any="stopped: where the manifest asks for privacy no loss is released, and noise hides the update; without it a program can carry "
    "27 bits a step through rounding and clipping (of 48), 14 with losses rounded to ones, 27 a visit under a floor above the batch, "
    "none under one above the visit, and whole records in the model; one that fails is said to have failed, and not where",
)
def test_a_crafted_programs_losses_carry_bits_and_under_privacy_none(
    device: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine, coarse = (27, 1e-4), (14, 1.0)
    run_as(monkeypatch, teller(*coarse))
    assert recovered(told(device, loss_decimals=0), *coarse) == 14 * STEPS
    run_as(monkeypatch, teller(*fine))
    assert recovered(told(device), *fine) == 27 * STEPS
    assert recovered(told(device, privacy_floor=BATCH + 1), *fine) == 27
    assert recovered(told(device, privacy_floor=BATCH * STEPS + 1), *fine) == 0
    private = told(device, privacy=PRIVATE)
    assert (private.told.losses, private.told.loss) == ([], None)
    same = SECRET[:RECORD_BYTES] * BATCH
    assert bytes_in_the_update(told(device, same)) == RECORD_BYTES
    clipped = math.sqrt(sum((b - 128) ** 2 for b in SECRET[:RECORD_BYTES]))  # the attacker is even told this
    assert bytes_in_the_update(told(device, same, privacy=PRIVATE), clipped) <= RECORD_BYTES // 8


def failing_by_value() -> ProgramSource:
    """Fails at another node for each value of a batch's first byte."""

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        secret = batch["bytes"][:1, 0].to(torch.int64)
        kept = batch["bytes"][:, 1].to(torch.float32) * model.weight[0]
        for size in range(RECORD_BYTES, 0, -1):
            kept = kept + model.weight[:size].gather(0, secret) * 0.0
        return kept

    return ProgramSource(
        name="failing", model=Teller(), loss=loss, records=BYTES, sample={"bytes": torch.zeros(4, RECORD_BYTES, dtype=torch.uint8)}
    )  # fmt: skip


def test_a_program_that_fails_does_not_tell_where(device: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its author would read a record from the number of the node that failed, whatever the rule for losses; its own it may know."""
    run_as(monkeypatch, failing_by_value())
    said = []
    for secret in (1, 20, 39):
        visitors = Visitors(device, TravelMode.SCOPED)
        visitors.set_up(options=OPTIONS, buffers=1, buffer_bytes=4096, total_steps=10**6, privacy_floor=1000)
        data = bytes([secret]) + bytes(RECORD_BYTES * BATCH - 1)
        holder = device.install(BATCH, 0, data, chunk_bytes=1 << 20)
        holder.send(data)
        device.open_epoch(holder.grant.epoch)
        failed = device.train(holder, steps=1)
        said.append((failed.state, failed.code, failed.detail))
    assert said == [("failed", "program-failed", "The program failed on a batch of these records")] * 3
    place = device.region(RegionKind.VALIDATION)
    own = gpu.Upload(region=place.handle, offset=0, length=len(data), records=1)
    device.run(gpu.RollBack(), own, gpu.Evaluate(work="own", region=place.handle, records=BATCH), bulk=[data])
    assert "at node" in (device.finish("own").detail or "")
