"""A program of which each kind of operator runs once: all kinds of calls of a whole step, backward too, and fewer of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_agent.workload.distinct import EachKindOnce
from gpu_agent.workload.executor import DTYPES
from gpu_agent.workload.loader import LoadedProgram, load_program
from gpu_agent.workload.training import Trainer
from shared.claims.layout import plan_memory
from shared.claims.training import AdamW, TrainingOptions
from tests.built import built

OPTIONS = TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=4, grad_clip_norm=1.0)
GPT2 = {"layers": 6, "heads": 2, "width": 16, "context": 8, "vocab": 300}
PROGRAMS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt2 in bfloat16": GPT2 | {"precision": "bfloat16"},
    "classifier": {"features": 4, "classes": 3},
}


class Calls(TorchDispatchMode):
    """Every kernel that PyTorch is asked for, backward's and the optimiser's too, by what it is chosen by."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Hashable] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in torch.utils._pytree.tree_leaves((args, kwargs or {})) if isinstance(one, torch.Tensor)]
        self.found[str(func), *((tuple(one.shape), one.dtype) for one in given)] += 1
        return func(*args, **(kwargs or {}))


def program_of(name: str) -> LoadedProgram:
    return load_program(built(name.partition(" ")[0], **PROGRAMS[name])[0])


def step_of(program: LoadedProgram) -> Counter[Hashable]:
    """The calls of one training step on zeros, as a worker that waits does it."""
    manifest = program.manifest
    plan = plan_memory(manifest, OPTIONS, False)
    tensors, grads, moments = (
        {placed.spec.name: torch.zeros(placed.spec.shape, dtype=DTYPES[placed.spec.dtype]) for placed in region.tensors}
        for region in (plan.model, plan.gradients, plan.optimiser)
    )
    params = {spec.name: tensors[spec.name] for spec in manifest.parameters}
    state = {spec.name: tensors[spec.name] for spec in manifest.state}
    trainer = Trainer(program, params, grads, moments, state, OPTIONS, 1)
    records = torch.zeros(4 * manifest.records.record_bytes, dtype=torch.uint8)
    with Calls() as calls:
        assert trainer.train(records, 4, 0, 1).finite
    return calls.found


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_of_call_of_a_step_is_made(name: str) -> None:
    program = program_of(name)
    whole, once = step_of(program), step_of(EachKindOnce(program))
    assert set(whole) <= set(once), set(whole) - set(once)


def test_of_many_layers_few_calls_are_made() -> None:
    program = program_of("gpt2")
    whole, once = step_of(program), step_of(EachKindOnce(program))
    assert sum(once.values()) < sum(whole.values()) / 2


def test_the_program_itself_stays_as_it_was() -> None:
    program = program_of("gpt2")
    before = step_of(program)
    step_of(EachKindOnce(program))
    assert step_of(program) == before
