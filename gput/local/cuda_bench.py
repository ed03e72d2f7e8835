"""On a CUDA device: GPT-2 through the measured graph against plain PyTorch, and opening records into device memory; JSON on stdout.

A process of its own, because it needs PyTorch. Usage: python -m gput.local.cuda_bench DEVICE STEPS BATCH MEBIBYTES. Knows no service.
Where there is no such device it prints {"absent": why} and measures nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from shared.crypto.aead import KEY_BYTES, TAG_BYTES, OpeningChannel, SealingChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from gpu_agent.workload.training import Trainer

GPT2_124M = {"context": 1024, "vocab": 50257, "layers": 12, "heads": 12, "width": 768}
LEARNING_RATE, CLIP = 6e-4, 1.0
RECORD_BYTES = 2 * 1024 * 1024


def training(device: str, steps: int, batch: int, sizes: dict[str, int]) -> dict[str, float]:
    """Tokens per second of both, taken step by step in turn, and their ratio (median of the pairs). Products in bfloat16 on either side."""
    import torch

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config

    config = GPT2Config(**sizes)
    trainer = _trainer(device, steps, batch, sizes)
    plain = GPT2(config).to(device)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    kind = torch.uint8 if config.vocab <= 256 else torch.uint16
    drawn = torch.randint(0, config.vocab, (batch, config.context + 1), generator=torch.Generator().manual_seed(1))
    data = drawn.to(kind).to(device)
    buffer = data.view(torch.uint8).reshape(-1)
    ours, theirs = [], []
    for step in range(steps):
        torch.use_deterministic_algorithms(True, warn_only=True)  # as the trainer has it
        ours.append(_timed(device, lambda step=step: trainer.train(buffer, batch, step, 1)))  # type: ignore[misc]  # mypy: a default in a lambda
        torch.use_deterministic_algorithms(False)  # plain PyTorch has it not
        theirs.append(_timed(device, lambda: _plain_step(plain, optimizer, data, device)))
    first = max(1, steps // 5)
    tokens, ours, theirs = batch * config.context, ours[first:], theirs[first:]
    return {
        "tokens_per_s": tokens / statistics.median(ours),
        "plain_tokens_per_s": tokens / statistics.median(theirs),
        "tokens_ratio": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
    }


def _timed(device: str, act: Callable[[], object]) -> float:
    import torch

    began = time.perf_counter()
    act()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _plain_step(model: Any, optimizer: Any, data: Tensor, device: str) -> None:
    """As a user of PyTorch writes it: autocast, fused optimiser, gradients dropped and not zeroed."""
    import torch

    from gpu_agent.workload.programs.gpt2 import token_losses

    with torch.autocast(device.partition(":")[0], torch.bfloat16):
        loss = token_losses(model, {"tokens": data}).mean()
    loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _trainer(device: str, steps: int, batch: int, sizes: dict[str, int]) -> Trainer:
    """The built-in GPT-2 as a measured program over device memory that is laid out as a session's, ready to train."""
    import torch

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
    place = DevicePlace(torch.zeros(at, dtype=torch.uint8, device=device))
    model, grads, moments = (place.tensors(extent, part) for extent, part in parts)
    fill(model, initial_tensors(program.manifest, weights))
    names = {spec.name for spec in program.manifest.parameters}
    params = {name: tensor for name, tensor in model.items() if name in names}
    state = {name: tensor for name, tensor in model.items() if name not in names}
    return Trainer(program, params, grads, moments, state, options, total_steps=steps, device=place.device)


def transfer(device: str, mebibytes: int) -> dict[str, float]:
    """GB/s of opening sealed records into device memory as the copy engine does, against opening them into this process's own."""
    from gpu_agent.compute.fabric import DeviceFabric
    from gpu_agent.hardware.device_hbm import DeviceHBM

    count = max(1, mebibytes * 1024 * 1024 // RECORD_BYTES)
    key, target = os.urandom(KEY_BYTES), memoryview(bytearray(RECORD_BYTES))
    sealing = SealingChannel(key, label="bench")
    records = [sealing.seal(target, b"") for _ in range(count)]
    opening = OpeningChannel(key, label="bench")
    began = time.perf_counter()
    for record in records:
        opening.open_into(record, b"", target)
    host = time.perf_counter() - began
    hbm = DeviceHBM(DeviceFabric(device, count * RECORD_BYTES), os.urandom)
    try:
        opening, address = OpeningChannel(key, label="bench"), hbm.allocate(count * RECORD_BYTES)
        began = time.perf_counter()
        for number, record in enumerate(records):
            at = address + number * RECORD_BYTES
            opening.open_into(record, b"", hbm.landing(at, len(record) - TAG_BYTES))
            hbm.land(at, RECORD_BYTES)
        hbm.view(address, 1)  # answered when all copies before it are done
        device_s = time.perf_counter() - began
    finally:
        hbm.close()
    moved = count * RECORD_BYTES / 1e9
    return {"transfer_gb_per_s": moved / device_s, "open_gb_per_s": moved / host, "transfer_ratio": host / device_s}


def main(device: str, steps: int, batch: int, mebibytes: int) -> dict[str, Any]:
    """All figures; or why there are none."""
    from gpu_agent.compute.arena import require_device
    from shared.errors import ConfigurationError

    try:
        require_device(device)
    except ConfigurationError as error:
        return {"absent": error.detail}
    found = transfer(device, mebibytes)  # before this process takes memory of the card
    return found | training(device, steps, batch, GPT2_124M)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
