"""The optimiser is torch.optim's fused one to the last bit, without that package and the compiler that it brings along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpu_agent.workload.optimiser import Optimiser
from shared.claims.layout import moment_slots
from shared.claims.training import SGD, AdamW, TrainingOptions
from tests.workload.workload_helpers import Built

SHAPES = {"matrix": (5, 7), "vector": (7,), "scalar": (), "wide": (3, 4, 2)}
DTYPES = {"vector": torch.float64, "wide": torch.float64}
RULES = {
    "adamw": AdamW(lr=3e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3),
    "adamw, all decay": AdamW(lr=3e-2, weight_decay=0.3, decay="all"),
    "sgd": SGD(lr=0.1, weight_decay=0.2),
    "sgd, momentum": SGD(lr=0.1, momentum=0.9),
    "sgd, nesterov": SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
}


def _params() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(shape, generator=generator, dtype=DTYPES.get(name, torch.float32)).requires_grad_(True)
        for name, shape in SHAPES.items()
    }


def _theirs(params: dict[str, Tensor], options: TrainingOptions) -> torch.optim.Optimizer:
    spec = options.optimizer
    groups = [
        {"params": [p], "weight_decay": spec.weight_decay if spec.decay == "all" or p.dim() >= 2 else 0.0}
        for p in params.values()
    ]
    if isinstance(spec, SGD):
        return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=True)
    return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


@pytest.mark.parametrize("name", RULES)
def test_it_updates_bit_for_bit_as_torch_optim_does(name: str) -> None:
    options = TrainingOptions(batch_size=1, optimizer=RULES[name])
    ours, plain = _params(), _params()
    grads = {key: torch.zeros_like(value) for key, value in ours.items()}
    moments = {f"{slot}/{key}": torch.zeros_like(ours[key]) for slot in moment_slots(options) for key in ours}
    optimiser, theirs = Optimiser(ours, grads, moments, options, 10), _theirs(plain, options)
    optimiser.begin(0)
    generator = torch.Generator().manual_seed(8)
    for step in range(4):
        for key, parameter in plain.items():
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            grads[key].copy_(parameter.grad)
        optimiser.step(step)
        theirs.step()
        assert all(torch.equal(ours[key], plain[key]) for key in SHAPES), f"step {step}"
    for key, parameter in plain.items():
        for slot in moment_slots(options):
            assert torch.equal(moments[f"{slot}/{key}"], theirs.state[parameter][slot])
    assert not torch.equal(ours["scalar"], _params()["scalar"])


_A_WORKERS_LIFE = """
import json, sys
from pathlib import Path
from gpu_agent.compute import __main__ as parent
from gpu_agent.compute import worker
from gpu_agent.compute.places import HostPlace
from gpu_agent.compute.planned import by_default
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.training import pin_determinism
worker.warm_imports()
pin_determinism(1)
program = load_program(Path(sys.argv[1]).read_bytes())
before = set(sys.modules)
worker.warm_up(program, by_default(program.manifest), HostPlace(SharedMap(-1, 1 << 16)))
heavy = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
print(json.dumps({"heavy": heavy, "late": sorted(set(sys.modules) - before)}))
"""


def test_compute_imports_no_compiler_and_a_workers_step_nothing_at_all(tiny_gpt2: Built, tmp_path: Path) -> None:
    archive = tmp_path / "program.gput"
    archive.write_bytes(tiny_gpt2[0])
    done = subprocess.run(
        [sys.executable, "-c", _A_WORKERS_LIFE, str(archive)], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout) == {"heavy": [], "late": []}
