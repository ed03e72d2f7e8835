"""Training through a measured graph against plain PyTorch on the same batches, interleaved in one process; JSON on stdout.

A process of its own, because it needs PyTorch. Usage: python -m gput.local.training_bench STEPS BATCH. Knows no service.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_agent.workload.training import Trainer

CONTEXT, LEARNING_RATE, CLIP = 64, 1e-3, 1.0


def main(steps: int, batch: int) -> dict[str, float]:
    """Median seconds per step of both, and the median of the pairwise ratios."""
    import torch

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, token_losses

    config = GPT2Config(context=CONTEXT)
    trainer = _trainer(steps, batch)
    plain = GPT2(config)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    data = torch.randint(0, 256, (batch, config.context + 1), dtype=torch.uint8)
    buffer = data.reshape(-1)
    ours, theirs = [], []
    for step in range(steps):
        began = time.perf_counter()
        trainer.train(buffer, batch, step, 1)
        middle = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        loss = token_losses(plain, {"tokens": data}).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP, foreach=True)
        optimizer.step()
        theirs.append(time.perf_counter() - middle)
        ours.append(middle - began)
    ours, theirs = ours[steps // 5 :], theirs[steps // 5 :]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return {"ours_s": statistics.median(ours), "plain_s": statistics.median(theirs), "ratio": ratio}


def _trainer(steps: int, batch: int) -> Trainer:
    """The built-in GPT-2 as a measured program over memory of its own, ready to train."""
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.loader import load_program
    from gpu_agent.workload.programs import builtin
    from gpu_agent.workload.tensors import fill, initial_tensors, tensors_over
    from gpu_agent.workload.training import Trainer
    from shared.claims.layout import plan_memory
    from shared.claims.training import AdamW, TrainingOptions

    archive, weights = build(builtin("gpt2", context=CONTEXT))
    program = load_program(archive)
    options = TrainingOptions(optimizer=AdamW(lr=LEARNING_RATE), batch_size=batch, grad_clip_norm=CLIP, threads=2)
    plan = plan_memory(program.manifest, options)
    model = tensors_over(bytearray(plan.model.length), plan.model)
    fill(model, initial_tensors(program.manifest, weights))
    names = {spec.name for spec in program.manifest.parameters}
    params = {name: tensor for name, tensor in model.items() if name in names}
    state = {name: tensor for name, tensor in model.items() if name not in names}
    grads = tensors_over(bytearray(plan.gradients.length), plan.gradients)
    moments = tensors_over(bytearray(plan.optimiser.length), plan.optimiser)
    return Trainer(program, params, grads, moments, state, options, total_steps=steps)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
