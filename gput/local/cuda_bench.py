"""On a CUDA device: GPT-2 through the measured graph against plain PyTorch, and opening records into device memory; JSON on stdout.

A process of its own, because it needs PyTorch. Usage: python -m gput.local.cuda_bench DEVICE [STEPS BATCH MEBIBYTES RUNS]. Knows no
service. Where there is no such device it prints {"absent": why} and measures nothing.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.crypto.aead import KEY_BYTES, TAG_BYTES, OpeningChannel, SealingChannel

if TYPE_CHECKING:
    from torch import Tensor

    from gpu_agent.hardware.device_hbm import DeviceHBM
    from gpu_agent.workload.training import Trainer

GPT2_124M = {"context": 1024, "vocab": 50257, "layers": 12, "heads": 12, "width": 768}
LEARNING_RATE, CLIP = 6e-4, 1.0
RECORD_BYTES = 2 * 1024 * 1024
TURN = 5
"""Steps that one side takes before the other's turn: a short visit."""
TURNS = 8
"""Of a transfer, on either side."""


def training(device: str, steps: int, batch: int, sizes: dict[str, int], runs: int) -> list[dict[str, float]]:
    """Of each run tokens per second of both, their ratio (median of the pairs of turns), by how much their losses differ at most (nats).

    Products in bfloat16 on either side, from the same weights, `TURN` steps at a time; who begins changes with every pair. Losses are
    compared in the very first pair: kernels that add in no fixed order let any two trainings drift apart afterwards.
    """
    ours, theirs = _sides(device, runs * steps, batch, sizes)
    turns, tokens, apart, found = max(2, steps // TURN), TURN * batch * sizes["context"], math.nan, []
    for run in range(runs):
        pairs = []
        for turn in range(turns):
            first = (run * turns + turn) * TURN
            order = (ours, theirs) if turn % 2 else (theirs, ours)
            taken = {side: _timed(device, side, first) for side in order}
            if not first:
                apart = max(abs(a - b) for a, b in zip(taken[ours][1], taken[theirs][1], strict=True))
            if turn >= max(1, turns // 5):
                pairs.append((taken[ours][0], taken[theirs][0]))
        found.append({
            "tokens_per_s": tokens / statistics.median(one for one, _ in pairs),
            "plain_tokens_per_s": tokens / statistics.median(other for _, other in pairs),
            "tokens_ratio": statistics.median(other / one for one, other in pairs),
            "loss_apart": apart,
        })  # fmt: skip
    return found


Side = Callable[[int], list[float]]


def _sides(device: str, steps: int, batch: int, sizes: dict[str, int]) -> tuple[Side, Side]:
    """A turn through the measured graph that begins at some step, and one in plain PyTorch, over the same records; both give losses."""
    import torch

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config

    config = GPT2Config(**sizes)
    trainer, weights = _trainer(device, steps, batch, sizes)
    plain = GPT2(config).to(device)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(weights[name])
    optimizer = torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    kind = torch.uint8 if config.vocab <= 256 else torch.uint16
    seed = torch.Generator().manual_seed(1)
    data = torch.randint(0, config.vocab, (TURN, batch, config.context + 1), generator=seed).to(kind).to(device)
    return lambda first: _ours(trainer, data, first), lambda _first: _theirs(plain, optimizer, data, device)


def _timed(device: str, side: Callable[[int], list[float]], first: int) -> tuple[float, list[float]]:
    import torch

    began = time.perf_counter()
    losses = side(first)
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began, losses


def _ours(trainer: Trainer, data: Tensor, first: int) -> list[float]:
    """Losses of a visit that begins at this step, whose records are checked once."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)  # as the trainer has it
    batches, records = data.shape[:2]
    buffer = data.view(torch.uint8).reshape(-1)
    return list(trainer.train(buffer, batches * records, first, batches).steps)


def _theirs(model: Any, optimizer: Any, data: Tensor, device: str) -> list[float]:
    """The same steps as a user of PyTorch writes them: autocast, fused optimiser, gradients dropped and not zeroed, deterministic
    kernels not asked for, losses read at the end."""
    import torch

    from gpu_agent.workload.programs.gpt2 import token_losses

    torch.use_deterministic_algorithms(False)
    losses = []
    for batch in data:
        with torch.autocast(device.partition(":")[0], torch.bfloat16):
            loss = token_losses(model, {"tokens": batch}).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def _trainer(device: str, steps: int, batch: int, sizes: dict[str, int]) -> tuple[Trainer, dict[str, Tensor]]:
    """The built-in GPT-2 as a measured program over device memory that is laid out as a session's, ready to train; its parameters."""
    import torch

    from gpu_agent.compute.arena import Whole
    from gpu_agent.compute.places import DevicePlace
    from gpu_agent.hardware.address_space import pages
    from gpu_agent.hardware.hbm import Extent
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.loader import load_program
    from gpu_agent.workload.programs import builtin
    from gpu_agent.workload.tensors import fill, initial_tensors
    from gpu_agent.workload.training import Trainer
    from shared.claims.layout import plan_memory
    from shared.claims.training import AdamW, TrainingOptions

    archive, weights = build(builtin("gpt2", precision="bfloat16", **sizes))
    program = load_program(archive, device)
    options = TrainingOptions(optimizer=AdamW(lr=LEARNING_RATE), batch_size=batch, grad_clip_norm=CLIP, threads=2)
    plan = plan_memory(program.manifest, options)
    parts, at = [], 0
    for part in (plan.model, plan.gradients, plan.optimiser):
        parts.append((Extent(at, part.length), part))
        at += pages(part.length)
    place = DevicePlace(Whole(torch.zeros(at, dtype=torch.uint8, device=device)))
    model, grads, moments = (place.tensors(extent, part) for extent, part in parts)
    fill(model, initial_tensors(program.manifest, weights))
    names = {spec.name for spec in program.manifest.parameters}
    params = {name: tensor for name, tensor in model.items() if name in names}
    state = {name: tensor for name, tensor in model.items() if name not in names}
    trainer = Trainer(program, params, grads, moments, state, options, total_steps=steps, device=place.device)
    return trainer, params


def transfer(device: str, mebibytes: int, runs: int) -> list[dict[str, float]]:
    """Of each run GB/s of opening sealed records into device memory as the copy engine does, against opening them into the host's."""
    from gpu_agent.compute.fabric import DeviceFabric
    from gpu_agent.hardware.device_hbm import DeviceHBM

    count = max(1, mebibytes * 1024 * 1024 // RECORD_BYTES)
    hbm = DeviceHBM(DeviceFabric(device, 2 * count * RECORD_BYTES), os.urandom)
    try:
        address = hbm.allocate(count * RECORD_BYTES)
        return [_opened(hbm, address, count) for _ in range(runs)]
    finally:
        hbm.close()


def _opened(hbm: DeviceHBM, address: int, count: int) -> dict[str, float]:
    """By turns of an eighth of the records, because a machine that others share changes by the second; who begins changes, too."""
    key, target = os.urandom(KEY_BYTES), memoryview(bytearray(RECORD_BYTES))
    sealing = SealingChannel(key, label="bench")
    into_host, into_device = (OpeningChannel(key, label="bench") for _ in range(2))
    records = [sealing.seal(target, b"") for _ in range(count)]

    def host(first: int, end: int) -> None:
        for record in records[first:end]:
            into_host.open_into(record, b"", target)

    def device(first: int, end: int) -> None:
        for number in range(first, end):
            at, record = address + number * RECORD_BYTES, records[number]
            into_device.open_into(record, b"", hbm.landing(at, len(record) - TAG_BYTES))
            hbm.land(at, RECORD_BYTES)
        hbm.view(address, 1)  # answered when all copies before it are done

    turn, pairs = max(1, count // TURNS), []
    for number, first in enumerate(range(0, count, turn)):
        taken = {}
        for side in (host, device) if number % 2 else (device, host):
            began = time.perf_counter()
            side(first, min(first + turn, count))
            taken[side] = (time.perf_counter() - began) / (min(first + turn, count) - first)
        pairs.append((taken[device], taken[host]))
    return {
        "transfer_gb_per_s": RECORD_BYTES / 1e9 / statistics.median(one for one, _ in pairs),
        "open_gb_per_s": RECORD_BYTES / 1e9 / statistics.median(other for _, other in pairs),
        "transfer_ratio": statistics.median(other / one for one, other in pairs),
    }


def main(device: str, steps: int = 0, batch: int = 0, mebibytes: int = 0, runs: int = 0) -> dict[str, Any]:
    """All figures of all runs; of none, the card's name; or why there can be none."""
    from gpu_agent.compute.environment import device_environment

    os.environ.update(device_environment())  # before PyTorch looks for it: both sides train as a worker does
    from gpu_agent.compute.arena import require_device
    from shared.errors import ConfigurationError

    try:
        require_device(device)
    except ConfigurationError as error:
        return {"absent": error.detail}
    if not runs:
        import torch

        return {"card": torch.cuda.get_device_name(device)}
    moved = transfer(device, mebibytes, runs)  # before this process takes memory of the card
    trained = training(device, steps, batch, GPT2_124M, runs)
    return {"runs": [one | other for one, other in zip(moved, trained, strict=True)]}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
