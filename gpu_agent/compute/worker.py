"""One launch, in a process of its own that ends by dying with all its memory. Knows tensors over HBM bytes; no key, no holder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import torch

from gpu_agent.compute.places import Place
from gpu_agent.compute.planned import Planned, planned
from gpu_agent.hardware.address_space import pages
from gpu_agent.hardware.compute import Finished, Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.workload.loader import LoadedProgram
from gpu_agent.workload.mixture import Mixture, PartRefused
from gpu_agent.workload.optimiser import Optimiser
from gpu_agent.workload.private import Noise
from gpu_agent.workload.tensors import fill, initial_tensors, update_norm
from gpu_agent.workload.training import Trainer
from shared.claims.layout import MemoryPlan, moment_slots
from shared.claims.privacy import Privacy
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import GputError, InvalidData, InvalidProgram

OnStep = Callable[[int, float | None], None]
FAILED: Final = "The program failed on a batch of these records"
"""All that is told of a program that failed on holders' records, however it did."""
_NO_MEMORY: Final = "The program did not have enough memory on a batch of these records"
_NOBODYS = ("program-not-private", "no-records", "no-accumulator")
"""Codes of what a program is refused for before it has seen a record."""


def run(
    launch: Launch, program: LoadedProgram, place: Place, on_step: OnStep, known: Planned | None = None
) -> Finished:
    """Do one launch over the bytes of HBM, wherever they lie; all of it is in them when this returns.

    Args:
        known: what was worked out for launches like it, if anything was.
    Raises:
        InvalidData, InvalidProgram: as the workload says; their texts quote no record.
    """
    started = time.perf_counter()
    if known is None or not known.serves(launch.options, launch.accumulate):
        known = planned(program.manifest, launch.options, launch.accumulate)
    options, plan = known.options, known.plan
    if launch.kind == "seed":
        fill(place.tensors(launch.model, plan.model), initial_tensors(program.manifest, None))
        place.settle()
        return Finished(0.0, 0, 0, time.perf_counter() - started, True, None)
    trainer, params = _trainer(launch, program, place, plan, options)
    if launch.kind in ("step", "drop"):
        finite = trainer.end_tour(step=launch.kind == "step")
        norm = _change(launch, place, plan, params)
        place.settle()
        seconds = time.perf_counter() - started
        return Finished(math.nan, 0, 0, seconds, finite, norm if math.isfinite(norm) else None)
    if launch.kind == "evaluate":
        loss, count = trainer.evaluate(_buffer(launch, place), launch.records, options.batch_size)
        seconds = time.perf_counter() - started
        return Finished(loss, count, 0, seconds, math.isfinite(loss), None)
    return _trained(launch, place, plan, trainer, params, on_step, started)


def _trained(
    launch: Launch, place: Place, plan: MemoryPlan, trainer: Trainer, params: dict[str, torch.Tensor], on_step: OnStep,
    started: float,
) -> Finished:  # fmt: skip
    def tell(step: int, loss: float) -> None:
        on_step(step, loss if launch.losses and math.isfinite(loss) else None)

    place.watch()
    losses = trainer.train(_records(launch, place), launch.records, launch.first_step, launch.steps, tell)
    beside = place.most_beside
    norm = _norm(launch, place, plan, trainer, params)
    place.settle()
    done = len(losses.steps) if losses.finite else len(losses.steps) - 1
    seconds = time.perf_counter() - started
    told = losses.mean if launch.losses else math.nan
    return Finished(told, losses.records, done, seconds, losses.finite, norm if math.isfinite(norm) else None, beside)


def _records(launch: Launch, place: Place) -> torch.Tensor | Mixture:
    if launch.parts:
        return Mixture([(place.records(part.data), part.records) for part in launch.parts], launch.seed)
    return _buffer(launch, place)


def _buffer(launch: Launch, place: Place) -> torch.Tensor:
    if launch.data is None:
        raise InvalidProgram("a launch over records names no records", code="no-records")
    return place.records(launch.data)


def _norm(launch: Launch, place: Place, plan: MemoryPlan, trainer: Trainer, params: dict[str, torch.Tensor]) -> float:
    """Of what a training changed: the parameters, or, where gradients are accumulated, their sum."""
    if trainer.accumulator is not None:
        behind = Extent(launch.committed.address + plan.model.length, launch.committed.length - plan.model.length)
        return trainer.accumulator.norm_beside(place.tensors(behind, plan.optimiser))
    return _change(launch, place, plan, params)


def _change(launch: Launch, place: Place, plan: MemoryPlan, params: dict[str, torch.Tensor]) -> float:
    committed = place.tensors(launch.committed, plan.model)
    return update_norm(params, {name: committed[name] for name in params})


def _trainer(
    launch: Launch, program: LoadedProgram, place: Place, plan: MemoryPlan, options: TrainingOptions
) -> tuple[Trainer, dict[str, torch.Tensor]]:
    for extent in (
        launch.model,
        launch.gradients,
        launch.optimiser,
        launch.data,
        *(part.data for part in launch.parts),
    ):
        place.touch(extent)
    tensors = place.tensors(launch.model, plan.model)
    params = {spec.name: tensors[spec.name] for spec in program.manifest.parameters}
    state = {spec.name: tensors[spec.name] for spec in program.manifest.state}
    trainer = Trainer(
        program,
        params,
        place.tensors(launch.gradients, plan.gradients),
        place.tensors(launch.optimiser, plan.optimiser),
        state,
        options,
        launch.total_steps,
        place.device,
        noise=_noise(launch),
        accumulate=launch.accumulate,
    )
    return trainer, params


def _noise(launch: Launch) -> Noise | None:
    if launch.privacy is None:
        return None
    return Noise(Privacy.model_validate(launch.privacy), bytes.fromhex(launch.noise_key))


def warm_imports() -> None:
    """In the parent, once: what PyTorch imports at the first optimiser step. No backward and no second thread here: a parent
    with autograd's or OpenMP's threads cannot be forked safely."""
    name, one = "weight", torch.zeros(1)
    options = TrainingOptions(batch_size=1, optimizer=AdamW(lr=1.0), grad_clip_norm=1.0)
    moments = {f"{slot}/{name}": torch.zeros(1) for slot in moment_slots(options)}
    Optimiser({name: one.clone().requires_grad_(True)}, {name: one}, moments, options, 1).step(0)


def warm_up(program: LoadedProgram, known: Planned, place: Place, room: int = 0) -> None:
    """In a worker that waits: one step of the very program on scratch memory, so that first touches are off the launch's path.

    Saves about 15 ms of a small program's first step on the host, where a large program's step dwarfs that and is not tried; on a device
    0.3 s of loading kernels. Where a batch takes too much memory beside one that trains, one record will do: it loads those kernels
    that do not depend on a batch's size.

    Args:
        room: as `Place.warming`.
    """
    with place.warming(room):
        for records in (known.options.batch_size, 1):
            try:
                _step_ahead(program, known, place, records)
            except torch.OutOfMemoryError:  # in the backward
                continue
            except InvalidProgram as error:
                if error.code == "program-out-of-memory":
                    continue
            except InvalidData:  # zeros need not be valid records of every program; such a one merely starts colder
                pass
            return


def is_small(program: LoadedProgram, known: Planned, limit_bytes: int) -> bool:
    """Whether a step ahead of its launch is worth while for this program, where that takes at most so much memory."""
    return sum(_scratch_lengths(program, known, known.options.batch_size)) <= limit_bytes


def _scratch_lengths(program: LoadedProgram, known: Planned, records: int) -> tuple[int, ...]:
    """Of model, gradients, optimiser's state, committed copy and records."""
    plan = known.plan
    # A training that accumulates is held against the committed sums, too.
    beside = plan.optimiser.length if known.accumulate else 0
    return (
        plan.model.length, plan.gradients.length, plan.optimiser.length, plan.model.length + beside,
        records * program.manifest.records.record_bytes,
    )  # fmt: skip


def _step_ahead(program: LoadedProgram, known: Planned, place: Place, records: int) -> None:
    lengths = _scratch_lengths(program, known, records)
    if sum(lengths) > place.warm_up_bytes:
        return
    spans = [pages(length) for length in lengths]
    starts = [sum(spans[:index]) for index in range(len(spans))]
    model, gradients, optimiser, committed, data = (
        Extent(start, length) for start, length in zip(starts, lengths, strict=True)
    )
    launch = Launch(
        kind="train", code=Extent(0, 0), code_digest="", model=model, gradients=gradients, optimiser=optimiser,
        committed=committed, data=data, records=records, first_step=0, steps=1, total_steps=1,
        options={**known.stated, "batch_size": records}, accumulate=known.accumulate,
    )  # fmt: skip
    run(launch, program, place.scratch(sum(spans)), lambda step, loss: None, known)


def public_failure(error: BaseException, *, own: bool) -> tuple[str, str, int | None]:
    """Code and detail of a failure that may be told, and of which part. Foreign texts can quote values, so only the type is named.

    Args:
        own: no record of a holder's was read. Of a program that failed on holders' records no more is told than that it did: which node
            failed, and how, its author can have depend on what the records say, and no rule for losses holds for a failure.
    """
    if isinstance(error, InvalidProgram) and not own and error.code not in _NOBODYS:
        memory = error.code == "program-out-of-memory"
        return (error.code, _NO_MEMORY, None) if memory else ("program-failed", FAILED, None)
    if isinstance(error, GputError):
        return error.code, error.detail, error.part if isinstance(error, PartRefused) else None
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "not enough memory" in str(error):
        return "compute-out-of-memory", "the compute process ran out of memory", None
    return "compute-failed", f"the compute process failed ({type(error).__name__})", None
