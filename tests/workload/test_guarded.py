"""An integer division that the processor would trap on comes to a value; every other one is PyTorch's own, bit for bit."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gpu_agent.workload.builder import build
from gpu_agent.workload.executor import DTYPES, Executor
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.private import Noise, PrivateGradients
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.graph import Arg, Graph, Node, Ref
from shared.claims.privacy import Privacy
from shared.claims.records import RecordField, RecordSchema

LEAST = {"int32": -(2**31), "int64": -(2**63)}


def divide(left: Tensor, right: Tensor | float, mode: str) -> Tensor:
    """As a program's graph does: by the form for two tensors, or for a tensor and a number."""
    tensors = {"x": left} | ({"y": right} if isinstance(right, Tensor) else {})
    by: Arg = Ref(1) if isinstance(right, Tensor) else right
    op = "aten.div.Tensor_mode" if isinstance(right, Tensor) else "aten.div.Scalar_mode"
    node = Node(op, (Ref(0), by), (("rounding_mode", mode),))
    inputs = tuple(("record", name) for name in tensors)
    graph = Graph("eval", inputs, (node,), Ref(len(inputs)))  # type: ignore[arg-type]  # literal names, in a tuple
    return Executor(graph, "cpu")({"record": tensors})[0]


def in_a_fork(work: Callable[[], bool]) -> int:
    """How a process ends that does this: 0 where it is true, a signal's number where it dies."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("by", ["tensor", "no dimension", "number", "in its dtype"])
def test_the_least_integer_divided_by_minus_one_ends_no_process(dtype: str, by: str) -> None:
    least = torch.tensor([LEAST[dtype], 7], dtype=DTYPES[dtype])
    divisors: dict[str, Tensor | int] = {
        "tensor": torch.tensor([-1, -1], dtype=DTYPES[dtype]), "no dimension": torch.tensor(-1), "number": -1,
        "in its dtype": torch.tensor(2**32 - 1) if dtype == "int32" else torch.tensor(-1, dtype=torch.int32),
    }  # fmt: skip
    assert in_a_fork(lambda: divide(least, divisors[by], "trunc").tolist() == [LEAST[dtype], -7]) == 0


def test_every_other_division_is_pytorchs_own() -> None:
    values = [-7, -2, -1, 1, 2, 9]
    tried = 0
    for left, right, mode in itertools.product(DTYPES, DTYPES, ("trunc", "floor")):
        x, y = torch.tensor(values).to(DTYPES[left]), torch.tensor(values[::-1]).to(DTYPES[right])
        for a, b in ((x, y), (x[0], y), (x, y[0]), (x, 2), (x, -3), (x, 2.5)):
            try:
                expected = torch.div(a, b, rounding_mode=mode)
            except RuntimeError:  # not of these dtypes, or by zero
                continue
            found = divide(a, b, mode)
            assert found.dtype == expected.dtype, (left, right, mode)
            assert torch.equal(found.nan_to_num(), expected.nan_to_num()), (left, right, mode)
            tried += 1
    assert tried > 400


def _divides(model: nn.Module, records: dict[str, Tensor]) -> Tensor:
    quotient = torch.div(records["n"], records["by"], rounding_mode="trunc")
    return model(quotient.to(torch.float32)[:, None]).square().sum(dim=1)


def test_a_private_step_over_a_record_that_would_trap_is_a_step() -> None:
    """Else the process's death would tell whether there is such a record, whatever noise is added to what is trained."""
    fields = tuple(RecordField(name=name, dtype="int64") for name in ("n", "by"))
    sample = {"n": torch.tensor([8, 9, 10]), "by": torch.tensor([2, 3, 5])}
    source = ProgramSource(
        name="divides", model=nn.Linear(1, 1), loss=_divides, records=RecordSchema(fields=fields), sample=sample
    )
    archive, weights = build(source)
    program = load_program(archive)
    tensors = initial_tensors(program.manifest, weights)
    params = {spec.name: tensors[spec.name].requires_grad_(True) for spec in program.manifest.parameters}
    grads = {name: torch.zeros_like(parameter).detach() for name, parameter in params.items()}
    noise = Noise(Privacy(max_grad_norm=0.5, noise_multiplier=1e-3, delta=1e-5), bytes(32))

    def step() -> bool:
        maker = PrivateGradients(program, params, grads, {}, noise, seed=1)
        maker.fill({"n": torch.tensor([8, LEAST["int64"]]), "by": torch.tensor([2, -1])}, 0)
        return all(bool(one.isfinite().all()) for one in grads.values())

    assert in_a_fork(step) == 0
