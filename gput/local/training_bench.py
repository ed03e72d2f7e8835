"""Training through a measured graph against plain PyTorch on the same batches, by turns in one process; JSON on stdout.

A process of its own, because it needs PyTorch. Usage: python -m gput.local.training_bench STEPS [NAME=BATCH …]; without batches, steps of
15 ms and of 100 ms are looked for. Knows no service.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from gpu_agent.workload.training import Trainer

SIZES = {"context": 64}
LEARNING_RATE, CLIP = 1e-3, 1.0
TURN = 5
"""Steps that one side takes before the other's turn: a short visit, which checks its records once."""
SHORT_S, LONG_S = 0.015, 0.1
MOST = 256


@dataclass(frozen=True)
class Sides:
    """Both sides over the same records, from the same weights; each takes the same steps, `TURN` at a time."""

    trainer: Trainer | None
    plain: Any
    optimizer: Any
    tokens: Tensor

    def ours(self, first: int) -> list[float]:
        """Losses of a visit that begins at this step."""
        import torch

        if self.trainer is None:
            raise ValueError("plain PyTorch alone was set up")
        torch.use_deterministic_algorithms(True)
        return list(self.trainer.train(self.tokens.reshape(-1), TURN * len(self.tokens[0]), first, TURN).steps)

    def theirs(self, _first: int) -> list[float]:
        """The same steps as a user of PyTorch writes them: deterministic kernels not asked for, gradients dropped and not zeroed."""
        import torch

        from gpu_agent.workload.programs.gpt2 import token_losses

        torch.use_deterministic_algorithms(False)
        losses = []
        for batch in self.tokens:
            loss = token_losses(self.plain, {"tokens": batch}).mean()
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
            torch.nn.utils.clip_grad_norm_(self.plain.parameters(), CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses


def measure(steps: int, batch: int, sizes: Mapping[str, int] = SIZES) -> dict[str, float]:
    """Median seconds a step of both, the median of the pairs' ratios, and by how much their losses differ at most (nats).

    Who begins changes with every pair, and the first fifth of them does not count. No held-out check takes part.
    """
    import torch

    sides = _sides(batch, sizes, steps)
    turns = max(2, steps // TURN)
    warm = max(1, turns // 5)
    ours, theirs, apart = [], [], 0.0
    for turn in range(turns):
        taken: dict[Callable[[int], list[float]], tuple[float, list[float]]] = {}
        order = (sides.ours, sides.theirs) if turn % 2 else (sides.theirs, sides.ours)
        for side in order:
            taken[side] = _timed(side, turn * TURN)
        apart = max(apart, *(abs(a - b) for a, b in zip(taken[sides.ours][1], taken[sides.theirs][1], strict=True)))
        if turn >= warm:
            ours.append(taken[sides.ours][0] / TURN)
            theirs.append(taken[sides.theirs][0] / TURN)
    torch.use_deterministic_algorithms(False)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return {
        "ours_s": statistics.median(ours), "plain_s": statistics.median(theirs), "ratio": ratio, "loss_apart": apart,
        "batch": float(batch),
    }  # fmt: skip


def _timed(side: Callable[[int], list[float]], first: int) -> tuple[float, list[float]]:
    began = time.perf_counter()
    losses = side(first)
    return time.perf_counter() - began, losses


def _sides(batch: int, sizes: Mapping[str, int], steps: int) -> Sides:
    trainer, weights = _trainer(max(steps, 2 * TURN), batch, sizes)
    return Sides(trainer, *_plain(batch, sizes, weights))


def _plain(batch: int, sizes: Mapping[str, int], weights: Mapping[str, Tensor]) -> tuple[Any, Any, Tensor]:
    """Model, optimiser and records in plain PyTorch; from these weights, where there are any."""
    import torch

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config

    config = GPT2Config(**sizes)
    plain = GPT2(config)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if weights:
                parameter.copy_(weights[name])
    optimizer = torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    drawn = torch.randint(
        0, config.vocab, (TURN, batch, config.context + 1), generator=torch.Generator().manual_seed(1)
    )
    return plain, optimizer, drawn.to(torch.uint8)


def plain_step_s(batch: int) -> float:
    """Seconds of a step in plain PyTorch, of the fastest of three turns: what else the machine does must not choose the batch."""
    return (
        min(_timed(theirs_alone, 0)[0] for theirs_alone in [Sides(None, *_plain(batch, SIZES, {})).theirs] * 3) / TURN
    )


def found_batches() -> dict[str, int]:
    """Batches whose step in plain PyTorch takes about 15 ms, and 100 ms or more, on this machine: powers of two, one at least."""
    batch, found = 1, {"short": 1}
    while True:
        taken = plain_step_s(batch)
        if taken <= SHORT_S:
            found["short"] = batch
        if taken >= LONG_S or batch >= MOST:
            return {**found, "long": batch}
        batch *= 2


def _trainer(steps: int, batch: int, sizes: Mapping[str, int]) -> tuple[Trainer, dict[str, Tensor]]:
    """The built-in GPT-2 as a measured program over memory of its own, ready to train; and the weights that it starts from."""
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.loader import load_program
    from gpu_agent.workload.programs import builtin
    from gpu_agent.workload.tensors import fill, initial_tensors, tensors_over
    from gpu_agent.workload.training import Trainer
    from shared.claims.layout import plan_memory
    from shared.claims.training import AdamW, TrainingOptions
    from shared.quota import usable_cores

    archive, weights = build(builtin("gpt2", **sizes))
    program = load_program(archive)
    threads = usable_cores()  # of both sides: the trainer sets it for the process
    options = TrainingOptions(optimizer=AdamW(lr=LEARNING_RATE), batch_size=batch, grad_clip_norm=CLIP, threads=threads)
    plan, initial = plan_memory(program.manifest, options), initial_tensors(program.manifest, weights)
    model = tensors_over(bytearray(plan.model.length), plan.model)
    fill(model, initial)
    names = {spec.name for spec in program.manifest.parameters}
    params = {name: tensor for name, tensor in model.items() if name in names}
    state = {name: tensor for name, tensor in model.items() if name not in names}
    grads = tensors_over(bytearray(plan.gradients.length), plan.gradients)
    moments = tensors_over(bytearray(plan.optimiser.length), plan.optimiser)
    return Trainer(program, params, grads, moments, state, options, total_steps=steps), initial


def main(steps: int, batches: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Each kind of step by name; where none is named, those that this machine takes about 15 ms and 100 ms for."""
    return {name: measure(steps, batch) for name, batch in (batches or found_batches()).items()}


if __name__ == "__main__":
    named = (word.partition("=") for word in sys.argv[2:])
    print(json.dumps(main(int(sys.argv[1]), {name: int(batch) for name, _, batch in named})))
