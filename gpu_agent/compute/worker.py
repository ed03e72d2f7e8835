"""One launch, in a process of its own that ends by dying with all its memory. Knows tensors over HBM bytes; no key, no holder."""

from __future__ import annotations

import contextlib
import math
import mmap
import time
from collections.abc import Callable
from typing import Final

import torch

from gpu_agent.hardware.compute import Finished, Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.workload.loader import LoadedProgram
from gpu_agent.workload.private import Noise
from gpu_agent.workload.tensors import fill, initial_tensors, tensors_over, update_norm
from gpu_agent.workload.training import Trainer
from shared.claims.layout import MemoryPlan, RegionPlan, plan_memory
from shared.claims.privacy import Privacy
from shared.claims.training import TrainingOptions
from shared.errors import GputError, InvalidData, InvalidProgram

WARM_UP_BYTES: Final = 8 * 1024 * 1024
OnStep = Callable[[int, float | None], None]
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python does not name it


def run(launch: Launch, program: LoadedProgram, hbm: mmap.mmap, on_step: OnStep) -> Finished:
    """Do one launch over the bytes of HBM.

    Raises:
        InvalidData, InvalidProgram: as the workload says; their texts quote no record.
    """
    started = time.perf_counter()
    options = TrainingOptions.model_validate(launch.options)
    plan = plan_memory(program.manifest, options, launch.accumulate)
    if launch.kind == "seed":
        fill(_tensors(hbm, launch.model, plan.model), initial_tensors(program.manifest, None))
        return Finished(0.0, 0, 0, time.perf_counter() - started, True, None)
    trainer, params = _trainer(launch, program, hbm, plan, options)
    if launch.kind in ("step", "drop"):
        finite = trainer.end_tour(step=launch.kind == "step")
        norm = _change(launch, hbm, plan, params)
        seconds = time.perf_counter() - started
        return Finished(math.nan, 0, 0, seconds, finite, norm if math.isfinite(norm) else None)
    if launch.data is None:
        raise InvalidProgram("a launch over records names no records", code="no-records")
    buffer = torch.frombuffer(hbm, dtype=torch.uint8, count=launch.data.length, offset=launch.data.address)
    if launch.kind == "evaluate":
        loss, count = trainer.evaluate(buffer, launch.records, options.batch_size)
        seconds = time.perf_counter() - started
        return Finished(loss, count, 0, seconds, math.isfinite(loss), None)

    def tell(step: int, loss: float) -> None:
        on_step(step, loss if launch.losses and math.isfinite(loss) else None)

    losses = trainer.train(buffer, launch.records, launch.first_step, launch.steps, tell)
    norm = _norm(launch, hbm, plan, trainer, params)
    done = len(losses.steps) if losses.finite else len(losses.steps) - 1
    seconds = time.perf_counter() - started
    told = losses.mean if launch.losses else math.nan
    return Finished(told, losses.records, done, seconds, losses.finite, norm if math.isfinite(norm) else None)


def _norm(launch: Launch, hbm: mmap.mmap, plan: MemoryPlan, trainer: Trainer, params: dict[str, torch.Tensor]) -> float:
    """Of what a training changed: the parameters, or, where gradients are accumulated, their sum."""
    if trainer.accumulator is not None:
        behind = Extent(launch.committed.address + plan.model.length, launch.committed.length - plan.model.length)
        return trainer.accumulator.norm_beside(_tensors(hbm, behind, plan.optimiser))
    return _change(launch, hbm, plan, params)


def _change(launch: Launch, hbm: mmap.mmap, plan: MemoryPlan, params: dict[str, torch.Tensor]) -> float:
    committed = _tensors(hbm, launch.committed, plan.model)
    return update_norm(params, {name: committed[name] for name in params})


def _trainer(
    launch: Launch, program: LoadedProgram, hbm: mmap.mmap, plan: MemoryPlan, options: TrainingOptions
) -> tuple[Trainer, dict[str, torch.Tensor]]:
    for extent in (launch.model, launch.gradients, launch.optimiser, launch.data):
        _map_pages(hbm, extent)
    tensors = _tensors(hbm, launch.model, plan.model)
    params = {spec.name: tensors[spec.name] for spec in program.manifest.parameters}
    state = {spec.name: tensors[spec.name] for spec in program.manifest.state}
    trainer = Trainer(
        program,
        params,
        _tensors(hbm, launch.gradients, plan.gradients),
        _tensors(hbm, launch.optimiser, plan.optimiser),
        state,
        options,
        launch.total_steps,
        noise=_noise(launch),
        accumulate=launch.accumulate,
    )
    return trainer, params


def _noise(launch: Launch) -> Noise | None:
    if launch.privacy is None:
        return None
    return Noise(Privacy.model_validate(launch.privacy), bytes.fromhex(launch.noise_key))


def _map_pages(hbm: mmap.mmap, extent: Extent | None) -> None:
    """Enter an extent's pages into this process's page table at once; one fault for each would cost more."""
    if extent is not None and extent.length:
        hbm.madvise(_POPULATE_WRITE, extent.address, -(-extent.length // mmap.PAGESIZE) * mmap.PAGESIZE)


def _tensors(hbm: mmap.mmap, extent: Extent, plan: RegionPlan) -> dict[str, torch.Tensor]:
    if not plan.length:
        return {}
    if plan.length > extent.length:
        raise InvalidProgram("a region is smaller than the program's tensors", code="region-too-small")
    return tensors_over(memoryview(hbm)[extent.address : extent.address + extent.length], plan)


def warm_imports() -> None:
    """In the parent, once: modules that PyTorch imports at the first optimiser step. No backward and no second thread here: a parent
    with autograd's or OpenMP's threads cannot be forked safely."""
    weight = torch.zeros(4, requires_grad=True)
    weight.grad = torch.zeros(4)
    torch.optim.AdamW([weight]).step()


def warm_up(program: LoadedProgram, options: TrainingOptions) -> None:
    """In a worker that waits: one step of the very program on scratch memory, so that first touches are off the launch's path.

    Saves about 15 ms of a small program's first step; a large program's step dwarfs that, and it is not tried.
    """
    plan = plan_memory(program.manifest, options)
    lengths = (
        plan.model.length, plan.gradients.length, plan.optimiser.length, plan.model.length,
        options.batch_size * program.manifest.records.record_bytes,
    )  # fmt: skip
    if sum(lengths) > WARM_UP_BYTES:
        return
    pages = [-(-length // mmap.PAGESIZE) * mmap.PAGESIZE for length in lengths]
    starts = [sum(pages[:index]) for index in range(len(pages))]
    model, gradients, optimiser, committed, data = (
        Extent(start, length) for start, length in zip(starts, lengths, strict=True)
    )
    launch = Launch(
        kind="train", code=Extent(0, 0), code_digest="", model=model, gradients=gradients, optimiser=optimiser,
        committed=committed, data=data, records=options.batch_size, first_step=0, steps=1, total_steps=1,
        options=options.model_dump(mode="json"),
    )  # fmt: skip
    # Zeros need not be valid records of every program; such a one merely starts colder.
    with contextlib.suppress(InvalidData, InvalidProgram):
        run(launch, program, mmap.mmap(-1, sum(pages)), lambda step, loss: None)


def public_failure(error: BaseException) -> tuple[str, str]:
    """Code and detail of a failure that may be told. Foreign texts can quote values, so only the type is named."""
    if isinstance(error, GputError):
        return error.code, error.detail
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return "compute-out-of-memory", "the compute process ran out of memory"
    return "compute-failed", f"the compute process failed ({type(error).__name__})"
