"""Tensors over a device's memory: each its own, at its offset, on its device; and programs whose products are taken in bfloat16."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_agent.compute import arena as arena_module
from gpu_agent.compute.arena import Arena, Whole
from gpu_agent.compute.places import WARMING_SHARE, DevicePlace, device_of, opened
from gpu_agent.hardware.hbm import Extent
from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import LoadedProgram, load_program
from gpu_agent.workload.programs import builtin
from gpu_agent.workload.records import decode_batch
from gpu_agent.workload.tensors import fill, initial_tensors
from gpu_agent.workload.training import Trainer
from shared.claims.archive import open_archive
from shared.claims.layout import MemoryPlan, plan_memory
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import BadRequest, InvalidProgram

SIZES = {"layers": 1, "heads": 2, "width": 16, "context": 8}
OPTIONS = TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=4, grad_clip_norm=1.0)
TOKENS = torch.arange(36, dtype=torch.uint8) * 7


def placed(flat: Tensor, plan: MemoryPlan) -> list[dict[str, Tensor]]:
    place, at, found = DevicePlace(Whole(flat)), 4096, []
    for part in (plan.model, plan.gradients, plan.optimiser):
        found.append(place.tensors(Extent(at, part.length), part))
        at += part.length
    return found


def program(device: str, **options: Any) -> tuple[LoadedProgram, MemoryPlan]:
    archive, _ = build(builtin("gpt2", **SIZES, **options))
    loaded = load_program(archive, device)
    return loaded, plan_memory(loaded.manifest, OPTIONS)


def test_tensors_are_the_bytes_that_are_measured_and_share_no_version() -> None:
    loaded, plan = program("cpu")
    flat = torch.zeros(1 << 20, dtype=torch.uint8)
    model, grads, _ = placed(flat, plan)
    assert {tensor.untyped_storage().data_ptr() for tensor in model.values()} == {flat.data_ptr()}
    for spot in plan.model.tensors:
        assert model[spot.spec.name].data_ptr() == flat.data_ptr() + 4096 + spot.offset
        assert tuple(model[spot.spec.name].shape) == spot.spec.shape
        assert model[spot.spec.name].is_contiguous()
    versions = {name: tensor._version for name, tensor in grads.items()}
    next(iter(model.values())).fill_(1.0)
    assert versions == {name: tensor._version for name, tensor in grads.items()}
    first = plan.model.tensors[0]
    assert bytes(flat[4096 + first.offset :][:4].numpy()) == b"\x00\x00\x80\x3f"
    assert loaded.manifest.parameters


def test_a_region_that_is_too_small_or_misaligned_is_refused() -> None:
    _, plan = program("cpu")
    place = DevicePlace(Whole(torch.zeros(1 << 20, dtype=torch.uint8)))
    with pytest.raises(InvalidProgram) as small:
        place.tensors(Extent(0, plan.model.length - 1), plan.model)
    with pytest.raises(InvalidProgram) as askew:
        place.tensors(Extent(2, plan.model.length), plan.model)
    assert (small.value.code, askew.value.code) == ("region-too-small", "region-misaligned")
    assert device_of("cuda:1/4096/8192/5,6") == "cuda:1"
    assert device_of("host") == "cpu"
    with pytest.raises(OSError):  # noqa: PT011  # the system's own words: no such file
        opened("cpu/4096/4096/999", None)  # type: ignore[arg-type]  # not looked at


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_program_runs_wholly_on_the_device_of_its_tensors(precision: str) -> None:
    """On `meta`: an operator that made something elsewhere, or met a tensor of elsewhere, would fail."""
    loaded, plan = program("meta", precision=precision)
    model, grads, _ = placed(torch.empty(1 << 20, dtype=torch.uint8, device="meta"), plan)
    records = torch.empty(36, dtype=torch.uint8, device="meta")
    for name, tensor in model.items():
        tensor.requires_grad_(True).grad = grads[name]
    losses, state = loaded.train(model, {}, decode_batch(records, loaded.manifest.records, 0, 4))
    losses.mean().backward()
    assert (losses.device.type, losses.dtype, state) == ("meta", torch.float32, {})
    assert all(tensor.grad is grads[name] for name, tensor in model.items())


def trained(precision: str) -> tuple[float, Tensor]:
    loaded, plan = program("cpu", precision=precision)
    flat = torch.zeros(1 << 20, dtype=torch.uint8)
    model, grads, moments = placed(flat, plan)
    fill(model, initial_tensors(loaded.manifest, None))
    trainer = Trainer(loaded, model, grads, moments, {}, OPTIONS, total_steps=20)
    losses = [trainer.train(TOKENS, 4, step, 1).mean for step in range(20)]
    assert losses[-1] < losses[0] - 0.5
    return losses[0], flat


def test_products_in_bfloat16_are_near_those_in_float32_and_train_as_well() -> None:
    (wide, _), (narrow, _) = trained("float32"), trained("bfloat16")
    assert wide != narrow
    assert abs(wide - narrow) < 0.02 * wide


def test_precision_is_part_of_the_program_that_holders_approve() -> None:
    digests = {
        open_archive(build(builtin("gpt2", **SIZES, **one))[0]).digest for one in ({}, {"precision": "bfloat16"})
    }
    assert len(digests) == 2
    assert open_archive(build(builtin("gpt2", **SIZES, precision="float32"))[0]).digest in digests
    with pytest.raises(BadRequest, match="precision"):
        builtin("gpt2", **SIZES, precision="float16")


def test_the_arena_of_this_host_has_nothing_to_sweep() -> None:
    arena = Arena(torch.zeros(4096, dtype=torch.uint8))
    assert arena.clear_free() == 0
    with pytest.raises(RuntimeError):
        arena.zero(4096, 1)


class Crowded:
    """A card of `free` bytes that gives at most `whole` of them in a piece, and keeps `kept` back."""

    def __init__(self, patch: pytest.MonkeyPatch, free: int, whole: int, kept: int = 0) -> None:
        self.free, self.whole, self.kept = free, whole, kept
        zeros = torch.zeros

        def given(length: int, **options: object) -> torch.Tensor:
            if length > min(self.whole, self.free - self.kept):
                raise RuntimeError("CUDA error: out of memory")
            self.free -= length
            return zeros(1, dtype=torch.uint8).expand(length)

        patch.setattr(torch, "zeros", given)
        patch.setattr(arena_module, "_is_zero", lambda part: True)


@pytest.mark.parametrize(
    ("free", "whole", "kept"),
    [
        (28 << 30, 28 << 30, 0),
        ((28 << 30) + 12345, 28 << 30, 0),
        (64 << 20, 1 << 30, 0),
        (28 << 30, 28 << 30, 3 << 20),
        (28 << 30, 9 << 30, 300 << 20),
    ],
)
def test_all_of_the_cards_free_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch, free: int, whole: int, kept: int
) -> None:
    card = Crowded(monkeypatch, free, whole, kept)
    held = arena_module._take_all(torch.device("cuda:0"))
    assert sum(part.numel() for part in held) == free - card.free
    assert card.free < kept + (2 << 20), "less than the least that can be had"
    assert len(held) < 24


def test_what_else_goes_wrong_while_memory_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Crowded(monkeypatch, 1 << 30, 1 << 30)
    given = torch.zeros

    def lost(length: int, **options: object) -> torch.Tensor:
        if length > 64 << 20:
            raise RuntimeError("the card fell off the bus")
        return given(length, **options)  # type: ignore[call-overload,no-any-return]  # as it came

    monkeypatch.setattr(torch, "zeros", lost)
    with pytest.raises(RuntimeError, match="bus"):
        arena_module._take_all(torch.device("cuda:0"))


class Card:
    """What PyTorch is asked about memory of a card, answered from here."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.counted = {"segment.all.freed": 5, "num_alloc_retries": 0}
        patch.setattr(torch.cuda, "memory_stats", lambda device: dict(self.counted))
        patch.setattr(torch.cuda, "synchronize", lambda device: self.asked.append("settled"))
        patch.setattr(torch.cuda, "empty_cache", self._empty)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))
        patch.setattr(
            torch.cuda, "set_per_process_memory_fraction", lambda share, device: self.asked.append(f"at most {share}")
        )

    def _empty(self) -> None:
        self.asked.append("given back")
        self.counted["segment.all.freed"] += 3

    def place(self) -> DevicePlace:
        return DevicePlace(SimpleNamespace(device=torch.device("cuda:0"), part=None))  # type: ignore[arg-type]  # not asked


@pytest.mark.parametrize(
    ("room", "share"), [(0, WARMING_SHARE), (1 << 30, WARMING_SHARE), (20 << 30, 0.25), (81 << 30, 1.0)]
)
def test_a_worker_that_waits_has_given_back_what_it_warmed_up_with(
    monkeypatch: pytest.MonkeyPatch, room: int, share: float
) -> None:
    card = Card(monkeypatch)
    place = card.place()
    with pytest.raises(torch.OutOfMemoryError), place.warming(room):
        raise torch.OutOfMemoryError
    assert card.asked == [f"at most {share}", "settled", "given back", "at most 1.0"]
    assert place.kept, "what came before nobody's records does not count"


@pytest.mark.parametrize("counter", ["segment.all.freed", "num_alloc_retries"])
def test_memory_that_a_training_gives_back_to_the_card_is_told(monkeypatch: pytest.MonkeyPatch, counter: str) -> None:
    card = Card(monkeypatch)
    place = card.place()
    with place.warming(0):
        pass
    assert place.kept
    card.counted[counter] += 1
    assert not place.kept
